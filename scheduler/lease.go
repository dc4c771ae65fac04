package scheduler

import (
	"context"
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
	l.s.reviewStandings()
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

// lookAtLeases ends the sessions of workers that fell silent.
func (l *loop) lookAtLeases(mono time.Duration, late, stamping bool) {
	s := l.s
	s.mu.Lock()
	s.againLocked()
	for k, x := range s.removed {
		if !x.inHand() {
			delete(s.removed, k)
		}
	}
	silent := false
	for _, x := range s.sessions {
		switch {
		case x.pull != nil:
			silent = s.lookAtPullLocked(x, mono, late) || silent
		case late:
			// We did not listen ourselves: heartbeats may be waiting to be heard. No worker loses a run for that.
			x.heard = mono
		case mono-x.heard <= s.leaseTime():
			s.takeBackLocked(x, mono)
		case !x.inHand():
			s.expireLocked(x)
		default:
			silent = true
		}
	}
	s.mu.Unlock()
	if late {
		s.log.Warn("scheduling loop late; all leases are extended")
	}
	if !silent || !stamping || l.verifying {
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
			l.endSilent()
		})
	})
}

const (
	// confirmShare is the part of a lease that may have passed since this node certainly led when it extends one. A
	// worker counts two thirds of it, and the next leader, which cannot have been there before, the whole.
	confirmShare = 4
	// confirmNow is for what must not have passed to another leader and back. It is shorter than any election.
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

// leaseTime is how long a session may be silent, or a pull worker about a run.
func (s *Scheduler) leaseTime() time.Duration {
	if mutant.On(mutant.ExpireEarly) {
		return s.o.TTL / 8
	}
	return s.o.TTL
}

// takeBackLocked looks at a worker that sends heartbeats but no longer asks for work: what it was given and never
// collected goes to another one.
func (s *Scheduler) takeBackLocked(x *session, mono time.Duration) {
	if !x.registered || x.polling > 0 || mono-x.polled <= s.o.TTL {
		return
	}
	x.withheld, x.credit = x.slots, 0 // until it polls again
	n := 0
	for _, c := range append(append([]*claim(nil), x.waiting...), x.sent...) {
		// One that was sent, but that its heartbeats do not name, did not arrive.
		if !c.expiring && c.pending == nil && (c.unsent || c.beat != x.beats) {
			s.takeAwayLocked(c)
			n++
		}
	}
	if n > 0 {
		s.log.Warn("assignments not collected; taking them back", "worker", x.key.worker, "runs", n)
	}
}

// endSilent ends the sessions that are still silent now that the leadership is confirmed.
func (l *loop) endSilent() {
	s := l.s
	mono := s.o.Clock.Mono()
	if mono-l.lastTick > 2*l.s.maxSleep() {
		return // late again; the next tick extends the leases
	}
	s.mu.Lock()
	for _, x := range s.sessions {
		if x.pull != nil {
			s.endPullLeasesLocked(x, mono)
			continue
		}
		if mono-x.heard > s.leaseTime() {
			s.log.Warn("session expired; taking its runs back", event.SessionExpired, "worker", x.key.worker,
				"incarnation", x.key.incarnation, "runs", len(x.claims), "silent", mono-x.heard)
			s.expireLocked(x)
		}
	}
	s.mu.Unlock()
	l.sendExpired()
}

// expireLocked ends a session whose lease is over.
func (s *Scheduler) expireLocked(x *session) {
	if f := s.o.Metrics.Expired; f != nil && !x.gone {
		f()
	}
	s.removeLocked(x)
}

// removeLocked ends a session; what it has in hand is taken from it.
func (s *Scheduler) removeLocked(x *session) {
	if x.gone {
		return
	}
	x.gone = true
	s.dropSessionLocked(x)
	if x.pull == nil && x.inHand() {
		s.removed[x.key] = x
	}
	s.version++
	for _, c := range x.claims {
		s.takeAwayLocked(c)
	}
	x.wakePolls()
	wait.Wake(s.wake)
}

// takeAwayLocked plans to take a run from its worker. One whose result is on its way is left alone: that is about to
// close it.
func (s *Scheduler) takeAwayLocked(c *claim) {
	switch {
	case c.expiring || c.pending != nil:
	case c.unsent:
		// Its worker was never told of it, so it cannot have started: nothing is lost, not even with at_most_once.
		c.x.waiting = without(c.x.waiting, c)
		c.assignment, c.unsent = nil, false
		s.addResultLocked(c, job.Result{Run: c.run, Fence: c.fence, Outcome: job.OutcomeReturned}, nil)
	default:
		c.expiring = true
		s.toExpire = append(s.toExpire, c)
		wait.Wake(s.wake)
	}
}

// sendExpired takes runs from workers that are lost, a batch at a time.
func (l *loop) sendExpired() {
	s := l.s
	if l.expiring {
		return
	}
	s.mu.Lock()
	n := len(s.toExpire)
	s.mu.Unlock()
	if n == 0 {
		return
	}
	now, err := s.stamp.Now()
	if err != nil {
		return
	}
	s.mu.Lock()
	n = min(maxBatch, len(s.toExpire))
	batch := append([]*claim(nil), s.toExpire[:n]...)
	s.toExpire = append(s.toExpire[:0], s.toExpire[n:]...)
	cmd := &fsm.Expire{Head: s.head(now)}
	for _, c := range batch {
		started := int64(c.started)
		if started != 0 { // by the worker's clock
			started = min(max(started, c.claimedAt), now)
		}
		cmd.Started = append(cmd.Started, started)
		cmd.Jobs = append(cmd.Jobs, uint64(c.run.Job))
		cmd.At = append(cmd.At, c.run.At)
		cmd.Origin = append(cmd.Origin, byte(c.run.Origin))
		cmd.Fence = append(cmd.Fence, c.fence)
	}
	s.mu.Unlock()
	l.expiring = true
	s.submit(cmd, func(_ *fsm.Reply, err error) {
		s.mu.Lock()
		for _, c := range batch {
			if err != nil {
				s.toExpire = append(s.toExpire, c) // doing it twice is harmless: the fence tells
			} else {
				c.x.drop(c)
			}
		}
		s.mu.Unlock()
		s.post(func() {
			l.expiring = false
			if err != nil {
				l.refusedAll(err)
			} else {
				l.accepted()
			}
		})
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
