package scheduler

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

// Heartbeat extends the leases of the claims that it names.
func (s *Scheduler) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	out := job.HeartbeatReply{Lease: job.Duration(s.o.TTL), Runs: make([]job.Answer, len(h.Runs))}
	from, err := s.parseSession(h.Session)
	if err == nil {
		err = s.confirm(ctx, s.o.TTL/confirmShare)
	}
	if err != nil {
		return out, err
	}
	mono := s.o.Clock.Mono()
	gone := false
	s.mu.Lock()
	if err := s.servingLocked(); err != nil {
		s.mu.Unlock()
		return out, err
	}
	s.heardLocked(from)
	for i := range h.Runs {
		a := &out.Runs[i]
		if c := s.namedLocked(from, h.Runs[i], a); c != nil {
			s.beatLocked(c, mono, a)
		} else if a.Status == job.StatusGone {
			if gone = true; mutant.On(mutant.Revive) {
				a.Status = job.StatusOK
			}
		}
	}
	s.mu.Unlock()
	if gone {
		err = s.confirm(ctx, confirmNow)
	}
	return out, err
}

// beatLocked extends the lease of a claim, and says whether its attempt is to stop.
func (s *Scheduler) beatLocked(c *claim, mono time.Duration, a *job.Answer) {
	if !c.canceling && c.overdue(mono) {
		// Its lease is not extended any more: a worker that does not stop has what is left of it to be told.
		a.Status, a.Why = job.StatusStop, job.StopTimeout
		c.told = true
		return
	}
	c.until = mono + s.leaseTime()
	if c.canceling {
		a.Status, a.Why = job.StatusStop, job.StopCanceled
	}
}

func (c *claim) overdue(mono time.Duration) bool { return c.deadline > 0 && mono >= c.deadline }

// heardLocked notes that a worker has called.
func (s *Scheduler) heardLocked(from job.Session) {
	if x := s.sessions[keyOf(from)]; x != nil && x.owner == from.Owner {
		x.heard = s.o.Clock.Mono()
	}
}

const whyUnknown = "no run is out under this fence: its result is committed, or it was taken back, or never given out"

// namedLocked finds the claim that a worker names, which has arrived by that, for good; without one, the answer says
// why. Without a session an item is named by its claim, and any session of a process is as good as its last. That a
// claim is gone may only say who leads at this moment: the next leader may have made it.
func (s *Scheduler) namedLocked(from job.Session, ref job.Ref, a *job.Answer) *claim {
	a.Ref, a.Status, a.Why = ref, job.StatusGone, whyUnknown
	c := s.claims[ref.Fence]
	switch {
	case ref.Fence == 0 || ref.Claim == "" && from.Term == 0:
		a.Status, a.Why = job.StatusInvalid, "send the claim from the answer to a poll, or its fence and the session"
	case c == nil || ref.Claim != "" && c.run != ref.Run || c.unsent:
	case from.Term != 0 && (c.x.key != keyOf(from) || c.x.owner != from.Owner):
		a.Why = "another worker holds this run"
	default:
		if c.x.arrive(c); c.started == 0 {
			c.started = job.Instant(c.claimedAt) // an earlier leader handed it out, at a time that is not known here
		}
		a.Status, a.Why = job.StatusOK, ""
		return c
	}
	return nil
}
