package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestRaftRepeatsItselfOnceAMinute: the same line about the same peer, whatever else is in it.
func TestRaftRepeatsItselfOnceAMinute(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := newRaftLogger(slog.New(slog.NewTextHandler(&out, nil)))
	for i := range 100 {
		l.Error("failed to heartbeat to", "peer", "h:1", "backoff time", time.Duration(i), "error", i)
		l.With("x", 1).Error("failed to heartbeat to", "peer", "h:2", "error", i)
		l.Warn("something else")
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d lines: %s", n, out.String())
	}
	e := l.(*raftLogger).echo
	later := time.Now().Add(logAgain + time.Second)
	if times, ok := e.again("failed to heartbeat to", []any{"peer", "h:1"}, later); !ok || times != 99 {
		t.Errorf("%d %v", times, ok)
	}
	if _, ok := e.again("failed to heartbeat to", []any{"peer", "h:1"}, later.Add(time.Second)); ok {
		t.Error("again after a second")
	}
}
