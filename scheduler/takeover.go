package scheduler

import (
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
	mono := s.o.Clock.Mono()
	for _, x := range claims {
		x.heard, x.heardAt, x.polled = mono, s.o.Clock.Now(), mono
		s.addSessionLocked(x)
		s.inheritLocked(x, mono)
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

// inheritLocked gives the claims of an earlier leader a full lease: what their worker did lately is not known here.
// Their timeouts are those that they were given with, and count from the claim.
func (s *Scheduler) inheritLocked(x *session, mono time.Duration) {
	// Rounded up, as the claim's stamp is rounded down: a worker that stops at its timeout must not be too early to be
	// believed.
	wall := s.o.Clock.Now().Add(time.Millisecond - 1).UnixMilli()
	for _, c := range x.claims {
		s.extendLocked(c, mono)
		if mutant.On(mutant.HalfLease) {
			c.until -= s.o.TTL / 2
			x.ends = min(x.ends, c.until)
		}
		if c.timeout <= 0 {
			c.timeout = time.Duration(job.DefaultTimeout)
		}
		c.deadline = max(1, mono+time.Duration(c.claimedAt-wall)*time.Millisecond+c.timeout)
	}
}

// loadClaims reads the open claims. Nothing but this leadership can change them, and it does not serve yet.
func (s *Scheduler) loadClaims() (map[sessionKey]*session, error) {
	out, classes := map[sessionKey]*session{}, map[uint32]job.Class{}
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
					x = newSession(key, 0)
					x.owner = r.Owner
					out[key] = x
				}
				c := &claim{run: k, space: s.space(class.Namespace), fence: r.Fence, attempt: r.Attempt,
					claimedAt: r.ClaimedAt, canceling: r.Status == job.RunCanceling,
					timeout: time.Duration(r.Timeout) * time.Millisecond}
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
