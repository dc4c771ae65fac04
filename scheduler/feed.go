package scheduler

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// maxFed bounds what the feed remembers between two turns of the loop. Beyond it the feed only knows that it lost
// something.
const maxFed = 1 << 16

// feed collects what commits changed. It is called by the goroutine that applies the log, so it never waits; what it
// loses is found by a sweep over all that is due, and what it never hears of by the guard.
type feed struct {
	wake     chan struct{}
	starving *atomic.Bool // entries wait for what a commit may have freed

	// sleeps is when the loop turns at the latest, in milliseconds since 1970: what comes due after that can wait until
	// then. While the loop is awake it is beyond all times.
	sleeps atomic.Int64

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
	if f.lost || f.forget || len(c.Jobs) > 0 || f.starving.Load() || f.soon(c.Due) {
		signal(f.wake)
	}
}

// soon says whether something comes due before the loop turns anyway. Nearly every commit marks the next time of a
// recurring job, and a turn for each would double what the loop does.
func (f *feed) soon(marks []store.DueMark) bool {
	until := f.sleeps.Load()
	return slices.ContainsFunc(marks, func(m store.DueMark) bool { return m.Ready <= until })
}

// changes is what was fed since the last take.
type changes struct {
	marks        []store.DueMark
	jobs         []job.ID
	lost, forget bool
}

func (f *feed) take() changes {
	f.sleeps.Store(math.MaxInt64)
	f.mu.Lock()
	n := changes{f.marks, f.jobs, f.lost, f.forget}
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
