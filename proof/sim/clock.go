package sim

import (
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// times is the true time of a simulation: that of the bubble, which begins in the year 2000, moved to where the seed wants to be.
type times struct {
	start time.Time
	base  time.Time
}

func (t *times) now() time.Time { return t.base.Add(time.Since(t.start)).Round(0) }

func (t *times) instant() job.Instant { return job.At(t.now()) }

// clock is that of one machine: right, unless a fault has moved it. Its monotonic side always is.
type clock struct {
	t *times

	mu     sync.Mutex
	offset time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t.now().Add(c.offset)
}

func (c *clock) Mono() time.Duration { return time.Since(c.t.start) }

// Elapsed makes it the clock of a worker.
func (c *clock) Elapsed() time.Duration { return time.Since(c.t.start) }

func (c *clock) is(offset time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset == offset
}

func (c *clock) set(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
}
