package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Heartbeat extends the leases of the claims that it names.
func (s *Scheduler) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	from, err := s.callerOf(h.Session)
	if err == nil {
		err = s.confirm(ctx, s.o.TTL/confirmShare)
	}
	if err != nil {
		return job.HeartbeatReply{}, err
	}
	mono := s.o.Clock.Mono()
	out := job.HeartbeatReply{Lease: job.Duration(s.o.TTL), Runs: make([]job.Answer, len(h.Runs))}
	var unknown []int
	s.mu.Lock()
	if err := s.servingLocked(); err != nil {
		s.mu.Unlock()
		return job.HeartbeatReply{}, err
	}
	from.heardLocked(s, mono)
	for i := range h.Runs {
		b, a := &h.Runs[i], &out.Runs[i]
		c := s.namedLocked(from, b.Ref, a)
		switch {
		case c == nil && a.Status == job.StatusGone && mutant.On(mutant.Revive):
			a.Status = job.StatusOK
		case c == nil:
			if a.Why == "" {
				unknown = append(unknown, i)
			}
		default:
			s.beatLocked(c, b.Ran, mono, a)
		}
	}
	s.mu.Unlock()
	return out, s.explain(ctx, from, out.Runs, unknown, nil)
}

// beatLocked extends the lease of a claim, and says whether its attempt is to stop.
func (s *Scheduler) beatLocked(c *claim, ran *job.Duration, mono time.Duration, a *job.Answer) {
	if ran != nil {
		c.started, c.deadline = 0, 0
		if *ran > 0 {
			c.started = job.At(s.o.Clock.Now().Add(-time.Duration(*ran)))
			c.deadline = mono - time.Duration(*ran) + c.timeout
		}
	} else if c.started == 0 {
		c.started = job.Instant(c.claimedAt) // an earlier leader handed it out, at a time that is not known here
	}
	switch {
	case c.canceling:
		s.extendLocked(c, mono)
		a.Status, a.Why = job.StatusStop, job.StopCanceled
	case c.overdue(mono):
		// Its lease is not extended any more: a worker that does not stop has what is left of it to be told.
		a.Status, a.Why = job.StatusStop, job.StopTimeout
		c.told = true
	default:
		s.extendLocked(c, mono)
	}
}

func (s *Scheduler) extendLocked(c *claim, mono time.Duration) {
	c.until = mono + s.leaseTime()
	if len(c.x.claims) == 1 || c.until < c.x.ends {
		c.x.ends = c.until
	}
}

func (c *claim) overdue(mono time.Duration) bool { return c.deadline > 0 && mono >= c.deadline }

// caller is who a heartbeat or report says it is from. Without a session items are named by their claims.
type caller struct {
	session bool
	key     sessionKey
	owner   uint64
}

// callerOf reads the session of a message that is no poll. Any one of a session is as good as its last.
func (s *Scheduler) callerOf(text string) (c caller, err error) {
	if text == "" {
		return c, nil
	}
	seen, err := s.parseSession(text)
	return caller{true, sessionKey{seen.Worker, seen.Incarnation}, seen.Owner}, err
}

// holds says whether a claim may be the caller's.
func (f caller) holds(c *claim) bool { return !f.session || c.x.key == f.key && c.x.owner == f.owner }

// heardLocked notes that a worker has called.
func (f caller) heardLocked(s *Scheduler, mono time.Duration) {
	if x := s.sessions[f.key]; f.session && x != nil && x.owner == f.owner {
		x.heard, x.heardAt, x.silent = mono, s.o.Clock.Now(), false
	}
}

// namedLocked finds the claim that a worker names. A claim that was named once has arrived, for good. Without one the
// answer is made: with the reason, as far as that is known here.
func (s *Scheduler) namedLocked(from caller, ref job.Ref, a *job.Answer) *claim {
	a.Ref, a.Status = ref, job.StatusGone
	if ref.Fence == 0 || ref.Claim == "" && !from.session {
		a.Status, a.Why = job.StatusInvalid, "send the claim from the answer to a poll, or its fence and the session"
		return nil
	}
	c := s.claims[ref.Fence]
	switch {
	case c == nil || ref.Claim != "" && c.run != ref.Run || c.unsent:
	case !from.holds(c):
		a.Why = "another worker holds this run"
	case c.expiring && !mutant.On(mutant.SkipFence):
		a.Why = "the lease of the run ended, and it is being taken back"
	default:
		c.x.arrive(c)
		a.Status = job.StatusOK
		return c
	}
	return nil
}

const (
	// explainItems bounds how many items of a call are looked up in the store.
	explainItems = 64
	// explainRecords bounds how far back in a job's history the end of a run is looked for.
	explainRecords = 512
	// explainChunk is how many items are looked up in one view.
	explainChunk = 16
)

// explain says why claims are not known here. A result that was committed before, under the same fence, is no reason
// to worry its worker: it is ok, and repeated. want is how each was reported; nil for a heartbeat. Only a leader that
// leads at this moment may say that a claim is gone: the next one may have made it.
func (s *Scheduler) explain(ctx context.Context, from caller, answers []job.Answer, unknown []int,
	want []job.Outcome) error {
	if len(unknown) == 0 {
		return nil
	}
	if err := s.confirm(ctx, confirmNow); err != nil {
		return err
	}
	left := unknown[:min(len(unknown), explainItems)]
	for len(left) > 0 {
		chunk := left[:min(explainChunk, len(left))]
		left = left[len(chunk):]
		err := s.st.View(func(v *store.View) error {
			for _, i := range chunk {
				outcome := job.Outcome(0)
				if want != nil {
					outcome = want[i]
				}
				if answers[i].Run == (job.RunKey{}) {
					continue
				}
				if err := explainOne(v, &answers[i], outcome); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			s.log.Error("history of a run not readable", "error", err)
		}
	}
	for _, i := range unknown {
		if a := &answers[i]; a.Status == job.StatusGone && a.Why == "" {
			a.Why = "no run is out under this fence: its result is committed, or it was taken back"
		}
	}
	return nil
}

func explainOne(v *store.View, a *job.Answer, want job.Outcome) error {
	row, open, err := v.Run(a.Run)
	if err != nil {
		return err
	}
	repeated := func() { a.Status, a.Why, a.Repeated = job.StatusOK, "", true }
	st, _, exists, err := v.State(a.Run.Job)
	if err != nil {
		return err
	}
	found := false
	if exists {
		n := 0
		err = v.EachOfJob(st.HistHead, func(_ uint64, r store.Record) bool {
			if n++; n > explainRecords {
				return false
			}
			if r.Run() != a.Run || r.Fence != a.Fence || r.Interval.Count > 0 {
				return true
			}
			found = true
			switch {
			case r.Status == job.RunSucceeded && want == job.OutcomeSucceeded,
				(want == job.OutcomeFailed || want == job.OutcomeCanceled) && (r.Status == job.RunFailed ||
					r.Status == job.RunDead || r.Status == job.RunCanceled) && r.Reason != job.ReasonWorkerLost:
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
	case !exists:
		a.Why = "there is no such job, or it was deleted"
	default:
		a.Why = "there is no such run, or it ended long ago"
	}
	return nil
}
