package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
)

// The exit codes. They are documented in docs/cli.md; scripts switch on them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnavailable = 5
)

// usage is an error in how a command was called.
func usage(remedy, format string, args ...any) error {
	return job.Errorf(job.CodeInvalid, remedy, format, args...)
}

// badUsage is what cobra refuses: an unknown command or flag, a wrong number of arguments.
type badUsage struct {
	error
	cmd *cobra.Command
}

// exitCode is what a program sees of an error.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	var e *job.Error
	if !errors.As(err, &e) {
		if errors.As(err, new(badUsage)) {
			return exitUsage
		}
		return exitFailure
	}
	switch e.Code {
	case job.CodeInvalid, job.CodeUnknownField, job.CodeMalformed, job.CodeTooLarge, job.CodeMethodNotAllowed, job.CodeUnsupportedMedia:
		return exitUsage
	case job.CodeNotFound, job.CodeUnknownQueue:
		return exitNotFound
	case job.CodeDuplicateName, job.CodeVersionConflict, job.CodeOverlap, job.CodeState, job.CodeKeyReused, job.CodeStale,
		job.CodePrecondition, job.CodeSessionUnknown, job.CodeWorkerNameInUse:
		return exitConflict
	case job.CodeNotLeader, job.CodeNoLeader, job.CodeNotReady, job.CodeOutcomeUnknown, job.CodeUnavailable, job.CodeStorageFull, job.CodeDiskLow:
		return exitUnavailable
	}
	return exitFailure
}

// report says what went wrong and how to get out of it.
func report(w io.Writer, err error) int {
	code := exitCode(err)
	if err == nil {
		return code
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(w, "error: interrupted")
		return code
	}
	var e *job.Error
	if !errors.As(err, &e) {
		fmt.Fprintf(w, "error: %v\n", err)
		var bad badUsage
		if errors.As(err, &bad) {
			fmt.Fprintf(w, "usage: %s\nhint: `%s --help` says more\n", bad.cmd.UseLine(), bad.cmd.CommandPath())
		}
		return code
	}
	// What was wrapped around it says where, for instance in which line of a file.
	plain := *e
	plain.Remedy = ""
	where := ""
	if full := err.Error(); len(full) > len(e.Error()) {
		where = full[:len(full)-len(e.Error())]
	}
	fmt.Fprintf(w, "error: %s%s\n", where, plain.Error())
	if e.Remedy != "" {
		fmt.Fprintf(w, "hint: %s\n", asCommands(e.Remedy))
	}
	return code
}
