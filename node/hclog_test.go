package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/transport"
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

// TestRaftIsQuietWhenNothingIsWrong: what every join brings with it is no warning; the same lines with another error are.
func TestRaftIsQuietWhenNothingIsWrong(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("dial: %w", &transport.RefusedError{ByPeer: true, Reason: notJoined})
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
		{true, previousMsg, os.ErrClosed},
		{true, "failed to appendEntries to", os.ErrDeadlineExceeded},
		{true, "failed to get log", raft.ErrLogNotFound},
	} {
		var out bytes.Buffer
		newRaftLogger(slog.New(slog.NewTextHandler(&out, nil))).Error(c.msg, "peer", "h:1", "error", c.err)
		if loud := out.Len() > 0; loud != c.loud {
			t.Errorf("%s, %v: %s", c.msg, c.err, out.String())
		}
	}
}

// TestNotJoinedYet: the refusal that every join may begin with is logged only if it stays. Others are at once.
func TestNotJoinedYet(t *testing.T) {
	t.Parallel()
	said := 0
	m := &members{refused: map[string]entry{}, log: func(string, ...any) { said++ }}
	refuse := func(reason string, want int) {
		t.Helper()
		m.onRefused(&transport.RefusedError{Peer: transport.Hello{NodeID: "n2"}, Reason: reason})
		if said != want {
			t.Errorf("%q: said %d times, want %d", reason, said, want)
		}
	}
	pass := func(d time.Duration) {
		for k, e := range m.refused {
			m.refused[k] = entry{e.text, e.logged.Add(-d)}
		}
	}
	refuse(notJoined, 0)
	refuse(notJoined, 0)
	pass(joinGrace + time.Second)
	refuse(notJoined, 1)
	refuse(notJoined, 1)
	pass(logAgain + time.Second)
	refuse(notJoined, 2)
	pass(time.Hour) // another join
	refuse(notJoined, 2)
	refuse("it was removed", 3)
	refuse("it was removed", 3)
	refuse(notJoined, 3)
}
