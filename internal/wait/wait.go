// Package wait has the small waits that many packages need.
package wait

import (
	"context"
	"time"
)

// For waits for d. It says false if ctx ended first.
func For(ctx context.Context, d time.Duration) bool { return !Within(ctx, nil, d) }

// Within waits for c, or the end of ctx. It says false if neither came within d.
func Within(ctx context.Context, c <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		// Not only faster: in a bubble of testing/synctest, a timer that is due when a select meets it crashes the race
		// detector of Go 1.26 (such timers share bubble.timers.raceCtx without a lock).
		return ctx.Err() != nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return true
	case <-t.C:
		return false
	}
}

// Wake wakes the goroutine that waits for c, a latch of size one, unless it has been woken already.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Closed says whether c is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
