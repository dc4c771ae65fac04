package worker

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// attempt is one assignment in a worker's hands. It is taken, then running, then done; one that is canceled or returned
// before it starts skips the middle. It is held until its result is acknowledged. All but the assignment is guarded by
// Worker.mu.
type attempt struct {
	job.Assignment
	group   *group
	timeout time.Duration
	lease   time.Duration // until when it is certainly this worker's, on Clock.Elapsed
	state   state
	started job.Instant
	result  job.Result // when it is done
	stop    context.CancelCauseFunc
	lost    bool // it was stopped because its lease ended
	gone    bool // it is another's by now: nothing is reported
	// live is what it has written from an offset on, if its runner shows that.
	live    func(from int64) (offset int64, data []byte)
	watched bool // its output is being sent to the leader
}

type state uint8

const (
	taken state = iota
	running
	done
)

// lease is what the answer to a call that was sent then grants: two thirds, because the leader counts all of it, and
// from later.
func lease(sent, ttl time.Duration) time.Duration { return sent + ttl*2/3 }

// takeLocked puts an assignment among what is held, unless it is there: it was handed out twice then.
func (w *Worker) takeLocked(g *group, as job.Assignment, lease time.Duration) {
	if g.held[as.Fence] != nil {
		return
	}
	a := &attempt{Assignment: as, group: g, timeout: time.Duration(as.Timeout), lease: lease}
	if a.timeout <= 0 {
		a.timeout = time.Duration(job.DefaultTimeout)
	}
	g.held[a.Fence] = a
}

// startLocked starts what was taken. What finds no slot, because another group has it by now, is returned; so is what
// comes when the worker drains, or so late that its lease has ended: the machine may have been suspended.
func (w *Worker) startLocked(a *attempt) {
	switch {
	case a.state != taken: // it was there before, or was canceled in the same breath
	case w.draining || w.busy >= w.o.Slots || a.lease <= w.clock.Elapsed():
		w.endLocked(a, job.Result{Outcome: job.OutcomeReturned})
	default:
		ctx, stop := context.WithCancelCause(w.base)
		a.state, a.stop, a.started = running, stop, job.At(w.clock.Now())
		w.busy++
		w.attempts.Go(func() { w.attempt(ctx, a) })
	}
}

// attempt carries out one attempt and puts its result in line.
func (w *Worker) attempt(ctx context.Context, a *attempt) {
	defer a.stop(nil)
	ctx, release := context.WithTimeoutCause(ctx, a.timeout, ErrTimeout)
	defer release()
	// Deferred, because a runner that panics or ends its goroutine is a failed attempt and no more.
	r := job.Result{Outcome: job.OutcomeFailed, Error: "the attempt ended its goroutine"}
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("attempt panicked", "run", a.Run, "panic", p, "stack", string(debug.Stack()))
			r = job.Result{Outcome: job.OutcomeFailed, Error: fmt.Sprintf("panic: %v", p)}
		}
		r.StartedAt, r.FinishedAt = a.started, job.At(w.clock.Now())
		r = shape(ctx, r, a.timeout)
		if w.o.Ended != nil {
			w.o.Ended(a.Assignment, r)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy--
		w.endLocked(a, r)
	}()
	r = w.o.Do(context.WithValue(ctx, liveKey{}, a.show(w)), a.Assignment)
}

// endLocked gives an attempt that does not run its result.
func (w *Worker) endLocked(a *attempt, r job.Result) {
	if r.FinishedAt == 0 {
		r.FinishedAt = job.At(w.clock.Now())
	}
	r.Fence = a.Fence
	a.state, a.result = done, r
	if a.gone {
		delete(a.group.held, a.Fence)
	} else {
		a.group.pending = append(a.group.pending, a)
		wait.Wake(a.group.results)
	}
	w.freedLocked()
}

// stopLocked ends an attempt for a reason that the leader has.
func (w *Worker) stopLocked(a *attempt, cause error) {
	switch a.state {
	case taken:
		w.endLocked(a, job.Result{Outcome: job.OutcomeCanceled, Error: "canceled before it started"})
	case running:
		a.stop(cause) // the first cause counts
	}
}

// forgetLocked ends an attempt that is not this worker's any more. Nothing is reported of it.
func (w *Worker) forgetLocked(a *attempt) {
	a.gone, a.lost, a.lease = true, true, 0
	switch a.state {
	case running:
		a.stop(ErrLeaseLost)
	case done:
		delete(a.group.held, a.Fence)
		a.group.pending = slices.DeleteFunc(a.group.pending, func(b *attempt) bool { return a == b })
		w.freedLocked()
	}
}

// forgetAllLocked ends all attempts of a group.
func (w *Worker) forgetAllLocked(g *group) {
	for _, a := range g.held {
		w.forgetLocked(a)
	}
}

// giveUpLocked stops what runs without a lease: the leader may give it to others. It says how long the shortest of the
// other leases is.
func (w *Worker) giveUpLocked(g *group) time.Duration {
	now, left, lost := w.clock.Elapsed(), time.Duration(math.MaxInt64), 0
	for _, a := range g.held {
		switch l := a.lease - now; {
		case a.state == done:
		case l > 0:
			left = min(left, l)
		case !a.lost:
			a.lost = true
			a.stop(ErrLeaseLost)
			lost++
		}
	}
	if lost > 0 {
		g.log.Warn("no heartbeat was answered for two thirds of the lease; stopping attempts", "attempts", lost)
	}
	return left
}

// watchLeases looks at the leases until ctx ends.
func (w *Worker) watchLeases(ctx context.Context) {
	for again := w.o.Pace.Of(leaseTick); wait.For(ctx, again); {
		w.mu.Lock()
		again = w.o.Pace.Of(leaseTick)
		for _, g := range w.groups {
			again = min(again, w.giveUpLocked(g), max(g.ttl/20, time.Millisecond))
		}
		w.mu.Unlock()
	}
}
