// Package output writes for people: tables that fit the terminal, colours, times as they are read. For programs it
// writes JSON, YAML or names.
package output

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

// Printer writes for people.
type Printer struct {
	W     io.Writer
	Now   time.Time
	Zone  *time.Location // times are shown in it
	Color bool
	Width int   // of the terminal; 0 if there is none, or if it does not matter
	Wide  bool  // nothing is shortened
	Err   error // the first one

	// Parts says that a table comes in several: the columns of the first are those of all. More are to come while
	// Unfinished.
	Parts, Unfinished bool
	columns           []int
}

// Several says that this table is one of several parts, which have the same columns.
func (p *Printer) Several() bool { return p.Parts && (p.Unfinished || p.columns != nil) }

// Printf writes a text.
func (p *Printer) Printf(format string, args ...any) {
	if _, err := fmt.Fprintf(p.W, format, args...); p.Err == nil {
		p.Err = err
	}
}

// Paint colours a text.
func (p *Printer) Paint(color, s string) string {
	if !p.Color || s == "" {
		return s
	}
	return color + s + terminal.Reset
}

// RunStatus is a status with its colour.
func (p *Printer) RunStatus(s job.RunStatus) string {
	color := terminal.Plain
	switch s {
	case job.RunSucceeded:
		color = terminal.Green
	case job.RunFailed, job.RunDead, job.RunLost, job.RunMissed, job.RunExpired:
		color = terminal.Red
	case job.RunClaimed, job.RunRunning, job.RunCanceling:
		color = terminal.Cyan
	case job.RunRetrying, job.RunSkipped, job.RunCanceled:
		color = terminal.Yellow
	}
	return p.Paint(color, Dash(s.String()))
}

// JobStatus is a status with its colour.
func (p *Printer) JobStatus(s job.Status) string {
	color := terminal.Plain
	switch s {
	case job.StatusPaused:
		color = terminal.Yellow
	case job.StatusFailed, job.StatusQuarantined:
		color = terminal.Red
	case job.StatusCompleted:
		color = terminal.Green
	}
	return p.Paint(color, string(s))
}

// Fields prints "name  value" lines and leaves out what has no value.
func (p *Printer) Fields(pairs ...string) {
	t := Table{Wrap: true}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" && pairs[i+1] != "-" {
			t.Row(pairs[i], pairs[i+1])
		}
	}
	p.Table(t)
}

// More tells how to get the next page.
func (p *Printer) More(cursor string) {
	if cursor != "" && !p.Unfinished {
		p.Printf("more: --cursor %s\n", cursor)
	}
}

// NameAndID is how a job is called in a sentence.
func NameAndID(name string, id job.ID) string {
	if name == "" {
		return id.String()
	}
	return name + " (" + id.String() + ")"
}

// Dash stands where there is nothing.
func Dash(s string) string { return cmp.Or(s, "-") }

// escapes are the codes by which programs colour what they write and steer the terminal.
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// Short is the first line of a text, in at most n columns.
func Short(s string, n int) string {
	s, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	s = escapes.ReplaceAllString(s, "")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' ' // what a target answered must not steer the terminal
		}
		return r
	}, s)
	if Visible(s) > n {
		return cut(s, n)
	}
	if more {
		s += " …"
	}
	return s
}

// Cut is Short, unless nothing is to be shortened: then it is the whole text on one line.
func (p *Printer) Cut(s string, n int) string {
	if p.Wide {
		return Line(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " "))
	}
	return Short(s, n)
}

// Line is the first line of a text, however long.
func Line(s string) string { return Short(s, math.MaxInt) }

// JSON writes a value for programs, on one line.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Indented writes JSON that people read too.
func Indented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Raw writes an answer as it came. One without a body is an empty object, so that a program always gets JSON.
func Raw(w io.Writer, raw []byte) error {
	_, err := io.WriteString(w, cmp.Or(strings.TrimRight(string(raw), "\n"), "{}")+"\n")
	return err
}
