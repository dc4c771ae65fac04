// Package exporter is what the exports have in common: where they begin, and how the next one goes on.
package exporter

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// Help says how an export goes on with an earlier one.
const Help = "The next export continues behind the lines that you have: name the file with them as " +
	"--after-file, or give the seq of the last line as --after. In a cluster with several groups --after takes the " +
	"highest seq of each group, separated by commas; an export says at its end which those are."

// After gives a command the flag for the records that one has.
func After(fl *pflag.FlagSet, usage string) func() (client.Seqs, error) {
	text := fl.String("after", "", usage)
	return func() (client.Seqs, error) {
		if *text == "" {
			return nil, nil
		}
		all, err := wire.ParseSeqs(*text)
		var e *job.Error
		if errors.As(err, &e) {
			e.Field = "--" + e.Field
		}
		return all, err
	}
}

// From is where an export begins.
type From struct {
	after func() (client.Seqs, error)
	file  string
}

// Register adds the flags.
func (e *From) Register(fl *pflag.FlagSet) {
	e.after = After(fl, "only records with a higher seq")
	fl.StringVar(&e.file, "after-file", "",
		"only records that come behind those in this file, an earlier export; if there is no such file, all")
}

// begin is behind what there is already.
func (e *From) begin() (client.Seqs, error) {
	all, err := e.after()
	if err != nil || e.file == "" {
		return all, err
	}
	if all != nil {
		return nil, job.Errorf(job.CodeInvalid, "give one of them", "--after and --after-file are both given")
	}
	f, err := os.Open(e.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, job.Invalid("--after-file", "give a file that can be read", "%v", err)
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return all, nil
		}
		var line struct {
			Seq uint64 `json:"seq"`
		}
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return nil, job.Invalid("--after-file", "give a file that can be read", "%v", err)
		case err != nil: // what is appended would become a part of it
			return nil, job.Invalid("--after-file", "remove that line: its record is exported again",
				"line %d of %s is not complete", n, e.file)
		case json.Unmarshal(text, &line) != nil || line.Seq == 0:
			return nil, job.Invalid("--after-file", "name a file that an export wrote", "line %d of %s is not a record",
				n, e.file)
		}
		all.Add(line.Seq)
	}
}

// Lines prints the lines of an export, and says how to go on with it where the last of them does not.
func (e *From) Lines(cmd *cobra.Command,
	export func(after client.Seqs, line func(uint64, json.RawMessage) error) error) error {
	after, err := e.begin()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
	done := append(client.Seqs{}, after...)
	n := 0
	err = export(after, func(seq uint64, raw json.RawMessage) error {
		n++
		done.Add(seq)
		out.Write(raw) //nolint:errcheck // the next call has it
		return out.WriteByte('\n')
	})
	failed := out.Flush()
	switch said := cmd.ErrOrStderr(); {
	case failed != nil: // what was buffered is gone: the last line that was read is not the last that was written
		return fmt.Errorf("%w: the export is incomplete; continue behind its last complete line, with --after-file",
			failed)
	case n == 0:
	case err != nil:
		fmt.Fprintf(said, "exported up to %s; to continue, use --after %[1]s and the same other flags\n", done)
	case len(done) > 1 && e.file == "":
		fmt.Fprintf(said, "to continue later, use --after %s\n", done)
	}
	return err
}
