package client

import "time"

// clock is how long it has existed, on the larger of boot and monotonic time: boot time goes on while the machine is suspended, and
// the leader, on another machine, was not suspended.
type clock func() time.Duration

func newClock() clock {
	start, boot := time.Now(), bootTime()
	return func() time.Duration { return max(time.Since(start), bootTime()-boot) }
}
