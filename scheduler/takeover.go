package scheduler

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	takeoverChunk = 4096
	// sayAfter is how long a takeover may wait in silence: the others' clocks are known a moment after it began.
	sayAfter = time.Second
)

// takeover commits the first stamp of this leadership, which records the outage before it, and makes a session in
// waiting of every worker that has runs in hand. Calls are answered after it.
func (s *Scheduler) takeover(ctx context.Context) error {
	if err := s.firstStamp(ctx); err != nil {
		return err
	}
	claims, err := s.loadClaims()
	if err != nil {
		return err
	}
	outages := s.outageTexts()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range claims {
		s.addSessionLocked(x)
	}
	s.version++
	s.serving = true
	s.log.Info("scheduler serving", event.Takeover, "inherited_sessions", len(claims), "outages", outages)
	return nil
}

// saidOutages is how many of them a line of the log has.
const saidOutages = 8

// outageTexts are the latest committed outages, for the log: what was due then is missed.
func (s *Scheduler) outageTexts() []string {
	out, all := []string{}, s.st.Info().Outages
	for _, o := range all[max(0, len(all)-saidOutages):] {
		out = append(out, job.Instant(o.From).String()+"/"+job.Instant(o.To).String())
	}
	return out
}

// firstStamp waits until the clock is fit and its stamp is committed.
func (s *Scheduler) firstStamp(ctx context.Context) error {
	pause := pauseFirst
	said, began := stamp.HoldNone, s.o.Clock.Mono()
	for ctx.Err() == nil {
		s.lastTurn.Store(int64(s.o.Clock.Mono()))
		if now, ok := s.stamp.Resume(); ok {
			_, err := s.o.Proposer.Propose(s.newStamp(now, true)).Wait()
			if err == nil && s.stamp.Resumed() {
				if said != stamp.HoldNone {
					s.log.Info("hold ended; the leader takes over", event.HoldEnded)
				}
				return nil
			}
			if err != nil && !errors.Is(err, ErrNotApplied) {
				// Whether it is in the log or not, another one is right: it records at most an outage of a moment.
				s.log.Warn("takeover stamp with unknown outcome", "error", err)
			}
			pause = min(2*pause, pauseLimit)
		} else if c := s.Clock(); c.Kind != said && s.o.Clock.Mono()-began > sayAfter {
			if said == stamp.HoldNone {
				s.log.Warn("hold begun: the takeover waits", event.HoldBegun, "reason", c.Why, "remedy", c.Remedy)
			} else {
				s.log.Warn("hold goes on for another reason", "reason", c.Why, "remedy", c.Remedy)
			}
			said = c.Kind
		}
		wait.For(ctx, min(pause, tickEvery))
	}
	return ctx.Err()
}

// loadClaims reads the open claims. Nothing but this leadership can change them, and it does not serve yet. Each has a
// full lease: what its worker did lately is not known here. Its timeout is the one that it was given with, and counts
// anew: two leaders' clocks may differ, and a worker may keep to it by itself.
func (s *Scheduler) loadClaims() (map[sessionKey]*session, error) {
	out, classes := map[sessionKey]*session{}, map[uint32]job.Class{}
	mono, lease := s.o.Clock.Mono(), s.leaseTime()
	if mutant.On(mutant.HalfLease) {
		lease -= s.o.TTL / 2
	}
	var from job.RunKey
	for more := true; more; {
		more = false
		n := 0
		err := s.st.View(func(v *store.View) error {
			return v.EachRun(from, func(k job.RunKey, r store.Row) bool {
				if n++; n > takeoverChunk {
					from, more = k, true
					return false
				}
				if r.Status != job.RunClaimed && r.Status != job.RunCanceling {
					return true
				}
				if def, ok, err := v.Definition(k.Job); mutant.On(mutant.EditedTimeout) && ok && err == nil {
					r.Timeout = time.Duration(def.Spec.Timeout).Milliseconds()
				}
				key := sessionKey{r.Worker, r.Incarnation}
				class, known := classes[r.Class]
				if !known {
					class = job.ParseClass(v.Class(r.Class))
					classes[r.Class] = class
				}
				x := out[key]
				if x == nil {
					x = &session{key: key, owner: r.Owner, heard: mono}
					out[key] = x
				}
				timeout := cmp.Or(max(time.Duration(r.Timeout), 0)*time.Millisecond, time.Duration(job.DefaultTimeout))
				c := &claim{run: k, space: s.space(class.Namespace), fence: r.Fence, attempt: r.Attempt,
					claimedAt: r.ClaimedAt, inherited: true, canceling: r.Status == job.RunCanceling,
					until: mono + lease, timeout: timeout, deadline: mono + timeout}
				if len(class.Secrets) > 0 {
					c.unmasked = &unmasked{namespace: class.Namespace, names: class.Secrets}
				}
				s.add(x, c)
				return true
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// closeBatch is how many open runs of a backup one command closes.
const closeBatch = 1024

// onHold is a turn in a restored cluster that is not released: nothing is looked for, so nothing is claimed or moved
// on. Once it is released, the open runs of the backup are closed, piece by piece; the last piece ends the hold. All of
// that is committed state, so the next leader goes on where this leader stopped. It says false when there is no hold.
func (l *loop) onHold() bool {
	s := l.s
	hold := s.st.Info().Hold
	if l.free = !hold.On; l.free {
		return false
	}
	if l.losing || s.o.Clock.Mono() < l.pauseEnd || !hold.Releasing {
		return true
	}
	l.losing = true
	l.submit(&fsm.CloseRestored{Head: s.head(l.now), Limit: closeBatch}, func(reply *fsm.Reply, err error) {
		l.losing = false
		if err != nil {
			// Doing it again is harmless whether it was done or not.
			l.refusedAll(err)
			if !errors.Is(err, ErrNotApplied) {
				s.log.Warn("closing runs of the backup has an unknown outcome; trying again", "error", err)
			}
			return
		}
		l.accepted()
		if n := reply.Items[0].Count; n > 0 {
			s.log.Info("open runs of the backup recorded as lost", "runs", n)
		}
		if !s.st.Info().Hold.On {
			s.log.Warn("hold released: this cluster runs jobs from now on", event.HoldEnded)
		}
	})
	return true
}
