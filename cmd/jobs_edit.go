package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
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
	c.Long = `Edit a job as YAML in $VISUAL or $EDITOR. The text carries the job's version: if another edit of the job comes first, yours is
refused. What you typed is never lost; when it is refused, the message says where it is kept.`
	c.Flags().StringVar(&file, "file", "", "take the new text from this file (- for standard input) instead of an editor")
	return c
}

func (a *app) editInEditor(cmd *cobra.Command, ref string) error {
	j, err := a.client().GetJob(cmd.Context(), ref)
	if err != nil {
		return err
	}
	text, err := specYAML(j.Spec)
	if err != nil {
		return err
	}
	head := fmt.Sprintf(
		"# Job %s. Save to apply, leave unchanged to cancel.\nversion: %d # refuses the edit if the job has changed meanwhile\n", nameAndID(j), j.Version)
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
		if a.json {
			return printRaw(cmd.OutOrStdout(), nil)
		}
		a.printer(cmd).printf("nothing changed\n")
		return nil
	}
	// By id: the edit may be a new name.
	if err := a.editFromFile(cmd, j.ID.String(), path); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "your text is kept in %s; correct it and run: carillon jobs edit %s --file %s\n",
			path, ref, path)
		return err
	}
	os.Remove(path)
	return nil
}

func (a *app) runEditor(cmd *cobra.Command, path string) error {
	editor := a.env("VISUAL")
	if editor == "" {
		editor = a.env("EDITOR")
	}
	if editor == "" {
		editor = "vi"
	}
	// Through a shell, because EDITOR may have arguments ("code --wait").
	run := exec.CommandContext(cmd.Context(), "/bin/sh", "-c", editor+` "$1"`, "sh", path)
	run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := run.Run(); err != nil {
		return job.Errorf(job.CodeInternal, "set EDITOR, or use --file", "the editor %q failed: %v",
			strings.TrimSpace(editor), err)
	}
	return nil
}

// editFromFile replaces a job by a text of this form. A version in it must still be the job's.
func (a *app) editFromFile(cmd *cobra.Command, ref, path string) error {
	f, name, err := a.openFile(path, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer f.Close()
	docs, err := jobfile.Read(f, name)
	if err != nil {
		return err
	}
	if len(docs) != 1 {
		return usage("keep one document", "%s has %d documents, a job is one", name, len(docs))
	}
	var j job.Job
	if err := job.DecodeStrict(docs[0].JSON, &j); err != nil {
		return docs[0].At(err)
	}
	return docs[0].At(a.changeJob(cmd, "updated", func(ctx context.Context, c *client.Client) (job.Job, error) {
		return c.UpdateJob(ctx, ref, j.Spec, j.Version)
	}))
}
