package scheduler

import (
	"slices"
	"sync"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// maxFed bounds what the feed remembers between two turns of the loop. Beyond it the feed only knows that it lost something.
const maxFed = 1 << 16

// feed collects what commits changed. It is called by the goroutine that applies the log, so it never waits; what it loses is
// found by a rescan, and what it never hears of by the read of each lane's left edge.
type feed struct {
	wake chan struct{}

	mu     sync.Mutex
	marks  []store.DueMark
	jobs   []job.ID
	lost   bool // some marks are missing
	forget bool // some jobs are missing
}

func (f *feed) changed(c *store.Changes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range c.Due {
		if mutant.On(mutant.LoseEvents) {
			break
		}
		if n := len(f.marks); n > 0 && f.marks[n-1] == m {
			continue // five hundred thousand jobs of one second have one next time
		}
		if len(f.marks) == maxFed {
			f.lost = true
			break
		}
		f.marks = append(f.marks, m)
	}
	if len(f.jobs)+len(c.Jobs) > maxFed {
		f.forget = true
	} else {
		f.jobs = append(f.jobs, c.Jobs...)
	}
	if c.Reset {
		f.lost, f.forget = true, true
	}
	kick(f.wake)
}

// news is what was fed since the last take.
type news struct {
	marks        []store.DueMark
	jobs         []job.ID
	lost, forget bool
}

func (f *feed) take() news {
	f.mu.Lock()
	n := news{f.marks, f.jobs, f.lost, f.forget}
	f.marks, f.jobs, f.lost, f.forget = nil, nil, false, false
	f.mu.Unlock()
	slices.SortFunc(n.marks, func(a, b store.DueMark) int {
		if a.Lane != b.Lane {
			return int(a.Lane) - int(b.Lane)
		}
		return int(min(max(a.Ready-b.Ready, -1), 1))
	})
	n.marks = slices.Compact(n.marks)
	return n
}
