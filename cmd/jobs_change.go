package cmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) jobsEditCmd() *cobra.Command {
	var file string
	c := a.jobCmd("edit", "Edit a job in $EDITOR, or replace it by a file", func(cmd *cobra.Command, ref string) error {
		if file != "" {
			return a.editFromFile(cmd, ref, file)
		}
		return a.editInEditor(cmd, ref)
	})
	c.Long = `Edit a job as YAML in $VISUAL or $EDITOR. The text contains the job's version: if someone else edits the job first, your edit
is refused. What you typed is never lost: the message says where it is kept.`
	c.Flags().StringVar(&file, "file", "",
		"read the new text from this file (- for standard input) instead of opening an editor")
	return c
}

func (a *app) editInEditor(cmd *cobra.Command, ref string) error {
	j, err := a.client().GetJob(cmd.Context(), ref)
	if err != nil {
		return err
	}
	text, err := output.SpecYAML(j.Spec)
	if err != nil {
		return err
	}
	head := fmt.Sprintf(
		"# Job %s. Save to apply, leave unchanged to cancel.\nversion: %d # the edit is refused if the job has "+
			"changed meanwhile\n",
		output.NameAndID(j.Name, j.ID), j.Version)
	before := append([]byte(head), text...)
	f, err := os.CreateTemp("", "carillon-edit-*.yaml")
	if err != nil {
		return err
	}
	path := f.Name()
	_, err = f.Write(before)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return err
	}
	if err := a.runEditor(cmd, path); err != nil {
		os.Remove(path)
		return err
	}
	after, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if bytes.Equal(bytes.TrimSpace(after), bytes.TrimSpace(before)) || len(bytes.TrimSpace(after)) == 0 {
		os.Remove(path)
		return a.result(cmd, struct{}{}, func(p *printer) { p.Printf("nothing changed\n") })
	}
	// By id: the edit may be a new name.
	if err := a.editFromFile(cmd, j.ID.String(), path); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "your text is kept in %s; correct it and run: "+
			"%s jobs edit %s --file %s%s\n", path, output.Program(), ref, path, a.spaces.again())
		return err
	}
	os.Remove(path)
	return nil
}

func (a *app) runEditor(cmd *cobra.Command, path string) error {
	editor := cmp.Or(a.env("VISUAL"), a.env("EDITOR"), "vi")
	// Through a shell, because EDITOR may have arguments ("code --wait").
	run := exec.CommandContext(cmd.Context(), "/bin/sh", "-c", editor+` "$1"`, "sh", path)
	run.Stdin, run.Stdout = cmd.InOrStdin(), terminal.Raw(cmd.OutOrStdout())
	run.Stderr = terminal.Raw(cmd.ErrOrStderr())
	if err := run.Run(); err != nil {
		return job.Errorf(job.CodeInternal, "set EDITOR, or use --file", "the editor %q failed: %v",
			strings.TrimSpace(editor), err)
	}
	return nil
}

// editFromFile replaces a job by a text of this form. A version in it must still be the job's.
func (a *app) editFromFile(cmd *cobra.Command, ref, path string) error {
	var j job.Job
	doc, err := a.readOne(cmd, path, "keep one document", ", and a job is one", &j)
	if err != nil {
		return err
	}
	return doc.At(a.changeJob(cmd, "updated", func(c *client.Client, ctx context.Context) (job.Job, error) {
		return c.UpdateJob(ctx, ref, j.Spec, j.Version)
	}))
}

// jobAction is a command that changes one job in one way.
func (a *app) jobAction(name, short, done string,
	call func(*client.Client, context.Context, string) (job.Job, error)) *cobra.Command {
	return a.jobCmd(name, short, func(cmd *cobra.Command, ref string) error {
		return a.changeJob(cmd, done,
			func(c *client.Client, ctx context.Context) (job.Job, error) { return call(c, ctx, ref) })
	})
}

// changeJob makes a call that answers with the job and says what was done to it.
func (a *app) changeJob(cmd *cobra.Command, done string,
	call func(*client.Client, context.Context) (job.Job, error)) error {
	return ask(a, cmd, call, func(p *printer, j job.Job) {
		next := nextRun(p, j)
		if next == ", paused" {
			next = ""
		}
		p.Printf("%s %s%s\n", done, output.NameAndID(j.Name, j.ID), next)
	})
}

func (a *app) jobsRunCmd() *cobra.Command {
	return a.jobCmd("run", "Run a job now, in addition to its schedule", func(cmd *cobra.Command, ref string) error {
		return ask(a, cmd, func(c *client.Client, ctx context.Context) (job.Run, error) { return c.RunJob(ctx, ref) },
			func(p *printer, r job.Run) {
				why := ""
				if r.WaitReason != "" {
					why = " (" + output.Line(r.WaitReason) + ")"
				}
				p.Printf("run %s is %s%s; see %s runs get %s\n", r.RunID, r.Status, why, output.Program(), r.RunID)
			})
	})
}

func (a *app) jobsCancelCmd() *cobra.Command {
	return a.jobCmd("cancel", "Cancel every open run of a job; its schedule continues",
		func(cmd *cobra.Command, ref string) error {
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (int, error) {
				return c.CancelJob(ctx, ref)
			},
				func(p *printer, n int) { p.Printf("canceled %s of %s\n", plural(n, "open run"), ref) })
		})
}

func (a *app) jobsDeleteCmd() *cobra.Command {
	var version uint64
	c := a.jobCmd("delete", "Delete a job; its open runs are canceled", func(cmd *cobra.Command, ref string) error {
		return a.show(cmd, func(ctx context.Context, c *client.Client) error { return c.DeleteJob(ctx, ref, version) },
			func(p *printer) { p.Printf("deleted %s\n", ref) })
	})
	c.Aliases = []string{"rm"}
	c.Flags().Uint64Var(&version, "version", 0, "only if the job is at this version")
	return c
}

func (a *app) jobsBackfillCmd() *cobra.Command {
	var b client.BackfillRequest
	var from, to string
	c := a.jobCmd("backfill", "Run a job for the occurrences of a past interval",
		func(cmd *cobra.Command, ref string) error {
			if from == "" || to == "" {
				return usage("give --from and --to; both ends are included", "a backfill needs an interval")
			}
			err := a.instants(a.loc, values.Before, timeFlag{"--from", from, &b.From}, timeFlag{"--to", to, &b.To})
			if err != nil {
				return err
			}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.BackfillResult, error) {
				return c.Backfill(ctx, ref, b)
			}, (*printer).backfill)
		})
	c.Flags().StringVar(&from, "from", "",
		"beginning: RFC 3339, date and time in the local zone, or 2h for two hours ago")
	c.Flags().StringVar(&to, "to", "", "end")
	c.Flags().IntVar(&b.Max, "max", 0, "refuse to create more runs than this (default 100, at most 1000)")
	c.Flags().BoolVar(&b.DryRun, "dry-run", false, "only show what would run")
	c.Flags().BoolVar(&b.Force, "force", false, "repeat what already ran, with a new idempotency key")
	return c
}

func (p *printer) backfill(r client.BackfillResult) {
	done := "made"
	if r.DryRun {
		done = "would make"
	}
	p.Printf("%s %s", done, plural(len(r.Times), "run"))
	if n := len(r.Skipped); n > 0 {
		p.Printf("; %s already ran (--force repeats them)", plural(n, "occurrence"))
	}
	p.Printf("\n")
	for _, t := range r.Times {
		p.Printf("  %s\n", t)
	}
}
