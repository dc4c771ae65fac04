package scheduler

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// lookAtPullLocked looks at the leases of a pull worker's claims, and says whether one of them has ended. A loop that was late
// extends them all.
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

// endPullLeasesLocked takes back what a pull worker did not name for a TTL. What it held beyond the job's timeout has failed by that:
// its worker was told with every heartbeat, or sent none.
func (s *Scheduler) endPullLeasesLocked(x *session, mono time.Duration) {
	for _, c := range x.claims {
		switch {
		case !c.ended(mono):
		case c.overdue(mono) && !c.canceling:
			s.log.Warn("a run of a pull worker took longer than its timeout", "worker", x.key.worker, "run", c.run, "fence", c.fence, "timeout", c.timeout)
			s.queueLocked(c, job.Result{Run: c.run, Fence: c.fence, Outcome: job.OutcomeFailed, TimedOut: true, StartedAt: c.started,
				Error: fmt.Sprintf("no result within the timeout of %s", c.timeout)}, nil)
		default:
			s.log.Warn("a pull worker fell silent about a run; it is taken back", "worker", x.key.worker, "run", c.run, "fence", c.fence)
			s.takeAwayLocked(c)
		}
	}
}

// inheritLocked gives the claims of a pull worker of an earlier leader a full lease, and finds out what is to be known about them.
func (s *Scheduler) inheritLocked(x *session, mono time.Duration) {
	claims := make([]*claim, 0, len(x.claims))
	for _, c := range x.claims {
		c.until = mono + s.leaseTime()
		claims = append(claims, c)
	}
	// Rounded up, as the claim's stamp is rounded down: a worker that stops at its timeout must not be too early to be believed.
	wall := s.o.Clock.Now().Add(time.Millisecond - 1).UnixMilli()
	s.wg.Go(func() { s.learn(x, claims, mono, wall) })
}

// learn reads the timeouts of claims from the definitions of their jobs. They count from the claim: when it was delivered is not known.
func (s *Scheduler) learn(x *session, claims []*claim, mono time.Duration, wall int64) {
	for start := 0; start < len(claims); start += buildChunk {
		chunk := claims[start:min(start+buildChunk, len(claims))]
		timeouts := make([]time.Duration, len(chunk))
		err := s.st.View(func(v *store.View) error {
			for i, c := range chunk {
				timeouts[i] = time.Duration(job.DefaultTimeout)
				def, ok, err := v.Definition(c.run.Job)
				if err != nil || !ok {
					continue // a job that is gone cancels its runs; what cannot be read is nobody's timeout
				}
				if d := time.Duration(def.Spec.Timeout); d > 0 {
					timeouts[i] = d
				}
			}
			return nil
		})
		if err != nil {
			s.log.Error("the timeouts of pulled runs cannot be read", "worker", x.key.worker, "error", err)
			return
		}
		s.mu.Lock()
		for i, c := range chunk {
			if c.deadline == 0 {
				c.timeout = timeouts[i]
				c.deadline = max(1, mono+time.Duration(c.claimedAt-wall)*time.Millisecond+c.timeout)
			}
		}
		s.mu.Unlock()
	}
}
