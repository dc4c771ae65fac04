package executor

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/mask"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// held is one assignment in the worker's set.
type held = worker.Attempt[assigned]

// assigned is what this protocol adds to it. All but the assignment is guarded by Worker.mu.
type assigned struct {
	job.Assignment
	group   *group
	live    *tailBuffer // what it writes, if its runner shows that
	watched bool        // its output is being sent to the leader
}

// keyOf names an attempt on this machine, for what is kept of it outside of the process: the group is the same in the
// run's job and in the session.
func keyOf(a job.Assignment) worker.Key {
	return worker.Key{Group: uint32(a.Run.Job.Group()), Fence: a.Fence}
}

// receive takes the answer to a poll and says whether there was news in it. One that comes after its session ended is
// discarded: the leader sends again what was in it.
func (w *Worker) receive(s *session, req job.Poll, reply job.PollReply) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.group.session != s && !mutant.On(mutant.LowerTerm) {
		return false
	}
	if req.Number != 0 {
		w.settleLocked(s.group, &req, &reply)
		news = reply.Ready > 0 && !req.Told
	}
	for _, a := range reply.Assignments {
		news = w.takeLocked(s, a) || news
	}
	news = w.cancelLocked(s, reply.Cancel) || news
	w.watchLocked(s, reply.Watch)
	w.set.StartLocked() // after that, so that what is canceled in the same breath does not start
	w.reviewLocked()
	return news
}

// takeLocked puts an assignment into the set, unless it is there or was.
func (w *Worker) takeLocked(s *session, a job.Assignment) bool {
	if !s.number(a.Number) {
		return false // sent again before our ack reached the leader
	}
	h := &held{Key: s.key(a.Fence), Timeout: time.Duration(a.Timeout), Lease: &s.group.lease,
		Work: assigned{Assignment: a, group: s.group}}
	if h.Timeout <= 0 {
		h.Timeout = time.Duration(job.DefaultTimeout)
	}
	var r job.Result
	switch {
	case w.set.Held[h.Key] != nil: // ours already, from before we moved to this leader
	case a.Term < s.ref.Term && !mutant.On(mutant.LowerTerm):
		// Sent by a deposed leader through this session. It is certain that we did not start it, so handing it back
		// is right whatever happened to the claim.
		w.log.Warn("refused an assignment from an older term", "run", a.Run, "term", a.Term, "session_term", s.ref.Term)
		r = job.Result{Outcome: job.OutcomeReturned, Error: "refused: it comes from an older term"}
	case w.o.Runners[a.Type] == nil && !w.set.Draining:
		r = failure("this worker cannot run jobs of type %q", a.Type)
	case w.severalLocked() && w.openLocked() >= w.capacity():
		// Credit that was given up for lost came back as work. Other groups may have the slot by now.
		r = job.Result{Outcome: job.OutcomeReturned, Error: "returned: the worker has no free slot"}
	}
	w.set.AddLocked(h, r)
	return true
}

// cancelLocked stops what the leader no longer wants, and says whether that was news. A fence that is not in the set is
// none of our business: it was acknowledged, or its assignment is still on the way and the leader will say it again.
func (w *Worker) cancelLocked(s *session, fences []uint64) (news bool) {
	for _, f := range fences {
		news = w.set.CancelLocked(w.set.Held[s.key(f)]) || news
	}
	if news {
		wait.Wake(s.group.beat)
	}
	return news
}

// attempt has a runner carry out one attempt.
func (w *Worker) attempt(ctx context.Context, h *held) job.Result {
	ctx = context.WithValue(ctx, liveKey{}, func(b *tailBuffer) {
		w.mu.Lock()
		h.Work.live = b
		w.mu.Unlock()
	})
	return w.o.Runners[h.Work.Type].Run(ctx, h.Work.Assignment)
}

// ended makes the result of an attempt fit for the log, and tells OnAttempt.
func (w *Worker) ended(ctx context.Context, h *held, r job.Result) job.Result {
	if m := mask.New(h.Work.Secrets...); m != nil {
		r.Error, r.Output = m.String(r.Error), m.String(r.Output)
	}
	r = shape(ctx, r, h.Timeout)
	r.Run, r.Fence = h.Work.Run, h.Key.Fence
	if w.o.OnAttempt != nil {
		w.o.OnAttempt(h.Work.Assignment, r)
	}
	return r
}

// freeLocked is what a poll of a group offers.
func (w *Worker) freeLocked(g *group) int {
	switch {
	case w.set.Draining:
		return 0
	case w.severalLocked():
		return w.creditLocked(g)
	}
	return max(0, w.capacity()-len(w.set.Held))
}

// freedLocked gives up the poll for cancels when there is capacity: the next one asks for work.
func (w *Worker) freedLocked() {
	if w.severalLocked() {
		w.reviewLocked()
		return
	}
	for _, g := range w.groups {
		wait.Wake(g.room)
		if s := g.session; s != nil && s.full && s.stopPoll != nil && w.freeLocked(g) > 0 {
			s.stopPoll()
		}
	}
}

func (w *Worker) heldLocked(g *group) []job.Held {
	open, done := w.set.CountLocked(g.number)
	out := make([]job.Held, 0, open+done)
	for _, h := range w.set.Held {
		if h.Work.group == g {
			out = append(out, job.Held{Run: h.Work.Run, Fence: h.Key.Fence, StartedAt: h.Started})
		}
	}
	return out
}

// loseLocked acts on the end of a group's lease: all that it covers is given up, and with it the session. Nothing that
// its leader was granted can start any more.
func (w *Worker) loseLocked(g *group) {
	g.lease, g.granted, g.ready = worker.Lease{}, 0, 0
	w.set.GiveUpLocked()
	w.dropLocked(g.session, ErrLeaseLost)
	w.reviewLocked()
}

// leasesLocked gives up all attempts of a group whose lease has run out.
func (w *Worker) leasesLocked() time.Duration {
	again := w.o.Pace.Of(worker.LeaseTick)
	for _, g := range w.groups {
		if g.lease == (worker.Lease{}) {
			continue
		}
		if left := g.lease.Left(w.clock.Elapsed()); left > 0 {
			again = min(again, left)
			continue
		}
		open, _ := w.set.CountLocked(g.number)
		g.log.Warn("no heartbeat was answered for two thirds of the lease; stopping all attempts", "open", open)
		w.loseLocked(g)
	}
	return again
}
