package sim

import (
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// times is the true time of a simulation: that of the bubble, which begins in the year 2000, moved to where the seed
// wants to be.
type times struct {
	start time.Time
	base  time.Time
}

func (t *times) now() time.Time { return t.base.Add(time.Since(t.start)).Round(0) }

func (t *times) instant() job.Instant { return job.At(t.now()) }

// clock is that of one machine: right, unless a fault has moved it or makes it drift. Its monotonic side always is.
type clock struct {
	t *times

	mu     sync.Mutex
	offset time.Duration // at since
	rate   float64       // by how much it drifts, a second each second
	since  time.Time     // true time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.t.now()
	return now.Add(c.off(now))
}

func (c *clock) off(now time.Time) time.Duration {
	if c.rate == 0 {
		return c.offset
	}
	return c.offset + time.Duration(c.rate*float64(now.Sub(c.since)))
}

func (c *clock) Mono() time.Duration { return time.Since(c.t.start) }

// Elapsed makes it the clock of a worker.
func (c *clock) Elapsed() time.Duration { return time.Since(c.t.start) }

func (c *clock) is(offset time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rate == 0 && c.offset == offset
}

func (c *clock) set(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset, c.rate = offset, 0
}

// drift makes it go wrong slowly from now on.
func (c *clock) drift(rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.t.now()
	c.offset, c.rate, c.since = c.off(now), rate, now
}
