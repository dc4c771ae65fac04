package cmd

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/settings"
	"github.com/carillon-scheduler/carillon/job"
)

// newLogger is the log of a node or a worker.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// notice says something to the user who started a process that lasts: a line of text, or one of the log if that is
// JSON, so that everything there is.
func notice(w io.Writer, format, text, event string, attrs ...any) {
	if format == "json" {
		newLogger(w, "info", format).Info(event, attrs...)
		return
	}
	fmt.Fprintln(w, text)
}

// logStart writes which binary starts, and with which settings that are not the defaults; `carillon config show` has
// all of them. What could be a secret is hidden.
func logStart(cmd *cobra.Command, what, level, format string) {
	v := version()
	attrs := []any{"version", v.Version, "go", v.Go, "platform", v.Platform}
	if v.Commit != "" {
		attrs = append(attrs, "commit", v.Commit, "modified", v.Modified)
	}
	var config []any
	inherited := cmd.InheritedFlags()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed || f.Name == "help" || inherited.Lookup(f.Name) != nil {
			return
		}
		config = append(config, f.Name, settings.Shown(f))
	})
	newLogger(cmd.ErrOrStderr(), level, format).Info(what+" starting",
		append(attrs, slog.Group("config", config...))...)
}

// wantsJSON also knows when the command line could not be read as far as the flag.
func (a *app) wantsJSON() bool {
	return a.json || !a.parsed && output.WantsJSON(a.args)
}

// report says what went wrong and how to get out of it, as text, as one line of JSON or as one of the log.
func (a *app) report(w io.Writer, err error) int {
	w = exit.Masked(w)
	switch {
	case err != nil && a.logsJSON():
		return exit.Log(newLogger(w, "info", "json"), err)
	case err != nil && a.wantsJSON():
		return exit.JSON(w, err, a.spaces.typed())
	}
	return exit.Text(w, err, a.spaces.typed())
}

// usage is an error in how a command was called.
func usage(remedy, format string, args ...any) error {
	return job.Errorf(job.CodeInvalid, remedy, format, args...)
}

// logsJSON says that standard error is a log of JSON lines, as far as the command line tells: it may not have been
// understood.
func (a *app) logsJSON() bool {
	for i, arg := range a.args {
		if arg == "--log-format=json" || arg == "--log-format" && i+1 < len(a.args) && a.args[i+1] == "json" {
			return true
		}
	}
	return false
}
