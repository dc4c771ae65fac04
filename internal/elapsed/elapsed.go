// Package elapsed measures time that goes on while the machine is suspended. A worker's lease is counted on it: its
// leader, on another machine, was not suspended.
package elapsed

import "time"

// Timer says how long it has existed, on the larger of boot time, which goes on during a suspension, and monotonic
// time.
type Timer struct {
	start time.Time
	boot  time.Duration
}

// New starts a timer.
func New() Timer { return Timer{start: time.Now(), boot: bootTime()} }

// Elapsed is the time since New.
func (t Timer) Elapsed() time.Duration { return max(time.Since(t.start), bootTime()-t.boot) }
