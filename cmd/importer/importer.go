// Package importer has the commands that print the jobs of other schedulers as job files. They need no node.
package importer

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/job"
)

// App is what the commands know of the process.
type App struct {
	Env  func(string) string
	Now  func() time.Time
	JSON func() bool // lines of JSON instead of YAML
}

// found is a job of another scheduler.
type found struct {
	place, text string    // where it stands, and what stands there
	spec        *job.Spec // nil: it is left out
	notes       []string  // what is not as it was
	err         string    // why it is left out
}

// printer prints jobs, and on standard error what is different and what is left out.
type printer struct {
	app        App
	cmd        *cobra.Command
	jobs, left int
	notes      []string            // what is different, each once, in the order of the first place
	places     map[string][]string // by note
}

func (p *printer) print(f found) error {
	if f.spec != nil {
		check := *f.spec
		check.Normalize()
		if err := check.Validate(); err != nil {
			f.spec, f.err = nil, err.Error()
		}
	}
	if f.spec != nil {
		if err := p.job(f); err != nil {
			return err
		}
		p.jobs++
	}
	for _, n := range f.notes {
		if p.places[n] == nil {
			p.notes = append(p.notes, n)
		}
		if p.places == nil {
			p.places = map[string][]string{}
		}
		p.places[n] = append(p.places[n], f.place)
	}
	if f.err != "" {
		p.left++
		fmt.Fprintf(p.cmd.ErrOrStderr(), "%s: left out: %s\n", f.place, f.err)
		if f.text != "" {
			fmt.Fprintf(p.cmd.ErrOrStderr(), "    %s\n", f.text)
		}
	}
	return nil
}

// job prints one: a line of JSON with --json, otherwise a YAML document below what it was.
func (p *printer) job(f found) error {
	w := p.cmd.OutOrStdout()
	if p.app.JSON() {
		return output.JSON(w, f.spec)
	}
	raw, err := jsontext.Marshal(f.spec)
	if err != nil {
		return err
	}
	text, err := jobfile.ToYAML(raw)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if p.jobs > 0 {
		b.WriteString("---\n")
	}
	head := f.place
	if f.text != "" {
		head += ": " + f.text
	}
	fmt.Fprintf(&b, "# %s\n", head)
	for _, n := range f.notes {
		fmt.Fprintf(&b, "# Note: %s.\n", n)
	}
	b.Write(text)
	_, err = w.Write(b.Bytes())
	return err
}

// note is about all jobs.
func (p *printer) note(format string, args ...any) {
	fmt.Fprintf(p.cmd.ErrOrStderr(), "note: "+format+"\n", args...)
}

// placesShown is how many places are named of one note: MAILTO at the top of a file is about every line of it.
const placesShown = 8

// end says what is different, and whether something was left out: a program must not take the rest for all of it.
func (p *printer) end(what string) error {
	for _, n := range p.notes {
		all := p.places[n]
		also := ""
		if len(all) > 1 {
			also = " (also " + strings.Join(all[1:min(placesShown, len(all))], ", ")
			if more := len(all) - placesShown; more > 0 {
				also += fmt.Sprintf(" and %d more", more)
			}
			also += ")"
		}
		fmt.Fprintf(p.cmd.ErrOrStderr(), "%s: note: %s%s\n", all[0], n, also)
	}
	if p.left == 0 {
		return nil
	}
	return fmt.Errorf("left out %s, see above; %s printed", count(p.left, what), count(p.jobs, "job"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// maxInput bounds a file: no crontab comes near it.
const maxInput = 64 << 20

func readAll(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxInput {
		return nil, job.Errorf(job.CodeTooLarge, "is it the right file?", "%s is larger than %d bytes", name, maxInput)
	}
	return data, nil
}

// zone is the one that --tz names, or that of this machine.
func (a App) zone(name string) (string, error) {
	if name == "" {
		name = a.hostZone()
	}
	if _, err := time.LoadLocation(name); err != nil || name == "Local" {
		return "", job.Invalid("--tz", "use a name such as Europe/Berlin", "%q is not an IANA time zone", name)
	}
	if name == "Etc/UTC" {
		name = "UTC"
	}
	return name, nil
}

// hostZone is the zone of this machine by its name.
func (a App) hostZone() string {
	if tz := strings.TrimPrefix(a.Env("TZ"), ":"); tz != "" {
		return tz
	}
	if link, err := filepath.EvalSymlinks("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(link, "zoneinfo/"); ok {
			return strings.TrimPrefix(name, "posix/")
		}
	}
	if text, err := os.ReadFile("/etc/timezone"); err == nil {
		if name := strings.TrimSpace(string(text)); name != "" {
			return name
		}
	}
	return "UTC"
}
