package executor

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

// held is one assignment in the worker's set. It is queued, then running, then has a result; a queued one that is canceled or
// returned skips the middle. All fields but a are guarded by Worker.mu.
type held struct {
	a        job.Assignment
	state    heldState
	started  job.Instant
	stop     context.CancelCauseFunc // while running
	canceled bool                    // the leader asked for its end, and was heard
	result   job.Result
	live     *tailBuffer // what it writes, if its runner shows that
	watched  bool        // its output is being sent to the leader
}

type heldState uint8

const (
	queued heldState = iota
	running
	done
)

// receive takes a poll's answer and says whether there was news in it. One that comes after its session ended is discarded: the
// leader sends again what was in it.
func (w *Worker) receive(s *session, reply job.PollReply) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != s && !mutant.On(mutant.LowerTerm) {
		return false
	}
	for _, a := range reply.Assignments {
		news = w.takeLocked(s, a) || news
	}
	news = w.cancelLocked(reply.Cancel) || news
	w.watchLocked(s, reply.Watch)
	w.startLocked() // last, so that what is canceled in the same breath does not start
	return news
}

// takeLocked puts an assignment into the set, unless it is there or was.
func (w *Worker) takeLocked(s *session, a job.Assignment) bool {
	if !s.number(a.Number) {
		return false // sent again before our ack reached the leader
	}
	if w.set[a.Fence] != nil {
		return true // ours already, from before we moved to this leader
	}
	h := &held{a: a}
	w.set[a.Fence] = h
	switch {
	case a.Term < s.ref.Term && !mutant.On(mutant.LowerTerm):
		// Sent by a deposed leader through this session. It is certain that we did not start it, so handing it back
		// is right whatever happened to the claim.
		w.log.Warn("refused an assignment of an older term", "run", a.Run, "term", a.Term, "session_term", s.ref.Term)
		w.endLocked(h, job.Result{Outcome: job.OutcomeReturned, Error: "refused: an older term"})
	case w.draining:
		w.endLocked(h, job.Result{Outcome: job.OutcomeReturned})
	case w.o.Runners[a.Type] == nil:
		w.endLocked(h, job.Result{Outcome: job.OutcomeFailed, Error: fmt.Sprintf("this worker cannot run jobs of type %q", a.Type)})
	default:
		w.queue = append(w.queue, h)
	}
	return true
}

// cancelLocked stops what the leader no longer wants, and says whether that was news. A fence that is not in the set is none of our business: it was
// acknowledged, or its assignment is still on the way and the leader will say it again.
func (w *Worker) cancelLocked(fences []uint64) (news bool) {
	for _, f := range fences {
		h := w.set[f]
		if h == nil || h.canceled || h.state == done {
			continue
		}
		h.canceled = true
		if h.state == queued {
			w.endLocked(h, job.Result{Outcome: job.OutcomeCanceled, Error: "canceled before it started"})
		} else {
			h.stop(ErrCanceled)
		}
		news = true
	}
	if news {
		kick(w.beatWake)
	}
	return news
}

// startLocked starts queued assignments on free slots, as far as the session and the lease allow.
func (w *Worker) startLocked() {
	for w.running < w.o.Slots && w.session != nil {
		h := w.popLocked()
		if h == nil {
			return
		}
		// Immediately before each start: the machine may have been suspended since the last one.
		if !w.leaseHoldsLocked() {
			w.queue = append(w.queue, h)
			w.loseLocked()
			return
		}
		ctx, stop := context.WithCancelCause(w.base)
		h.state, h.stop, h.started = running, stop, job.At(w.clock.Now())
		w.running++
		w.wg.Go(func() { w.attempt(ctx, h) })
	}
}

func (w *Worker) popLocked() *held {
	for len(w.queue) > 0 {
		h := w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		if h.state == queued {
			return h
		}
	}
	return nil
}

// attempt carries out one attempt and puts its result in line.
func (w *Worker) attempt(ctx context.Context, h *held) {
	timeout := time.Duration(h.a.Timeout)
	if timeout <= 0 {
		timeout = time.Duration(job.DefaultTimeout)
	}
	ctx = context.WithValue(ctx, liveKey{}, func(b *tailBuffer) {
		w.mu.Lock()
		h.live = b
		w.mu.Unlock()
	})
	ctx, release := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer h.stop(nil)
	defer release()

	// Deferred, because a runner that panics or ends its goroutine is a failed attempt and no more.
	r := job.Result{Outcome: job.OutcomeFailed, Error: "the runner ended its goroutine"}
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("a runner panicked", "run", h.a.Run, "type", h.a.Type, "panic", p, "stack", string(debug.Stack()))
			r = job.Result{Outcome: job.OutcomeFailed, Error: fmt.Sprintf("panic: %v", p)}
		}
		w.finish(h, shape(ctx, r, timeout))
	}()
	r = w.o.Runners[h.a.Type].Run(ctx, h.a)
}

func (w *Worker) finish(h *held, r job.Result) {
	r.Run, r.Fence, r.StartedAt, r.FinishedAt = h.a.Run, h.a.Fence, h.started, job.At(w.clock.Now())
	if w.o.OnAttempt != nil {
		w.o.OnAttempt(h.a, r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	w.endLocked(h, r)
	w.startLocked()
}

// endLocked gives an assignment its result. It stays in the set until the leader acknowledged that.
func (w *Worker) endLocked(h *held, r job.Result) {
	r.Run, r.Fence = h.a.Run, h.a.Fence
	if r.FinishedAt == 0 {
		r.FinishedAt = job.At(w.clock.Now())
	}
	h.state, h.result = done, r
	w.pending = append(w.pending, h)
	kick(w.reportWake)
	kick(w.drainWake)
}

// returnQueueLocked hands back everything that was not started.
func (w *Worker) returnQueueLocked() {
	for h := w.popLocked(); h != nil; h = w.popLocked() {
		w.endLocked(h, job.Result{Outcome: job.OutcomeReturned})
	}
	w.queue = nil
}

func (w *Worker) stopAllLocked(cause error) {
	for _, h := range w.set {
		if h.state == running {
			h.stop(cause)
		}
	}
}

func (w *Worker) freeLocked() int {
	if w.draining {
		return 0
	}
	return max(0, w.o.Slots+w.o.Prefetch-len(w.set))
}

func (w *Worker) heldLocked() []job.Held {
	out := make([]job.Held, 0, len(w.set))
	for _, h := range w.set {
		out = append(out, job.Held{Run: h.a.Run, Fence: h.a.Fence, StartedAt: h.started})
	}
	return out
}

// batchLocked is the next results to report.
func (w *Worker) batchLocked() []job.Result {
	var out []job.Result
	size := 0
	for _, h := range w.pending {
		size += resultOverhead + len(h.result.Error) + len(h.result.Output)
		if len(out) == maxReportResults || (len(out) > 0 && size > maxReportBytes) {
			break
		}
		out = append(out, h.result)
	}
	return out
}

// acknowledge forgets what the leader committed or refused, and says how many that were. Of the first sent results those that it did
// not name go to the end of the line, so that one which is never acknowledged cannot hold up the others.
func (w *Worker) acknowledge(sent int, acks []job.Ack) int {
	named := make(map[uint64]bool, len(acks))
	for _, a := range acks {
		named[a.Fence] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	again := w.pending[:0:0]
	for _, h := range w.pending[:sent] {
		if named[h.a.Fence] {
			delete(w.set, h.a.Fence)
			n++
		} else {
			again = append(again, h)
		}
	}
	clear(w.pending[:sent])
	w.pending = append(w.pending[sent:], again...)
	if n > 0 {
		if s := w.session; s != nil && s.full && s.stopPoll != nil && w.freeLocked() > 0 {
			s.stopPoll()
		}
		kick(w.pollWake)
		kick(w.drainWake)
	}
	return n
}

func (w *Worker) leaseHoldsLocked() bool { return w.leased && w.clock.Elapsed() < w.leaseEnd }

// loseLocked acts on the end of the lease: the leader may give our claims to others. What runs is stopped. What was not started
// must not start under this claim any more, even if the next registration comes in a moment, so it is returned; should the leader
// have moved on, it refuses that by the fence.
func (w *Worker) loseLocked() {
	w.leased = false
	w.stopAllLocked(ErrLeaseLost)
	w.returnQueueLocked()
	w.dropLocked(w.session, ErrLeaseLost)
}

// watchLease stops everything when the lease runs out.
func (w *Worker) watchLease(ctx context.Context) {
	for {
		w.mu.Lock()
		wait := w.o.Pace.Of(leaseTick)
		if w.leased {
			left := w.leaseEnd - w.clock.Elapsed()
			if left <= 0 {
				w.log.Warn("no heartbeat was answered for two thirds of the lease; stopping all attempts", "running", w.running)
				w.loseLocked()
			} else {
				wait = min(left, wait)
			}
		}
		w.mu.Unlock()
		if !sleep(ctx, wait) {
			return
		}
	}
}
