package executor

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/elapsed"
)

// Clock is what the loop reads to stamp results and to measure its lease. Waiting is done with package time, so that
// testing/synctest works.
type Clock interface {
	Now() time.Time
	// Elapsed is how long the clock has existed, on the larger of boot time and monotonic time. Boot time goes on while
	// the machine is suspended and monotonic time does not; the leader, on another machine, was not suspended.
	Elapsed() time.Duration
}

type realClock struct{ elapsed.Timer }

// NewClock is the machine's clock.
func NewClock() Clock { return realClock{elapsed.New()} }

func (realClock) Now() time.Time { return time.Now() }
