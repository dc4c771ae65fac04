package node

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Each run that becomes a dead letter is one line of the leader's log.
func TestDeadLettersAreLogged(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	n, tg := start(t, t.TempDir(), func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log,
			nil))
	}), newTarget(t)
	tg.set(500)
	n.create(tg.spec("d", "@manual", "overlap", "allow", "retry",
		map[string]any{"max_retries": 1, "backoff": "immediate"}))
	for range 3 {
		ok[job.Run](n, "POST", "/api/v1/jobs/d:run", nil)
	}
	n.eventually("three are dead", func() bool {
		return len(ok[wire.DeadPage](n, "GET", "/api/v1/dead",
			nil).Dead) == 3
	})
	n.eventually("three lines say so", func() bool {
		return strings.Count(log.String(),
			`level=WARN msg="dead letter"`) == 3
	})
	for _, d := range ok[wire.DeadPage](n, "GET", "/api/v1/dead", nil).Dead {
		if !strings.Contains(log.String(), "job=d job_id="+d.JobID.String()+" run="+d.RunID) {
			t.Errorf("%s is not in the log:\n%s", d.RunID, log.String())
		}
	}
	if !strings.Contains(log.String(), "reason=retries_exhausted") || !strings.Contains(log.String(), "500") {
		t.Error(log.String())
	}
}
