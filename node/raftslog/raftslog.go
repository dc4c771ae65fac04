// Package raftslog hands the log lines of raft, which come by hclog, to slog: what is routine is no warning, and what
// it says about one peer several times a second is written once a minute.
package raftslog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/transport"
)

// logger is an hclog.Logger. What raft calls info is news only for debugging raft.
type logger struct {
	to      *slog.Logger
	args    []any
	name    string
	repeats *repeats
}

// New hands the lines of raft to a logger, as those of its part "raft".
func New(to *slog.Logger) hclog.Logger {
	return &logger{to: to.With("part", "raft"), repeats: &repeats{seen: map[string]*repeat{}}}
}

// repeatAfter is how often one message is logged.
const repeatAfter = time.Minute

// repeats keeps raft from saying the same thing about the same peer several times a second, which it does for as long
// as a node is away, or for ever on one that was removed.
type repeats struct {
	mu   sync.Mutex
	seen map[string]*repeat
}

type repeat struct {
	said  time.Time
	times int // it was not said since
}

// again says whether a line is to be written now, and how often it was not since the last time.
func (e *repeats) again(msg string, args []any, now time.Time) (times int, ok bool) {
	key := msg
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "target", "server-id", "from":
			key += fmt.Sprint(" ", args[i+1])
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.seen[key]
	if x == nil {
		if len(e.seen) > 256 { // made-up names must not fill the memory
			clear(e.seen)
		}
		e.seen[key] = &repeat{said: now}
		return 0, true
	}
	if now.Sub(x.said) < repeatAfter {
		x.times++
		return 0, false
	}
	times, x.said, x.times = x.times, now, 0
	return times, true
}

func slogLevel(l hclog.Level) slog.Level {
	switch l {
	case hclog.Error:
		return slog.LevelError
	case hclog.Warn:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (l *logger) enabled(v hclog.Level) bool {
	return l.to.Enabled(context.Background(), slogLevel(v))
}

// The lines that raft calls warnings or errors although nothing is wrong: an election at every start of a cluster of
// one (who leads in the end is said elsewhere), and a follower that has to be sent older entries, as every new one has.
const (
	electionMsg = "heartbeat timeout reached, starting election"
	olderMsg    = "appendEntries rejected, sending older logs"
	previousMsg = "failed to get previous log"
)

// routine says that a line is no reason to worry, or that another line says it: a refusal is logged where it is known
// what it means.
func routine(msg string, args []any) bool {
	if msg == electionMsg || msg == olderMsg {
		return true
	}
	for _, a := range args {
		err, ok := a.(error)
		if ok && (errors.As(err, new(*transport.RefusedError)) || msg == previousMsg &&
			errors.Is(err, raft.ErrLogNotFound)) {
			return true
		}
	}
	return false
}

// joins says that a line is about a node that is about to join: the leader writes to it before the answer to its
// request has arrived. That is no reason to worry unless it stays so until the line is due again.
func joins(args []any) bool {
	return slices.ContainsFunc(args, func(a any) bool {
		err, ok := a.(error)
		return ok && errors.Is(err, keys.ErrJoining)
	})
}

func (l *logger) Log(level hclog.Level, msg string, args ...any) {
	v := slogLevel(level)
	if v >= slog.LevelWarn && routine(msg, args) {
		v = slog.LevelDebug
	}
	if !l.to.Enabled(context.Background(), v) {
		return
	}
	if v >= slog.LevelWarn {
		times, ok := l.repeats.again(msg, args, time.Now())
		if !ok || times == 0 && joins(args) {
			return
		}
		if times > 0 {
			args = append(slices.Clone(args), "repeated", times)
		}
	}
	for i, a := range args {
		if i%2 == 0 && slices.Contains([]any{slog.TimeKey, slog.LevelKey, slog.MessageKey, "event"}, a) {
			args[i] = fmt.Sprint("raft_", a) // a line has its own, and a key twice is no JSON
		}
		if f, ok := a.(hclog.Format); ok && len(f) > 0 { // hclog.Fmt("%+v", x)
			args[i] = f[len(f)-1]
		}
	}
	l.to.Log(context.Background(), v, msg, args...)
}

func (l *logger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *logger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *logger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *logger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *logger) IsTrace() bool { return l.enabled(hclog.Trace) }
func (l *logger) IsDebug() bool { return l.enabled(hclog.Debug) }
func (l *logger) IsInfo() bool  { return l.enabled(hclog.Info) }
func (l *logger) IsWarn() bool  { return l.enabled(hclog.Warn) }
func (l *logger) IsError() bool { return l.enabled(hclog.Error) }

func (l *logger) ImpliedArgs() []any { return l.args }

func (l *logger) With(args ...any) hclog.Logger {
	return &logger{to: l.to.With(args...), args: append(append([]any(nil), l.args...), args...), name: l.name,
		repeats: l.repeats}
}

func (l *logger) Name() string { return l.name }

func (l *logger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l *logger) ResetNamed(name string) hclog.Logger {
	return &logger{to: l.to, args: l.args, name: name, repeats: l.repeats}
}

func (l *logger) SetLevel(hclog.Level) {}

func (l *logger) GetLevel() hclog.Level {
	for _, v := range []hclog.Level{hclog.Debug, hclog.Warn} {
		if l.enabled(v) {
			return v
		}
	}
	return hclog.Error
}

func (l *logger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.to.Handler(), slog.LevelDebug)
}

func (l *logger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(o).Writer()
}
