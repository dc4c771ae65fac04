package scheduler

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

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
			s.log.Warn("timeout of a pulled run", "worker", x.key.worker, "run", c.run, "fence", c.fence, "timeout", c.timeout)
			s.addResultLocked(c, job.Result{Run: c.run, Fence: c.fence, Outcome: job.OutcomeFailed, TimedOut: true, StartedAt: c.started,
				Error: fmt.Sprintf("no result within the timeout of %s", c.timeout)}, nil)
		default:
			s.log.Warn("lease of a pulled run expired; it is taken back", "worker", x.key.worker, "run", c.run, "fence", c.fence)
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
