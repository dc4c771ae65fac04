// Package applier has the commands that make the jobs, calendars and queues of a cluster what files say.
package applier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/job"
)

// App is what the commands know of the process.
type App struct {
	Client  func() *client.Client
	Keyed   func(context.Context) context.Context
	Home    func(context.Context) (string, error) // the namespace of what names none
	JSON    func() bool
	Names   func() bool // only the names of what was changed are printed
	Printer func(*cobra.Command) *output.Printer
	Report  func(io.Writer, error) // says what is wrong with a document
}

// options are the flags.
type options struct {
	files     []string
	recursive bool
	dryRun    bool
	set       string
	takeOver  bool
	prune     bool
	pruneMax  int
	diff      bool // show fields before and after
}

// Apply makes the command that changes things.
func Apply(a App) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "apply -f FILE|DIR|- ...",
		Short: "Make jobs, calendars and queues match your files",
		Long: `Create what is missing, change what differs, and leave the rest as it is. Files are JSON, NDJSON or YAML with any
number of documents; kind: calendar and kind: queue are applied before jobs. Jobs are found by their names. A change is
an edit: the job keeps its id, its history and its pause. Applying the same files again changes nothing.

--set tags the jobs as members of a set, with the tag carillon-set. --prune then deletes the jobs of the set that no
file contains, in the namespaces of the files. It deletes nothing if the files contain no jobs or one was refused, and
never more than --prune-max.`,
		Example: `  carillon apply -f jobs.yaml --dry-run
  carillon apply -f jobs/ -R --set billing --prune
  carillon import crontab /etc/crontab | carillon apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return (&run{App: a, options: o, cmd: cmd}).run() },
	}
	o.register(c)
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	return c
}

// Diff makes the command that shows what Apply would do.
func Diff(a App) *cobra.Command {
	o := options{dryRun: true, diff: true}
	c := &cobra.Command{
		Use:   "diff -f FILE|DIR|- ...",
		Short: "Show what apply would change",
		Long: `Show, field by field, what apply with the same flags would change. Nothing is changed, and a token with the role viewer
is enough. The exit code is 0 if nothing would change and 6 if something would.`,
		Example: `  carillon diff -f jobs/ -R --set billing --prune`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return (&run{App: a, options: o, cmd: cmd}).run() },
	}
	o.register(c)
	return c
}

func (o *options) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringArrayVarP(&o.files, "filename", "f", nil,
		"file, directory, or - for standard input; repeatable. From a directory, only .yaml, .yml, .json, .ndjson "+
			"and .jsonl files are read")
	fl.BoolVarP(&o.recursive, "recursive", "R", false, "also read subdirectories")
	fl.StringVar(&o.set, "set", "", "tag the jobs as members of this set, with the tag "+job.SetTag)
	fl.BoolVar(&o.takeOver, "take-over", false, "move jobs that are in another set into this one")
	fl.BoolVar(&o.prune, "prune", false, "delete jobs of the set that no file contains")
	fl.IntVar(&o.pruneMax, "prune-max", 10, "refuse to delete more jobs than this")
}

func (o *options) check() error {
	switch {
	case len(o.files) == 0:
		return job.Invalid("-f", "give -f FILE, -f DIR, or -f - for standard input", "no file is given")
	case o.prune && o.set == "":
		return job.Invalid("--prune", "give --set NAME", "it deletes jobs of a set, and no set is given")
	case o.pruneMax < 0:
		return job.Invalid("--prune-max", "use 0 or more", "%d is negative", o.pruneMax)
	case o.takeOver && o.set == "":
		return job.Invalid("--take-over", "give --set NAME", "it moves jobs into a set, and no set is given")
	}
	n := 0
	for _, f := range o.files {
		if f == "-" {
			n++
		}
	}
	if n > 1 {
		return job.Invalid("-f", "give -f - once", "standard input can be read once")
	}
	return nil
}

// run is one call of a command.
type run struct {
	App
	options
	cmd *cobra.Command
	p   *output.Printer
	c   *client.Client
	ctx context.Context

	created, changed, unchanged, failed, deleted int

	first *job.Error // that a document was refused with
}

func (r *run) run() error {
	if err := r.check(); err != nil {
		return err
	}
	files, err := Files(r.files, r.recursive)
	if err != nil {
		return err
	}
	docs, err := read(files, r.cmd.InOrStdin())
	if err != nil {
		return err
	}
	if len(docs) == 0 {
		return job.Invalid("-f", "is it the right directory? -R also reads its subdirectories",
			"there are no documents in %s", strings.Join(r.files, ", "))
	}
	r.p, r.c, r.ctx = r.Printer(r.cmd), r.Client(), r.cmd.Context()
	if err := twice(docs, func() (string, error) { return r.Home(r.ctx) }); err != nil {
		return err
	}
	gone, err := r.planPrune(docs)
	if err != nil {
		return err
	}
	for _, d := range docs {
		if d.err != nil {
			r.refused(d, nil, d.err)
		}
	}
	for _, kind := range []string{kindQueue, kindCalendar} {
		for _, d := range docs {
			if d.kind != kind || d.err != nil {
				continue
			}
			if err := r.applyOther(d); err != nil {
				return err
			}
		}
	}
	if err := r.applyJobs(docs, r.dryRun, r.result); err != nil {
		return err
	}
	if err := r.pruneJobs(gone); err != nil {
		return err
	}
	return r.end(len(docs))
}

// applyJobs sends the jobs and calls fn with what became of each.
func (r *run) applyJobs(docs []*document, dryRun bool, fn func(*document, client.ApplyResult) error) error {
	o := client.ApplyOptions{DryRun: dryRun, Set: r.set, TakeOver: r.takeOver}
	var lines bytes.Buffer
	var sent []*document
	for _, d := range docs {
		switch {
		case d.err != nil:
		case d.kind == kindJob:
			lines.Write(d.line)
			sent = append(sent, d)
		case d.kind == kindCalendar && dryRun && !strings.Contains(d.name, ","):
			o.Calendars = append(o.Calendars, d.name)
		}
	}
	if len(sent) == 0 {
		return nil
	}
	// A key that was given is for these lines. A queue, a calendar or a deletion is a request of its own, which one key
	// for all would have refused; repeated, it finds that there is nothing left to do.
	return r.c.ApplyJobs(r.Keyed(r.ctx), &lines, o, func(res client.ApplyResult) error {
		if res.Line < 1 || res.Line > len(sent) {
			return fmt.Errorf("the node answered line %d of %d", res.Line, len(sent))
		}
		return fn(sent[res.Line-1], res)
	})
}

// result says what became of a job.
func (r *run) result(d *document, res client.ApplyResult) error {
	if res.Error != nil || res.Status == "error" {
		if res.Error == nil {
			res.Error = job.Errorf(job.CodeInternal, "", "the node did not say why")
		}
		r.refused(d, &res, d.at(res.Error))
		return nil
	}
	return r.done(d, res)
}

// line is what --json says of a document, or of a job that is deleted.
type line struct {
	Kind  string `json:"kind"`
	Where string `json:"where,omitempty"`
	client.ApplyResult
}

// refused counts and reports a document that cannot be applied.
func (r *run) refused(d *document, res *client.ApplyResult, err error) {
	r.failed++
	var e *job.Error
	if !errors.As(err, &e) {
		e = job.Errorf(job.CodeInvalid, "", "%v", err)
	}
	if r.first == nil {
		r.first = e
	}
	if !r.JSON() {
		r.Report(r.cmd.ErrOrStderr(), err)
		return
	}
	l := line{Kind: d.kind, Where: d.where()}
	if res != nil {
		l.ApplyResult = *res
	}
	l.Line, l.Name, l.Status, l.Error = d.Line, d.name, "error", e
	r.json(l)
}

func (r *run) json(l line) {
	if err := output.JSON(r.cmd.OutOrStdout(), l); err != nil && r.p.Err == nil {
		r.p.Err = err
	}
}

// done counts and says what was done with a document, or would be.
func (r *run) done(d *document, res client.ApplyResult) error {
	switch res.Status {
	case "created":
		r.created++
	case "changed":
		r.changed++
	default:
		r.unchanged++
	}
	switch {
	case r.JSON():
		res.Line = d.Line
		r.json(line{Kind: d.kind, Where: d.where(), ApplyResult: res})
	case res.Status == "unchanged":
	case r.Names() && !r.dryRun:
		_, err := fmt.Fprintln(r.cmd.OutOrStdout(), d.name)
		return err
	case r.diff:
		return r.showDiff(d, res)
	default:
		r.sayDone(d, res)
	}
	return r.p.Err
}

// end says how many did what.
func (r *run) end(all int) error {
	if !r.JSON() && !(r.diff && r.created+r.changed+r.deleted+r.failed == 0) {
		text := fmt.Sprintf("%d created, %d changed, %d unchanged, %d failed", r.created, r.changed, r.unchanged,
			r.failed)
		if r.prune {
			text += fmt.Sprintf(", %d deleted", r.deleted)
		}
		if r.dryRun {
			text = "would be: " + text
		}
		r.p.Printf("%s\n", text)
	}
	switch {
	case r.p.Err != nil:
		return r.p.Err
	case r.failed > 0:
		return &job.Error{Code: r.first.Code, Message: fmt.Sprintf("%d of %d documents were refused", r.failed, all),
			Remedy: "correct them and apply the files again: what is already applied is left as it is"}
	case r.diff && r.created+r.changed+r.deleted > 0:
		return exit.ErrChanges
	}
	return nil
}

// planPrune finds the jobs of the set that are in no document, before anything is changed. A dry run says of each
// document in which namespace it is. If one is refused nothing is deleted: it may be a job of the set whose name cannot
// be read.
func (r *run) planPrune(docs []*document) (gone []job.Job, err error) {
	if !r.prune {
		return nil, nil
	}
	if !slices.ContainsFunc(docs, func(d *document) bool { return d.kind == kindJob && d.name != "" }) {
		return nil, job.Invalid("--prune", "leave --prune out, or delete the jobs yourself",
			"the files contain no jobs, so every job of the set %q would be deleted; nothing was changed", r.set)
	}
	if slices.ContainsFunc(docs, func(d *document) bool { return d.err != nil }) {
		return nil, nil
	}
	kept := map[[2]string]bool{}
	var spaces []string
	refused := false
	err = r.applyJobs(docs, true, func(_ *document, res client.ApplyResult) error {
		refused = refused || res.Error != nil
		kept[[2]string{res.Namespace, res.Name}] = true
		if !slices.Contains(spaces, res.Namespace) {
			spaces = append(spaces, res.Namespace)
		}
		return nil
	})
	if err != nil || refused {
		return nil, err
	}
	for _, space := range spaces {
		q := client.JobQuery{Tags: map[string]string{job.SetTag: r.set}, Limit: 1000}
		for {
			page, err := r.c.In(space).ListJobs(r.ctx, q)
			if err != nil {
				return nil, err
			}
			for _, j := range page.Jobs {
				if j.Tags[job.SetTag] == r.set && j.Namespace == space && !kept[[2]string{space, j.Name}] {
					gone = append(gone, j)
				}
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
	}
	if len(gone) > r.pruneMax {
		var names []string
		for _, j := range gone[:min(len(gone), 5)] {
			names = append(names, output.NameAndID(j.Name, j.ID))
		}
		more := ""
		if len(gone) > len(names) {
			more = ", …"
		}
		return nil, job.Errorf(job.CodeState, fmt.Sprintf("if you want to delete them, give --prune-max %d", len(gone)),
			"no file contains %d jobs of the set %q (%s%s), and "+
				"--prune-max is %d; nothing was changed", len(gone), r.set,
			strings.Join(names, ", "), more, r.pruneMax)
	}
	return gone, nil
}

// pruneJobs deletes what planPrune found. Each must still be as it was then: another set may have taken it over.
func (r *run) pruneJobs(gone []job.Job) error {
	if r.prune && r.failed > 0 {
		if !r.JSON() {
			fmt.Fprintln(r.cmd.ErrOrStderr(), "note: nothing was deleted, because documents were refused")
		}
		return nil
	}
	for _, j := range gone {
		if !r.dryRun {
			err := r.c.In(j.Namespace).DeleteJob(r.ctx, j.ID.String(), j.Version)
			if job.CodeOf(err) == job.CodeNotFound {
				continue
			}
			if err != nil {
				return fmt.Errorf("deleting %s: %w", output.NameAndID(j.Name, j.ID), err)
			}
		}
		r.deleted++
		switch id := j.ID; {
		case r.JSON():
			l := line{Kind: kindJob}
			l.Status, l.JobID, l.Name, l.Namespace = "deleted", &id, j.Name, j.Namespace
			r.json(l)
		case r.diff:
			r.showDeleted(j)
		case r.dryRun:
			r.p.Printf("would delete %s\n", output.NameAndID(j.Name, id))
		default:
			r.p.Printf("deleted %s\n", output.NameAndID(j.Name, id))
		}
	}
	return r.p.Err
}
