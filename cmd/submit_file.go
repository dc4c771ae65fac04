package cmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/job"
)

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
	ctx := a.keyed(cmd.Context())
	created, exists, failed := 0, 0, 0
	var first *job.Error
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetEscapeHTML(false)
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
			return enc.Encode(r)
		}
		if r.Error != nil {
			a.report(cmd.ErrOrStderr(), place(r))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !a.json {
		p := a.printer(cmd)
		p.printf("%d created, %d already there, %d failed\n", created, exists, failed)
	}
	if failed > 0 {
		return &job.Error{Code: first.Code,
			Message: fmt.Sprintf("%d of %d jobs were not created", failed, created+exists+failed),
			Remedy:  "correct them and submit the file again: the others are left as they are"}
	}
	return nil
}

// openFile opens a file, or standard input for "-".
func (a *app) openFile(path string, stdin io.Reader) (io.ReadCloser, string, error) {
	if path == "-" {
		return io.NopCloser(stdin), "standard input", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, path, job.Errorf(job.CodeInvalid, "give a file that can be read, or - for standard input", "%v", err)
	}
	return f, path, nil
}
