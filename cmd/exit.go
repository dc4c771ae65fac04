package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

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
	// 70 is that of a node that ended because its storage failed: package node.
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
	case job.CodeInvalid, job.CodeUnknownField, job.CodeMalformed, job.CodeTooLarge, job.CodeMethodNotAllowed,
		job.CodeUnsupportedMedia:
		return exitUsage
	case job.CodeNotFound, job.CodeUnknownQueue:
		return exitNotFound
	case job.CodeDuplicateName, job.CodeVersionConflict, job.CodeOverlap, job.CodeState, job.CodeKeyReused,
		job.CodeStale, job.CodePrecondition, job.CodeSessionUnknown, job.CodeWorkerNameInUse, job.CodeWorkerForked:
		return exitConflict
	case job.CodeNotLeader, job.CodeNoLeader, job.CodeNotReady, job.CodeOutcomeUnknown, job.CodeUnavailable,
		job.CodeTooManyRequests, job.CodeStorageFull, job.CodeDiskLow:
		return exitUnavailable
	}
	return exitFailure
}

// failure is an error as --json says it.
type failure struct {
	job.Error
	Where    string `json:"where,omitempty"` // for instance the file and the line
	ExitCode int    `json:"exit_code"`
}

// wantsJSON also knows when the command line could not be read as far as the flag.
func (a *app) wantsJSON() bool {
	if a.json {
		return true
	}
	for _, arg := range a.args {
		switch arg {
		case "--json", "--json=true":
			return !a.parsed
		case "--":
			return false
		}
	}
	return false
}

// report says what went wrong and how to get out of it, as text or as one line of JSON.
func (a *app) report(w io.Writer, err error) int {
	switch {
	case err != nil && a.logsJSON():
		return reportInLog(w, err)
	case err == nil || !a.wantsJSON():
		return report(w, err)
	}
	f := failure{ExitCode: exitCode(err)}
	var e *job.Error
	var bad badUsage
	switch {
	case errors.Is(err, context.Canceled):
		f.Error = job.Error{Code: "interrupted", Message: "interrupted"}
	case errors.As(err, &e):
		f.Error = *e
		f.Remedy = asCommands(e.Remedy)
		f.Where = strings.TrimSuffix(where(err, e), ": ")
	case errors.As(err, &bad):
		f.Error = job.Error{Code: job.CodeInvalid, Message: err.Error(),
			Remedy: "`" + bad.cmd.CommandPath() + " --help` says more"}
	default:
		f.Error = job.Error{Code: job.CodeInternal, Message: err.Error()}
	}
	_ = printJSON(w, f) //nolint:errcheck // there is no other place to report it
	return f.ExitCode
}

// where is what was wrapped around an error: for instance in which line of a file it is.
func where(err error, e *job.Error) string {
	if full := err.Error(); len(full) > len(e.Error()) {
		return full[:len(full)-len(e.Error())]
	}
	return ""
}

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
	plain := *e
	plain.Remedy = ""
	fmt.Fprintf(w, "error: %s%s\n", where(err, e), plain.Error())
	if e.Remedy != "" {
		fmt.Fprintf(w, "hint: %s\n", asCommands(e.Remedy))
	}
	return code
}

// A node's remedies speak of the API, because that is what it was asked through. Who typed a command is better told a
// command.
var (
	apiPhrases = strings.NewReplacer(
		"GET /api/v1/jobs/{job}/runs lists", "`carillon runs JOB` lists",
		"GET /api/v1/jobs lists", "`carillon jobs` lists",
		"GET /api/v1/runs lists", "`carillon runs` lists",
		"declare it with PUT /api/v1/queues/NAME", "declare it with `carillon queues set NAME --concurrency N`",
		"GET /api/v1/calendars lists", "`carillon calendars` lists",
		"GET /api/v1/dead lists", "`carillon dead` lists",
		"GET /api/v1/status lists", "`carillon cluster members` lists",
		"the same Idempotency-Key", "the same --idempotency-key",
		"with Idempotency-Key ", "with --idempotency-key ",
		"use :run", "use `carillon jobs run`",
		"raise max", "raise --max",
		", or read with ?stale=true", "",
	)
	putCalendar = regexp.MustCompile(`PUT /api/v1/calendars/\S*`)
)

func asCommands(remedy string) string {
	return putCalendar.ReplaceAllString(apiPhrases.Replace(remedy), "`carillon calendars set`")
}
