package sim

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// pages collects what all processes log.
type pages struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *pages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// take is what was logged since the last time.
func (p *pages) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.text.Reset()
	return p.text.String()
}

// effects is how many requests have reached targets.
func effects(c *cluster) int {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	return len(c.rec.effects)
}

var logged = regexp.MustCompile(`(?m)^time=\S+ level=.*$`)

// TestQuietHour: while jobs run, workers poll and nothing happens to the cluster, nobody logs a line.
func TestQuietHour(t *testing.T) {
	if !long {
		t.Skip("set CARILLON_LONG=1 to run it")
	}
	t.Parallel()
	said := &pages{}
	withCluster(t, &logs{out: said, level: slog.LevelInfo}, func(t *testing.T, c *cluster) {
		time.Sleep(time.Minute) // elections, registrations
		if begun := said.take(); !logged.MatchString(begun) {
			t.Fatalf("nothing is logged at the start, so that silence proves nothing:\n%s", begun)
		}
		before := effects(c)
		time.Sleep(time.Hour)
		if lines := logged.FindAllString(said.take(), -1); len(lines) > 0 {
			t.Errorf("in an hour of good times %d lines are logged:\n%s", len(lines), strings.Join(lines, "\n"))
		}
		if ran := effects(c) - before; ran < 100 {
			t.Errorf("%d requests reached their target in an hour", ran)
		}
	})
}
