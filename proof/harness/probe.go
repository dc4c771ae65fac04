package harness

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Probe watches the machine beside a test: how late a short sleep ends and how long a small fsync takes. A time that
// was measured while the machine itself stood still says little about the product.
type Probe struct {
	mu     sync.Mutex
	stalls []stall
}

type stall struct {
	from time.Time
	took time.Duration
}

const (
	probeEvery = 50 * time.Millisecond
	probeFloor = 100 * time.Millisecond // what is shorter is not kept
)

// NewProbe watches until the test ends.
func NewProbe(tb testing.TB) *Probe {
	tb.Helper()
	f, err := os.Create(filepath.Join(tb.TempDir(), "probe"))
	if err != nil {
		tb.Fatal(err)
	}
	p := &Probe{}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer f.Close()
		block := make([]byte, 4096)
		for {
			began := time.Now()
			select {
			case <-done:
				return
			case <-time.After(probeEvery):
			}
			if _, err := f.WriteAt(block, 0); err != nil || f.Sync() != nil {
				return
			}
			if took := time.Since(began) - probeEvery; took >= probeFloor {
				p.mu.Lock()
				p.stalls = append(p.stalls, stall{began, took})
				p.mu.Unlock()
			}
		}
	})
	tb.Cleanup(func() {
		close(done)
		wg.Wait()
	})
	return p
}

// Worst is the longest stall that touches a time.
func (p *Probe) Worst(from, to time.Time) (worst time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stalls {
		if !s.from.After(to) && !s.from.Add(probeEvery+s.took).Before(from) {
			worst = max(worst, s.took)
		}
	}
	return worst
}
