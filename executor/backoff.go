package executor

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 2 * time.Second
)

// backoff spaces out what is tried again. The zero value is ready.
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

// wait sleeps for the next delay, or until the context ends; then it says false. Half of a delay is random: when a leader dies all
// of its workers notice together.
func (b *backoff) wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, backoffMin), backoffMax)
	return sleep(ctx, b.next/2+rand.N(b.next/2+1))
}

// sleep waits, or says false if the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		// Not only faster: in a bubble, timers that are due when a select meets them crash the race detector of Go 1.26 (they share
		// bubble.timers.raceCtx without a lock).
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
