// Package exit is the end of a command: the code that programs see, and what is said about an error.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/job"
)

// The exit codes. They are documented in docs/cli.md; scripts switch on them.
const (
	OK          = 0
	Failure     = 1
	Usage       = 2
	NotFound    = 3
	Conflict    = 4
	Unavailable = 5
	Changes     = 6 // diff found something that apply would change
	// 70 is that of a node that ended because its storage failed: package node.
)

// ErrChanges ends a command that found what it was asked to look for. Nothing is said about it.
var ErrChanges = errors.New("something would change")

// badUsage is what cobra refuses: an unknown command or flag, a wrong number of arguments.
type badUsage struct {
	error
	cmd *cobra.Command
}

// BadUsage marks an error as one that cobra refused a command line with.
func BadUsage(err error, cmd *cobra.Command) error { return badUsage{err, cmd} }

// Code is what a program sees of an error.
func Code(err error) int {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, ErrChanges):
		return Changes
	}
	var e *job.Error
	if !errors.As(err, &e) {
		if errors.As(err, new(badUsage)) {
			return Usage
		}
		return Failure
	}
	switch e.Code {
	case job.CodeInvalid, job.CodeUnknownField, job.CodeMalformed, job.CodeTooLarge, job.CodeMethodNotAllowed,
		job.CodeUnsupportedMedia:
		return Usage
	case job.CodeNotFound, job.CodeUnknownQueue:
		return NotFound
	case job.CodeDuplicateName, job.CodeVersionConflict, job.CodeOverlap, job.CodeState, job.CodeKeyReused,
		job.CodeStale, job.CodePrecondition, job.CodeSessionUnknown, job.CodeWorkerNameInUse, job.CodeWorkerForked:
		return Conflict
	case job.CodeNotLeader, job.CodeNoLeader, job.CodeNotReady, job.CodeStopped, job.CodeOutcomeUnknown,
		job.CodeUnavailable, job.CodeTooManyRequests, job.CodeStorageFull, job.CodeDiskLow:
		return Unavailable
	}
	return Failure
}

// failure is an error as --json says it.
type failure struct {
	job.Error
	Where    string `json:"where,omitempty"` // for instance the file and the line
	ExitCode int    `json:"exit_code"`
}

// JSON says in one line of JSON what went wrong and how to get out of it. namespace is as in AsCommands.
func JSON(w io.Writer, err error, namespace string) int {
	f := failure{ExitCode: Code(err)}
	if f.ExitCode == Changes {
		return f.ExitCode
	}
	var e *job.Error
	var bad badUsage
	switch {
	case errors.Is(err, context.Canceled):
		f.Error = job.Error{Code: "interrupted", Message: "interrupted"}
	case errors.As(err, &e):
		f.Error = *e
		f.Remedy = AsCommands(e.Remedy, namespace)
		f.Where = strings.TrimSuffix(where(err, e), ": ")
	case errors.As(err, &bad):
		f.Error = job.Error{Code: job.CodeInvalid, Message: err.Error(),
			Remedy: "`" + bad.cmd.CommandPath() + " --help` says more"}
	default:
		f.Error = job.Error{Code: job.CodeInternal, Message: err.Error()}
	}
	_ = output.JSON(w, f) //nolint:errcheck // there is no other place to report it
	return f.ExitCode
}

// where is what was wrapped around an error: for instance in which line of a file it is.
func where(err error, e *job.Error) string {
	if full := err.Error(); len(full) > len(e.Error()) {
		return full[:len(full)-len(e.Error())]
	}
	return ""
}

// Masked takes tokens out of what is said about an error: one that was put into the wrong place of a file or a flag is
// quoted by those that say so.
func Masked(w io.Writer) io.Writer { return masked{w} }

type masked struct{ w io.Writer }

var tokenRE = regexp.MustCompile(`\b(c[jt]1\.)[A-Za-z0-9._-]{8,}`)

func (m masked) Write(b []byte) (int, error) {
	if _, err := m.w.Write(tokenRE.ReplaceAll(b, []byte("$1…"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Text says on standard error what went wrong and how to get out of it. namespace is as in AsCommands.
func Text(w io.Writer, err error, namespace string) int {
	code := Code(err)
	if err == nil || code == Changes {
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
		fmt.Fprintf(w, "hint: %s\n", AsCommands(e.Remedy, namespace))
	}
	return code
}

// Log is Text for a process whose standard error is a log of JSON lines.
func Log(log *slog.Logger, err error) int {
	code := Code(err)
	var e *job.Error
	switch {
	case errors.Is(err, context.Canceled):
		log.Info("interrupted", "exit_code", code)
	case errors.As(err, &e):
		plain := *e
		plain.Remedy = ""
		log.Error("command failed", "error", where(err, e)+plain.Error(), "code", string(e.Code), "remedy",
			AsCommands(e.Remedy, ""), "exit_code", code)
	default:
		log.Error("command failed", "error", err.Error(), "exit_code", code)
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
		"GET /api/v1/status names", "`carillon status` names",
		"the same Idempotency-Key", "the same --idempotency-key",
		"with Idempotency-Key ", "with --idempotency-key ",
		"choose another name, or edit that job", "choose another name; `carillon apply -f FILE` changes the job",
		"use :run", "use `carillon jobs run`",
		"raise max", "raise --max",
		", or read with ?stale=true", "",
	)
	putCalendar = regexp.MustCompile(`PUT /api/v1/calendars/\S*`)
	postVerb    = regexp.MustCompile(`POST /api/v1/(jobs|queues)/([^\s:]+):(run|resume)\b`)
	// inNamespace are the commands that take -n.
	inNamespace = regexp.MustCompile("`carillon (?:apply|calendars|dead|diff|jobs|logs|queues|runs|secret|" +
		"submit|upcoming|why)\\b[^`]*`")
)

// AsCommands is a remedy for who typed a command: with commands instead of routes, and with the namespace that was
// typed (empty: none), without which they would look elsewhere.
func AsCommands(remedy, namespace string) string {
	remedy = putCalendar.ReplaceAllString(apiPhrases.Replace(remedy), "`carillon calendars set`")
	remedy = postVerb.ReplaceAllString(remedy, "`carillon $1 $3 $2`")
	if namespace != "" {
		remedy = within(remedy, namespace)
	}
	return strings.ReplaceAll(remedy, "`carillon ", "`"+output.Program()+" ")
}

// within names the namespace in each command that takes one.
func within(remedy, namespace string) string {
	return inNamespace.ReplaceAllStringFunc(remedy, func(command string) string {
		if strings.Contains(command, " -n ") || strings.Contains(command, " -A") {
			return command
		}
		return strings.TrimSuffix(command, "`") + " -n " + namespace + "`"
	})
}
