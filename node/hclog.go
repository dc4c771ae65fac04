package node

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

	"github.com/carillon-scheduler/carillon/transport"
)

// raftLogger hands raft's log lines to slog. What raft calls info is news only for debugging raft.
type raftLogger struct {
	to      *slog.Logger
	args    []any
	name    string
	repeats *repeats
}

func newRaftLogger(to *slog.Logger) hclog.Logger {
	return &raftLogger{to: to.With("part", "raft"), repeats: &repeats{seen: map[string]*repeat{}}}
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

func (l *raftLogger) enabled(v hclog.Level) bool {
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

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	v := slogLevel(level)
	if v >= slog.LevelWarn && routine(msg, args) {
		v = slog.LevelDebug
	}
	if !l.to.Enabled(context.Background(), v) {
		return
	}
	if v >= slog.LevelWarn {
		times, ok := l.repeats.again(msg, args, time.Now())
		if !ok {
			return
		}
		if times > 0 {
			args = append(slices.Clone(args), "repeated", times)
		}
	}
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 { // hclog.Fmt("%+v", x)
			args[i] = f[len(f)-1]
		}
	}
	l.to.Log(context.Background(), v, msg, args...)
}

func (l *raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) IsTrace() bool { return l.enabled(hclog.Trace) }
func (l *raftLogger) IsDebug() bool { return l.enabled(hclog.Debug) }
func (l *raftLogger) IsInfo() bool  { return l.enabled(hclog.Info) }
func (l *raftLogger) IsWarn() bool  { return l.enabled(hclog.Warn) }
func (l *raftLogger) IsError() bool { return l.enabled(hclog.Error) }

func (l *raftLogger) ImpliedArgs() []any { return l.args }

func (l *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{to: l.to.With(args...), args: append(append([]any(nil), l.args...), args...), name: l.name,
		repeats: l.repeats}
}

func (l *raftLogger) Name() string { return l.name }

func (l *raftLogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l *raftLogger) ResetNamed(name string) hclog.Logger {
	return &raftLogger{to: l.to, args: l.args, name: name, repeats: l.repeats}
}

func (l *raftLogger) SetLevel(hclog.Level) {}

func (l *raftLogger) GetLevel() hclog.Level {
	for _, v := range []hclog.Level{hclog.Debug, hclog.Warn} {
		if l.enabled(v) {
			return v
		}
	}
	return hclog.Error
}

func (l *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.to.Handler(), slog.LevelDebug)
}

func (l *raftLogger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(o).Writer()
}
