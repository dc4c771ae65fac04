package worker

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 2 * time.Second
	// flushTimeout bounds how long a drained worker goes on trying to hand in its results. What it cannot hand in the
	// leader takes back when the lease ends.
	flushTimeout = 10 * time.Second
	// CollectTimeout bounds how long a drained worker tries to learn what else it was given. It is longer than a change
	// of leaders takes: what the old one claimed for this worker and did not get to tell, only the next one knows. A
	// leader that answers that there is more on its way begins it anew.
	CollectTimeout = 3 * time.Second
	// LastPollTimeout bounds one poll of those that do that.
	LastPollTimeout = time.Second
)

// Backoff spaces out what is tried again. The zero value is ready.
type Backoff struct {
	Max  time.Duration // 0: 2 s
	next time.Duration
}

// RefusedPause is the longest delay after a refusal for want of rights: a worker asks again for some seconds only, as a
// token that was just made may not be known everywhere. MaxRefusals is how often in a row.
const (
	RefusedPause = 400 * time.Millisecond
	MaxRefusals  = 10
)

// Reset begins with short delays again.
func (b *Backoff) Reset() { b.next = 0 }

// Wait sleeps for the next delay, or until ctx ends; then it says false. Half of a delay is random: when a leader dies
// all of its workers notice together.
func (b *Backoff) Wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, backoffMin), cmp.Or(b.Max, backoffMax))
	return wait.For(ctx, b.next/2+rand.N(b.next/2+1))
}

// Reports is how a protocol hands in results.
type Reports[W any] struct {
	Most, Bytes int                  // bounds of one report
	Size        func(job.Result) int // of a result on the wire
	Pause       time.Duration        // the longest one between two tries; 0: 2 s
	// Send hands in some results and says which of them were committed or refused: those are forgotten. It logs errors.
	Send func(context.Context, []*Attempt[W]) ([]Key, error)
}

// Report hands in the results of a group until ctx ends. Only one call at a time may do that.
func (s *Set[W]) Report(ctx context.Context, group uint32, o Reports[W]) {
	b := Backoff{Max: o.Pause}
	s.o.Mu.Lock()
	l := s.lineLocked(group)
	s.o.Mu.Unlock()
	for {
		s.o.Mu.Lock()
		batch := l.batchLocked(o)
		s.o.Mu.Unlock()
		if ctx.Err() != nil { // after the look at what there is: what is returned since is not reported
			return
		}
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
			case <-l.results:
			}
			continue
		}
		keys, err := o.Send(ctx, batch)
		// An acknowledgement is true whichever session it came through, so it counts even if ctx has just ended.
		if (err == nil || len(keys) > 0) && s.acknowledge(l, len(batch), keys) > 0 {
			b.Reset()
		} else {
			b.Wait(ctx)
		}
	}
}

// batchLocked is the next results to report.
func (l *line[W]) batchLocked(o Reports[W]) (out []*Attempt[W]) {
	size := 0
	for _, a := range l.pending {
		size += o.Size(a.Result)
		if len(out) == o.Most || len(out) > 0 && size > o.Bytes {
			break
		}
		out = append(out, a)
	}
	return out
}

// acknowledge forgets what was committed or refused, and says how many that were. Of the first sent results those that
// were not named go to the end of the line, so that one which is never acknowledged cannot hold up the others.
func (s *Set[W]) acknowledge(l *line[W], sent int, keys []Key) (n int) {
	named := make(map[Key]bool, len(keys))
	for _, k := range keys {
		named[k] = true
	}
	s.o.Mu.Lock()
	defer s.o.Mu.Unlock()
	again := l.pending[:0:0]
	for _, a := range l.pending[:sent] {
		if named[a.Key] {
			delete(s.Held, a.Key)
			n++
		} else {
			again = append(again, a)
		}
	}
	clear(l.pending[:sent])
	l.pending = append(l.pending[sent:], again...)
	if n > 0 {
		s.freedLocked()
	}
	return n
}

// await waits until the condition, looked at under the lock, holds; it says false if that took too long, or once
// Killed is closed.
func (s *Set[W]) await(limit time.Duration, cond func() bool) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		s.o.Mu.Lock()
		ok := cond()
		s.o.Mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-s.changed:
		case <-t.C:
			return false
		case <-s.Killed:
			return false
		}
	}
}

// awaitAll waits until all is collected. A leader whose disk is slow says for as long as that lasts that more is on its
// way; to leave then would lose it.
func (s *Set[W]) awaitAll(until time.Time, collected func() bool) bool {
	for !s.await(CollectTimeout, collected) {
		s.o.Mu.Lock()
		expects := time.Since(s.expects) < CollectTimeout
		s.o.Mu.Unlock()
		select {
		case <-s.Killed:
			return false
		default:
			if !expects || time.Now().After(until) {
				return false
			}
		}
	}
	return true
}

// HearLocked takes the answer to a poll of a worker that drains: a leader that has more on its way says that it has to
// be asked again.
func (s *Set[W]) HearLocked(err error) {
	if err == nil || job.CodeOf(err) == job.CodeUnavailable {
		s.expects = time.Now()
	}
}

// Changed has Drain look again whether all is collected.
func (s *Set[W]) Changed() { wait.Wake(s.changed) }

// CloseLocked takes no more work, and returns what was not started.
func (s *Set[W]) CloseLocked() {
	s.Draining = true
	for _, a := range s.queue {
		if a.State == Queued {
			s.EndLocked(a, job.Result{Outcome: job.OutcomeReturned})
		}
	}
	s.queue = nil
	wait.Wake(s.Room)
}

// Drain takes no more work, waits for what runs, stops it after the timeout, and waits until all results are
// acknowledged. collected says that the worker knows all that it was given: a claim that it does not know of would stay
// with it until its lease ends, and be lost with at_most_once though it was never started. settled says that no leader
// has said anything else since.
func (s *Set[W]) Drain(timeout time.Duration, collected, settled func() bool) {
	s.o.Mu.Lock()
	s.CloseLocked()
	s.o.Mu.Unlock()
	until := time.Now().Add(timeout)
	if !s.await(timeout, func() bool { return s.Busy == 0 }) {
		s.o.Mu.Lock()
		s.o.Log.Warn("stopping attempts that did not end in time", "running", s.Busy, "after", timeout)
		for _, a := range s.Held {
			if a.State == Running {
				a.stop(s.o.Causes.Stopping)
			}
		}
		s.o.Mu.Unlock()
	}
	s.Attempts.Wait()
	all := s.awaitAll(until, collected)
	s.await(flushTimeout-CollectTimeout, func() bool { return len(s.Held) == 0 && (!all || settled()) })
}
