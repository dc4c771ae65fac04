package cmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/applier"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/jobflags"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) submitCmd() *cobra.Command {
	var f jobflags.Flags
	c := &cobra.Command{
		Use:   "submit [FILE|-]...",
		Short: "Submit a job from flags, or jobs from files",
		Long: `Submit a job described by flags, or the jobs of JSON, NDJSON or YAML files ("-" for standard input). A YAML
file may hold several documents and an NDJSON file any number of lines; submitting the same file again is safe.`,
		Example: `  carillon submit --name hello --schedule '@every 2s' --http http://127.0.0.1:8080/
  carillon submit --at +5s --shell 'date'
  carillon submit --name report --schedule '0 9 * * MON-FRI' --tz Europe/Berlin --http https://example.com/report --body '{"day":"today"}'
  carillon submit jobs.yaml
  carillon submit -f jobs/ -f more.yaml`,
	}
	var named []string
	c.Flags().StringArrayVarP(&named, "filename", "f", nil, "file, directory, or - for standard input; repeatable")
	f.Register(c.Flags())
	var limit requestLimit
	limit.register(c.Flags(), "request-timeout", a.env) // --timeout is the job's here
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := limit.check(); err != nil {
			return err
		}
		a.limit = limit
		if args = append(args, named...); len(args) > 0 {
			if name := f.First(cmd.Flags()); name != "" {
				return usage("put it into the file, or leave out the file",
					"--%s describes a job, and the file already does", name)
			}
			return a.submitFiles(cmd, args)
		}
		if f.First(cmd.Flags()) == "" {
			return usage("`carillon submit jobs.yaml` takes a file, "+
				"`carillon submit --schedule '@every 1m' --shell date` makes a job", "there is no job to submit")
		}
		spec, err := f.Spec(cmd.Flags(), a.now())
		if err != nil {
			return err
		}
		return a.submitOne(cmd, spec, "")
	}
	return c
}

// submitOne creates one job and says when it runs.
func (a *app) submitOne(cmd *cobra.Command, spec job.Spec, file string) error {
	var replayed, there bool
	return ask(a, cmd, func(c *client.Client, ctx context.Context) (j job.Job, err error) {
		warned := client.WithWarnings(ctx, func(text string) {
			if !a.json {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+text)
			}
		})
		j, err = c.CreateJob(client.WithReplay(warned, &replayed), spec)
		if job.CodeOf(err) == job.CodeDuplicateName {
			j, there, err = sameJob(ctx, c, spec, file, err)
		}
		return j, err
	}, func(p *printer, j job.Job) {
		done := "submitted"
		switch {
		case there:
			done = "already there:"
		case replayed:
			done = "already submitted"
		}
		p.Printf("%s %s%s\n", done, output.NameAndID(j.Name, j.ID), nextRun(p, j))
	})
}

// sameJob answers a submit whose name is taken: if the job of that name says the same it is there already, as it is in
// a file of several. The node compares them, as it does for those.
func sameJob(ctx context.Context, c *client.Client, spec job.Spec, file string,
	taken error) (j job.Job, there bool, err error) {
	line, err := jsontext.Marshal(spec)
	if err != nil {
		return j, false, err
	}
	var r client.ApplyResult
	// The key, if there is one, is that of the create. A dry run leaves no second record in the audit.
	quiet := client.WithIdempotencyKey(client.WithRaw(ctx, func([]byte) {}), "")
	err = c.ApplyJobs(quiet, bytes.NewReader(append(line, '\n')), client.ApplyOptions{DryRun: true},
		func(a client.ApplyResult) error {
			r = a
			return nil
		})
	switch {
	case err != nil:
		return j, false, err
	case r.Status != wire.ApplyUnchanged || r.JobID == nil:
		var e *job.Error
		if errors.As(taken, &e) {
			said := *e
			said.Message += ", with another definition"
			said.Remedy = "choose another name, or change that job: `carillon jobs edit " + spec.Name
			if file != "" {
				said.Remedy += " --file " + file
			}
			said.Remedy += "`"
			taken = &said
		}
		return j, false, taken
	}
	j, err = c.GetJob(ctx, r.JobID.String())
	return j, err == nil, err
}

func nextRun(p *printer, j job.Job) string {
	switch {
	case j.Status == job.StatusPaused:
		return ", paused"
	case j.NextRunAt != 0 && p.overdue(j.NextRunAt) > time.Minute:
		return ", which was due " + p.When(j.NextRunAt) + " and runs now"
	case j.NextRunAt != 0:
		return ", next run " + p.When(j.NextRunAt)
	case strings.EqualFold(j.Schedule, "@manual"):
		return ", runs when triggered: " + output.Program() + " jobs run " + ref(j)
	}
	return ", no further run"
}

// ref is how one calls a job on a command line.
func ref(j job.Job) string {
	if space := unusual(j.Namespace); j.Name != "" && space != "" {
		return j.Name + " -n " + space
	}
	return cmp.Or(j.Name, j.ID.String())
}

// submitFiles submits the files that are named, and those of directories, one after another.
func (a *app) submitFiles(cmd *cobra.Command, args []string) error {
	files, err := applier.Files(args, false)
	switch {
	case err != nil:
		return err
	case len(files) == 0:
		return usage("name a directory with files that end in .yaml, .json or .ndjson", "there is no job file in %s",
			strings.Join(args, ", "))
	case len(files) == 1:
		return a.submitFile(cmd, files[0])
	case a.key != "":
		return job.Invalid("--idempotency-key", "submit them one by one, or leave it out: submitting again is safe",
			"a key is for one request, and there are %d files", len(files))
	}
	var first error
	failed := 0
	for _, path := range files {
		err := a.submitFile(cmd, path)
		switch exit.Code(err) {
		case exit.OK:
			continue
		case exit.Unavailable: // the others would say the same
			return err
		}
		failed++
		first = cmp.Or(first, err)
		a.report(cmd.ErrOrStderr(), err)
	}
	if first == nil {
		return nil
	}
	return &job.Error{Code: cmp.Or(job.CodeOf(first), job.CodeInternal),
		Message: fmt.Sprintf("%d of %d files were not submitted completely", failed, len(files)),
		Remedy:  "correct them and submit all of them again: existing jobs are left as they are"}
}

// submitFile submits what is in a file: one job as one request, several as a bulk create.
func (a *app) submitFile(cmd *cobra.Command, path string) error {
	f, name, err := a.openFile(path, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 512<<10)
	if jobfile.LooksLikeLines(in) {
		return a.submitBulk(cmd, in,
			func(r client.BulkResult) error { return fmt.Errorf("%s:%d: %w", name, r.Line, r.Error) })
	}
	docs, err := jobfile.Read(in, name)
	if err != nil {
		return err
	}
	if len(docs) == 1 {
		var s job.Spec
		if err := job.DecodeStrict(docs[0].JSON, &s); err != nil {
			return docs[0].At(err)
		}
		return docs[0].At(a.submitOne(cmd, s, path))
	}
	var lines bytes.Buffer
	for _, d := range docs {
		if err := json.Compact(&lines, d.JSON); err != nil {
			return d.At(err)
		}
		lines.WriteByte('\n')
	}
	return a.submitBulk(cmd, &lines, func(r client.BulkResult) error {
		if r.Line > len(docs) {
			return r.Error
		}
		return docs[r.Line-1].At(r.Error)
	})
}

// submitBulk reports every line that failed where it stands, and then how many did what.
func (a *app) submitBulk(cmd *cobra.Command, in io.Reader, place func(client.BulkResult) error) error {
	if err := a.form.Lines(cmd); err != nil {
		return err
	}
	ctx := a.keyed(cmd.Context())
	created, exists, failed := 0, 0, 0
	var first *job.Error
	err := a.client().BulkCreate(ctx, in, func(r client.BulkResult) error {
		switch {
		case r.Status == "created":
			created++
		case r.Status == "exists":
			exists++
		default:
			failed++
			if r.Error == nil {
				r.Error = job.Errorf(job.CodeInternal, "", "the node did not say why")
			}
			if first == nil {
				first = r.Error
			}
		}
		if a.json {
			return output.JSON(cmd.OutOrStdout(), r)
		}
		if r.Error != nil {
			a.report(cmd.ErrOrStderr(), place(r))
		} else if r.JobID != nil && r.Status == "created" {
			return a.form.Made(cmd.OutOrStdout(), r.Name, *r.JobID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !a.json {
		p := a.printer(cmd)
		p.Printf("%d created, %d already there, %d failed\n", created, exists, failed)
	}
	if failed > 0 {
		return &job.Error{Code: first.Code,
			Message: fmt.Sprintf("%d of %d jobs were not created", failed, created+exists+failed),
			Remedy:  "correct them and submit the file again: existing jobs are left as they are"}
	}
	return nil
}

// readOne reads a file that must hold one document, and says where that is.
func (a *app) readOne(cmd *cobra.Command, path, remedy, why string, v any) (doc jobfile.Document, err error) {
	f, name, err := a.openFile(path, cmd.InOrStdin())
	if err != nil {
		return doc, err
	}
	defer f.Close()
	docs, err := jobfile.Read(f, name)
	switch {
	case err != nil:
		return doc, err
	case len(docs) != 1:
		return doc, usage(remedy, "%s has %d documents%s", name, len(docs), why)
	}
	return docs[0], docs[0].At(job.DecodeStrict(docs[0].JSON, v))
}

// openFile opens a file, or standard input for "-".
func (a *app) openFile(path string, stdin io.Reader) (io.ReadCloser, string, error) {
	if path == "-" {
		return io.NopCloser(stdin), "standard input", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, path, job.Errorf(job.CodeInvalid, "give a file that can be read, or - for standard input",
			"%v", err)
	}
	return f, path, nil
}
