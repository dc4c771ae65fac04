package node

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/node/membership"
)

// lines is a log that several nodes write.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// A join that goes well says nothing that looks as if it did not. (A machine that is busy may make raft say that a peer
// is slow.)
func TestAJoinIsQuiet(t *testing.T) {
	t.Parallel()
	var log lines
	startJoined(t, 3, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for line := range strings.Lines(log.String()) {
		usual := strings.Contains(line, "refuse") || strings.Contains(line, membership.NotJoined) ||
			strings.Contains(line, "older logs") || strings.Contains(line, "previous log")
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "part=raft") || usual &&
			!strings.Contains(line, "level=INFO") {
			t.Error(line)
		}
	}
	if !strings.Contains(log.String(), "msg=joined") {
		t.Errorf("no node joined:\n%s", log.String())
	}
}
