package raftslog

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/transport"
)

// TestRaftRepeatsItselfOnceAMinute: the same line about the same peer, whatever else is in it.
func TestRaftRepeatsItselfOnceAMinute(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := New(slog.New(slog.NewTextHandler(&out, nil)))
	for i := range 100 {
		l.Error("failed to heartbeat to", "peer", "h:1", "backoff time", time.Duration(i), "error", i)
		l.With("x", 1).Error("failed to heartbeat to", "peer", "h:2", "error", i)
		l.Warn("something else")
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d lines: %s", n, out.String())
	}
	e := l.(*logger).repeats
	later := time.Now().Add(repeatAfter + time.Second)
	if times, ok := e.again("failed to heartbeat to", []any{"peer", "h:1"}, later); !ok || times != 99 {
		t.Errorf("%d %v", times, ok)
	}
	if _, ok := e.again("failed to heartbeat to", []any{"peer", "h:1"}, later.Add(time.Second)); ok {
		t.Error("again after a second")
	}
}

// TestRaftIsQuietWhenNothingIsWrong: what every join brings with it is no warning; the same lines with another error
// are.
func TestRaftIsQuietWhenNothingIsWrong(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("dial: %w", &transport.RefusedError{ByPeer: true, Reason: membership.NotJoined})
	for _, c := range []struct {
		loud bool
		msg  string
		err  error
	}{
		{false, electionMsg, nil},
		{false, olderMsg, nil},
		{false, previousMsg, raft.ErrLogNotFound},
		{false, "failed to appendEntries to", refused},
		{false, "failed to heartbeat to", refused},
		{false, "failed to appendEntries to", fmt.Errorf("dial: %w", keys.ErrJoining)},
		{true, previousMsg, os.ErrClosed},
		{true, "failed to appendEntries to", os.ErrDeadlineExceeded},
		{true, "failed to get log", raft.ErrLogNotFound},
	} {
		var out bytes.Buffer
		New(slog.New(slog.NewTextHandler(&out, nil))).Error(c.msg, "peer", "h:1", "error", c.err)
		if loud := out.Len() > 0; loud != c.loud {
			t.Errorf("%s, %v: %s", c.msg, c.err, out.String())
		}
	}
}

// Raft has attributes called as what every line begins with. A line of JSON has each key once.
func TestRaftKeysAreNotTheLines(t *testing.T) {
	var out bytes.Buffer
	l := New(slog.New(slog.NewJSONHandler(&out, nil)))
	l.Warn("failed to contact", "server-id", "n1", "time", 7, "msg", "x", "level", 2, "event", "y")
	for _, key := range []string{"time", "msg", "level", "event"} {
		if n := strings.Count(out.String(), `"`+key+`":`); n > 1 || key == "event" && n > 0 {
			t.Errorf("%d times %s: %s", n, key, &out)
		}
	}
	if !strings.Contains(out.String(), `"raft_time":7`) {
		t.Errorf("logged %s", &out)
	}
}
