package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// explainRecords bounds how far back in a job's history the end of a run is looked for.
	explainRecords = 512
	// explainChunk is how many items are looked up in one view.
	explainChunk = 16
)

// PullHeartbeat extends the leases of the runs that it names.
func (s *Scheduler) PullHeartbeat(ctx context.Context, b job.PullBeat) (job.PullAnswers, error) {
	worker, _, err := caller(b.Worker, b.Session)
	if err == nil {
		err = s.confirm(ctx, s.o.TTL/confirmShare)
	}
	if err != nil {
		return job.PullAnswers{}, err
	}
	mono := s.o.Clock.Mono()
	s.mu.Lock()
	if err := s.servingLocked(); err != nil {
		s.mu.Unlock()
		return job.PullAnswers{}, err
	}
	answers, vague := s.nameAllLocked(b.Queue, worker, b.Runs, mono)
	s.mu.Unlock()
	s.explain(b.Queue.Namespace, answers, vague, nil)
	return job.PullAnswers{Lease: job.Duration(s.o.TTL), Runs: answers}, nil
}

// nameAllLocked answers for runs that a worker says it holds. vague are those that are not known here: the store may
// know why.
func (s *Scheduler) nameAllLocked(queue job.QueueKey, worker string, refs []job.PullRef,
	mono time.Duration) (answers []job.PullAnswer, vague []int) {
	for i, ref := range refs {
		a, c := s.namedLocked(queue, worker, ref)
		switch {
		case c == nil && mutant.On(mutant.PullRevive):
			a.Status, a.Why = job.PullOK, ""
		case c == nil:
			if a.Why == "" {
				vague = append(vague, i)
			}
		case c.overdue(mono):
			// Its lease is not extended any more: a worker that does not stop has what is left of it to be told.
			a.Status, a.Why = job.PullCanceling, fmt.Sprintf("the run exceeded its timeout of %s: stop it, and "+
				"report it as failed", c.timeout)
			a.TimedOut = !c.canceling // what was canceled before is recorded as that
		default:
			c.until = mono + s.leaseTime()
			if c.canceling {
				a.Status, a.Why = job.PullCanceling, "the run was canceled: stop it, and report it as failed"
			}
		}
		if c != nil {
			c.x.heard, c.x.heardAt = mono, s.o.Clock.Now()
		}
		answers = append(answers, a)
	}
	return answers, vague
}

// namedLocked finds the claim that a worker speaks of. Without one the answer is stale; it says why if that is known
// here.
func (s *Scheduler) namedLocked(queue job.QueueKey, worker string, ref job.PullRef) (job.PullAnswer, *claim) {
	a := job.PullAnswer{PullRef: ref, Status: job.PullStale}
	key, err := job.ParseRunKey(ref.RunID)
	c := s.pulled[ref.Fence]
	switch {
	case err != nil:
		a.Why = err.Error()
	case c == nil || c.run != key || c.unsent && c.assignment != nil || c.x.pull.queue.Namespace != queue.Namespace:
	case worker != "" && worker != c.x.key.worker:
		a.Why = fmt.Sprintf("the worker %q holds this run", c.x.key.worker)
	case c.x.pull.queue != queue:
		a.Why = fmt.Sprintf("the run belongs to the queue %q", c.x.pull.queue.String())
	case c.expiring:
		a.Why = "the lease of the run ended, and it is being taken back"
	default:
		a.Status = job.PullOK
		c.unsent, c.named = false, true // a caller that knows its fence was told of it
		if c.started == 0 {
			c.started = job.Instant(c.claimedAt) // delivered by an earlier leader, at a time not known here
		}
		c.x.hasIt(c)
		return a, c
	}
	return a, nil
}

func (c *claim) overdue(mono time.Duration) bool { return c.deadline > 0 && mono >= c.deadline }

// PullReport takes results in. It is answered once they are committed, item by item.
func (s *Scheduler) PullReport(ctx context.Context, r job.PullReport) (job.PullAnswers, error) {
	worker, _, err := caller(r.Worker, r.Session)
	if err != nil {
		return job.PullAnswers{}, err
	}
	call := newReportCall()
	mono := s.o.Clock.Mono()
	out := job.PullAnswers{Lease: job.Duration(s.o.TTL), Runs: make([]job.PullAnswer, len(r.Runs))}
	line := make([]*pending, len(r.Runs)) // nil: stale
	want := make([]job.Outcome, len(r.Runs))
	var vague []int
	s.mu.Lock()
	if err := s.servingLocked(); err != nil {
		s.mu.Unlock()
		return job.PullAnswers{}, err
	}
	for i := range r.Runs {
		item := &r.Runs[i]
		res := pullResult(item, r.Failed)
		want[i] = res.Outcome
		a, c := s.namedLocked(r.Queue, worker, item.PullRef)
		if c == nil && mutant.On(mutant.PullLate) && res.Outcome != job.OutcomeReturned {
			if key, err := job.ParseRunKey(item.RunID); err == nil {
				c = &claim{run: key, fence: item.Fence, x: newSession(sessionKey{worker: worker}, mono), reported: true}
				a.Status, a.Why = job.PullOK, ""
			}
		}
		out.Runs[i] = a
		if c == nil {
			if a.Why == "" {
				vague = append(vague, i)
			}
			continue
		}
		res.Run, res.StartedAt = c.run, c.started // when it ended is the stamp's to say: this clock may have jumped
		res.TimedOut = res.Outcome == job.OutcomeFailed && c.overdue(mono)
		c.until = mono + s.leaseTime()
		s.addResultLocked(c, res, call)
		line[i] = c.pending
	}
	s.awaitLocked(ctx, call)
	acks := map[uint64]bool{}
	for _, a := range call.acks {
		acks[a.Fence] = a.Stale
	}
	s.mu.Unlock()
	for i, p := range line {
		if p == nil {
			continue
		}
		stale, answered := acks[p.c.fence]
		switch a := &out.Runs[i]; {
		case !answered:
			return job.PullAnswers{}, job.Errorf(job.CodeOutcomeUnknown,
				"send them again: a result that was committed is answered with repeated: true",
				"the results may or may not have been committed")
		case stale || p.result.Outcome != want[i]: // taken back, or another result of it was faster
			a.Status = job.PullStale
			vague = append(vague, i)
		}
	}
	s.explain(r.Queue.Namespace, out.Runs, vague, want)
	return out, nil
}

func pullResult(item *job.PullResult, failed bool) job.Result {
	r := job.Result{Fence: item.Fence, Outcome: job.OutcomeSucceeded, Output: item.Output}
	if !failed {
		return r
	}
	r.Outcome, r.Error, r.Permanent, r.RetryAfter = job.OutcomeFailed, item.Error, item.Permanent, item.Delay
	if item.Unstarted {
		r.Outcome = job.OutcomeReturned
	}
	return r
}

// explain says why some answers are stale. A result that was committed before, under the same fence, is no reason to
// worry its worker: it is ok, and repeated. want is what each was reported as; nil for a heartbeat. Of runs in other
// namespaces than the caller's nothing is said.
func (s *Scheduler) explain(namespace string, answers []job.PullAnswer, vague []int, want []job.Outcome) {
	for len(vague) > 0 {
		chunk := vague[:min(explainChunk, len(vague))]
		vague = vague[len(chunk):]
		err := s.st.View(func(v *store.View) error {
			for _, i := range chunk {
				outcome := job.Outcome(0)
				if want != nil {
					outcome = want[i]
				}
				if err := explainOne(v, namespace, &answers[i], outcome); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			s.log.Error("history of a stale run not readable", "error", err)
		}
	}
	for i := range answers {
		if answers[i].Status == job.PullStale && answers[i].Why == "" {
			answers[i].Why = "no pull worker holds the run under this fence"
		}
	}
}

func explainOne(v *store.View, namespace string, a *job.PullAnswer, want job.Outcome) error {
	key, err := job.ParseRunKey(a.RunID)
	if err != nil {
		return nil //nolint:nilerr // the answer says so already
	}
	row, open, err := v.Run(key)
	if err != nil {
		return err
	}
	repeated := func() { a.Status, a.Why, a.Repeated = job.PullOK, "", true }
	st, _, exists, err := v.State(key.Job)
	if err != nil {
		return err
	}
	open = open && v.Namespace(row.Class) == namespace
	exists = exists && v.Namespace(st.Class) == namespace
	found := false
	if exists {
		n := 0
		err = v.EachOfJob(st.HistHead, func(_ uint64, r store.Record) bool {
			if n++; n > explainRecords {
				return false
			}
			if r.Run() != key || r.Fence != a.Fence || r.Interval.Count > 0 {
				return true
			}
			found = true
			switch {
			case r.Status == job.RunSucceeded && want == job.OutcomeSucceeded,
				want == job.OutcomeFailed && (r.Status == job.RunFailed || r.Status == job.RunDead ||
					r.Status == job.RunCanceled) && r.Reason != job.ReasonWorkerLost:
				repeated()
			case r.Reason != 0:
				a.Why = fmt.Sprintf("this attempt is recorded as %s (%s)", r.Status, r.Reason)
			default:
				a.Why = fmt.Sprintf("this attempt is recorded as %s", r.Status)
			}
			return false
		})
		if err != nil {
			return err
		}
	}
	switch {
	case found:
	case open && row.Fence > a.Fence:
		a.Why = fmt.Sprintf("the run was taken back, and given out again as attempt %d with the fence %d",
			row.Attempt, row.Fence)
	case open && row.Fence == a.Fence &&
		(row.Status == job.RunPending || row.Status == job.RunRetrying || row.Status == job.RunWaiting):
		if want == job.OutcomeReturned {
			repeated()
		} else {
			a.Why = "the run was given back, and waits for another attempt"
		}
	case open && row.Fence < a.Fence:
		a.Why = "this fence was never given out for the run"
	case open:
		a.Why = fmt.Sprintf("the worker %q holds the run, and is not a pull worker", row.Worker)
	case !exists:
		a.Why = "there is no such job, or it was deleted"
	default:
		a.Why = "there is no such run, or it ended long ago"
	}
	return nil
}

// lookAtPullLocked looks at the leases of a pull worker's claims, and says whether one of them has ended. A loop that
// was late extends them all.
func (s *Scheduler) lookAtPullLocked(x *session, mono time.Duration, late bool) (ended bool) {
	for _, c := range x.claims {
		switch {
		case late:
			c.until = max(c.until, mono+s.leaseTime())
		case c.ended(mono):
			ended = true
		}
	}
	if len(x.claims) == 0 && x.reserved == 0 && x.pull.call == nil && mono-x.heard > s.o.TTL {
		s.removeLocked(x)
	}
	return ended
}

func (c *claim) ended(mono time.Duration) bool {
	return mono > c.until && c.pending == nil && !c.expiring
}

// endPullLeasesLocked takes back what a pull worker did not name for a TTL. What it held beyond the job's timeout has
// failed by that: its worker was told with every heartbeat, or sent none.
func (s *Scheduler) endPullLeasesLocked(x *session, mono time.Duration) {
	for _, c := range x.claims {
		switch {
		case !c.ended(mono):
		case c.overdue(mono) && !c.canceling:
			s.log.Warn("timeout of a pulled run", "worker", x.key.worker, "run", c.run, "fence", c.fence,
				"timeout", c.timeout)
			s.addResultLocked(c, job.Result{Run: c.run, Fence: c.fence, Outcome: job.OutcomeFailed, TimedOut: true,
				StartedAt: c.started, Error: fmt.Sprintf("no result within the timeout of %s", c.timeout)}, nil)
		default:
			s.log.Warn("lease of a pulled run expired; it is taken back", event.LeaseExpired, "worker", x.key.worker,
				"run", c.run, "fence", c.fence)
			s.takeAwayLocked(c)
		}
	}
}

// inheritLocked gives the claims of a pull worker of an earlier leader a full lease. Their timeouts are those that they
// were given with, and count from the claim: when it was delivered is not known.
func (s *Scheduler) inheritLocked(x *session, mono time.Duration) {
	// Rounded up, as the claim's stamp is rounded down: a worker that stops at its timeout must not be too early to be
	// believed.
	wall := s.o.Clock.Now().Add(time.Millisecond - 1).UnixMilli()
	for _, c := range x.claims {
		c.until = mono + s.leaseTime()
		if c.timeout <= 0 {
			c.timeout = time.Duration(job.DefaultTimeout)
		}
		c.deadline = max(1, mono+time.Duration(c.claimedAt-wall)*time.Millisecond+c.timeout)
	}
}
