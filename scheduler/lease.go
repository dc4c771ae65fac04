package scheduler

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	verifyTimeout = 5 * time.Second
	stampEvery    = 10 * time.Second
	trimEvery     = 10 * time.Second
	trimAnyway    = time.Minute // expired requests cannot be looked for, so they are trimmed now and then
	trimLimit     = 2000
)

// tick is what happens once a second.
func (l *loop) tick(mono time.Duration, stamping bool) {
	late := mono-l.lastTick > 2*l.s.maxSleep()
	l.lastTick = mono
	l.lookAtLeases(mono, late, stamping)
	l.watch(mono, stamping)
	if stamping {
		l.regularStamp(mono)
		l.trim(mono)
	}
	for k, w := range l.suspects {
		if l.now-w.until > 10*60_000 {
			delete(l.suspects, k)
		}
	}
}

// lookAtLeases ends offers and sessions that are over, and leases, once the leadership is confirmed.
func (l *loop) lookAtLeases(mono time.Duration, late, stamping bool) {
	s := l.s
	s.mu.Lock()
	if len(s.again) > 0 {
		s.results, s.again, s.urgent = append(s.results, s.again...), nil, true
		wait.Wake(s.completeWake)
	}
	for _, x := range s.sessions {
		if late {
			x.heard = mono
		}
		if x.poll == nil && mono > x.offerEnd {
			x.offers = false
			for _, c := range slices.Clone(x.line) {
				if c.unsent {
					s.notToldLocked(c, job.OutcomeReturned)
				}
			}
		}
		if x.poll == nil && !x.inHand() && mono-x.heard > s.leaseTime() {
			if f := s.o.Metrics.Expired; f != nil && (x.lost || x.owner&ownsName != 0 && !x.draining) {
				f()
			}
			s.removeLocked(x)
		}
	}
	over := false
	for _, c := range s.claims {
		if late {
			c.until = mono + s.leaseTime()
		}
		over = over || c.over(mono)
	}
	s.mu.Unlock()
	if late { // heartbeats may be waiting to be heard: no worker loses a run for that
		s.log.Warn("scheduling loop late; all leases are extended")
	}
	if !over || !stamping || l.verifying {
		return
	}
	// A leader that was cut off does not hear its workers either. It asks before it blames them, and not in this
	// goroutine: the question may take as long as the trouble lasts.
	l.verifying = true
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, verifyTimeout)
		defer cancel()
		err := s.o.Proposer.VerifyLeader(ctx)
		s.post(func() {
			l.verifying = false
			if err != nil {
				s.log.Warn("leadership not verified; no lease expires", "error", err)
				return
			}
			l.endLeases()
		})
	})
}

const (
	// confirmShare is the part of a lease that may have passed since this node certainly led when it extends one. A
	// worker counts two thirds of it, and the next leader, which cannot have been there before, the whole.
	confirmShare = 4
	// confirmNow is for what another leader may know better. It is shorter than any election.
	confirmNow = 100 * time.Millisecond
)

// confirm says whether this node led not longer ago than age. If it cannot say, its caller should ask another one.
func (s *Scheduler) confirm(ctx context.Context, age time.Duration) error {
	err := s.o.Proposer.Confirm(ctx, age)
	if err == nil || mutant.On(mutant.TrustLeader) {
		return nil
	}
	s.log.Warn("leadership not confirmed; worker call refused", "error", err)
	return job.Errorf(job.CodeNoLeader, "ask another node", "this node cannot confirm that it still leads")
}

// leaseTime is how long a worker may be silent about a run.
func (s *Scheduler) leaseTime() time.Duration {
	if mutant.On(mutant.ExpireEarly) {
		return s.o.TTL / 8
	}
	return s.o.TTL
}

// over says that the lease of a claim has ended, and no result of it is on its way.
func (c *claim) over(mono time.Duration) bool { return mono > c.until && c.pending == nil }

// endLeases ends the leases that are over, now that the leadership is confirmed. A run whose worker was told that it
// takes too long, and did not end it, has failed by that; the worker of any other is lost.
func (l *loop) endLeases() {
	s := l.s
	mono := s.o.Clock.Mono()
	if mono-l.lastTick > 2*l.s.maxSleep() {
		return // late again; the next tick extends the leases
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := map[*session]int{}
	for _, c := range s.claims {
		if !c.over(mono) {
			continue
		}
		lost[c.x]++
		if !c.told || c.canceling {
			s.takeAwayLocked(c)
			continue
		}
		s.log.Warn("run not ended by its worker after its timeout", "worker", c.x.key.worker, "run", c.run,
			"fence", c.fence, "timeout", c.timeout)
		s.endLocked(c, false, job.Result{Outcome: job.OutcomeFailed, TimedOut: true, StartedAt: c.started,
			Error: fmt.Sprintf("no result within the timeout of %s", c.timeout)})
	}
	for x, n := range lost {
		x.lost = true
		s.log.Warn("lease expired; taking runs back", event.LeaseExpired, "worker", x.key.worker,
			"incarnation", x.key.incarnation, "runs", n, "silent", mono-x.heard)
	}
}

// removeLocked ends a session; what it has in hand is taken from it.
func (s *Scheduler) removeLocked(x *session) {
	s.dropSessionLocked(x)
	x.offers = false
	s.version++
	for _, c := range slices.Clone(x.claims) {
		s.takeAwayLocked(c)
	}
}

// takeAwayLocked takes a run from its worker. One whose result is on its way is left alone: that is about to close it.
func (s *Scheduler) takeAwayLocked(c *claim) {
	switch {
	case c.pending != nil:
	case c.unsent:
		s.notToldLocked(c, job.OutcomeReturned)
	default:
		if mutant.On(mutant.SkipFence) {
			c.until = math.MaxInt64 // it stays its worker's
		} else {
			s.drop(c)
		}
		s.toExpire = append(s.toExpire, c)
		wait.Wake(s.wake)
	}
}

// sendExpired takes runs from workers that are lost, a batch at a time. Only the loop calls it.
func (l *loop) sendExpired() {
	s := l.s
	if l.expiring {
		return
	}
	s.mu.Lock()
	n := min(maxBatch, len(s.toExpire))
	batch := slices.Clone(s.toExpire[:n])
	s.toExpire = slices.Delete(s.toExpire, 0, n)
	s.mu.Unlock()
	if n == 0 {
		return
	}
	cmd := &fsm.Expire{Head: s.head(l.now)}
	for _, c := range batch {
		started := int64(c.started)
		if started != 0 { // by the worker's clock
			started = min(max(started, c.claimedAt), l.now)
		}
		cmd.Started = append(cmd.Started, started)
		cmd.Jobs = append(cmd.Jobs, uint64(c.run.Job))
		cmd.At = append(cmd.At, c.run.At)
		cmd.Origin = append(cmd.Origin, byte(c.run.Origin))
		cmd.Fence = append(cmd.Fence, c.fence)
	}
	l.expiring = true
	l.submit(cmd, func(_ *fsm.Reply, err error) {
		if l.expiring = false; err == nil {
			l.accepted()
			return
		}
		l.refusedAll(err)
		s.mu.Lock()
		s.toExpire = append(s.toExpire, batch...) // doing it twice is harmless: the fence tells
		s.mu.Unlock()
	})
}

// regularStamp commits the clock when nothing else has for a while, so that an outage is known to a few seconds. While
// other commands do, it is committed as often for the sake of what it says of the leader's state.
func (l *loop) regularStamp(mono time.Duration) {
	every := l.s.o.Pace.Of(stampEvery)
	if l.stamping || l.now-l.s.st.Counters().Mark < every.Milliseconds() && mono-l.lastStamp < every {
		return
	}
	l.stamping, l.lastStamp = true, mono
	l.submit(l.s.newStamp(l.now, false), func(_ *fsm.Reply, err error) {
		if l.stamping = false; err != nil {
			l.refusedAll(err)
		}
	})
}

// trim removes old history and expired requests, a bounded number at a time.
func (l *loop) trim(mono time.Duration) {
	s := l.s
	if l.trimming || mono-l.lastTrim < trimEvery || !l.free { // who looks into a backup wants to see all of it
		return
	}
	var before int64
	if s.o.HistoryMaxAge > 0 {
		before = l.now - s.o.HistoryMaxAge.Milliseconds()
	}
	due := mono-l.lastTrim >= trimAnyway
	err := s.st.View(func(v *store.View) error {
		if n := s.o.HistoryMaxCount; n > 0 && v.C.HistSeq-v.C.HistFloor > n {
			due = true
		}
		if due || before <= 0 {
			return nil
		}
		return v.EachRecord(v.C.HistFloor, func(_ uint64, r store.Record) bool {
			due = r.Recorded < before
			return false
		})
	})
	if err != nil || !due {
		return
	}
	l.trimming = true
	floor := s.st.Counters().HistFloor
	cmd := &fsm.Trim{Head: s.head(l.now), Before: before, MaxCount: s.o.HistoryMaxCount, Limit: trimLimit}
	l.submit(cmd, func(reply *fsm.Reply, err error) {
		l.trimming = false
		l.lastTrim = s.o.Clock.Mono()
		if err != nil {
			s.log.Warn("history not trimmed", "error", err)
			return
		}
		if s.st.Counters().HistFloor-floor >= trimLimit/2 || len(reply.Items) > 0 && reply.Items[0].Count >= trimLimit {
			// There was more than fits into one step. At full load ten seconds make a hundred times as much.
			l.lastTrim -= trimAnyway
			l.trim(s.o.Clock.Mono())
		}
	})
}
