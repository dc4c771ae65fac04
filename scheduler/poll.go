package scheduler

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// incarnationBits follow the term in an incarnation, so that numbers grow over leaderships.
	incarnationBits = 32
	// waitShare is the part of a lease that a poll may wait at most: its worker counts two thirds of the lease from
	// when it sent the poll, and what is left must suffice for the first heartbeat.
	waitShare = 3
	// pollFloor is what a poll that asks for runs waits at least, or it would be gone before anything is claimed for
	// it.
	pollFloor = 100 * time.Millisecond
	// maxHold is how long an offer stands at most without a poll.
	maxHold = 5 * time.Second
	// settleTick is how often a poll looks whether claims for it are still on their way through the log, settleLimit
	// how long.
	settleTick  = 5 * time.Millisecond
	settleLimit = 500 * time.Millisecond

	maxPollRuns  = 1024
	maxPollBytes = 1 << 20
)

// poll is one that waits.
type poll struct {
	*job.Poll
	seen     job.Session   // the session that it has
	replaced bool          // by a later one
	came     time.Duration // when it did, on Clock.Mono
	settle   time.Time     // when what is on its way is not waited for any more; zero: it has nothing to say yet
	over     bool          // it has waited as long as it may
}

// Poll waits for runs, or for attempts that are to stop, and returns empty-handed after a while. A poll that opens a
// session, and one with the session of an earlier leader, are answered at once with a session of this term and decide
// nothing: such a message may have been on its way for long, and what its worker has and is may have changed since.
func (s *Scheduler) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	seen, decides, err := s.readSession(&p)
	if err != nil || !decides {
		return job.PollReply{Session: seen.String(), Opened: true, Lease: job.Duration(s.o.TTL),
			Runs: []job.Assignment{}}, err
	}
	if p.Queue.Name != "" {
		if err := KnownQueue(s.st, p.Queue); err != nil {
			return job.PollReply{}, err
		}
	}
	leaving, err := s.standing(&p, sessionKey{seen.Worker, seen.Incarnation})
	if err != nil {
		return job.PollReply{}, err
	}
	// Not with the lock held: views of the store wait for it, and a commit that waits for them keeps readers out.
	onHold := s.st.Info().Hold.On
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.enterLocked(&p, seen, leaving, onHold)
	if err != nil {
		return job.PollReply{}, err
	}
	q := &poll{Poll: &p, seen: seen, came: s.o.Clock.Mono()}
	if x.poll != nil {
		x.poll.replaced = true // its worker gave it up, and does not read the answer
		x.wakePolls()
	}
	x.poll = q
	reply, err := s.pollLocked(ctx, x, q)
	if x.poll == q {
		s.pollEndedLocked(x, &p, err)
	}
	return reply, err
}

// readSession reads the session of a poll, or makes one. decides: it is one of this term.
func (s *Scheduler) readSession(p *job.Poll) (seen job.Session, decides bool, err error) {
	seen = s.session
	seen.Nonce = newNonce()
	newest := s.st.Counters().Fence // not with the lock held, as below
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.servingLocked(); err != nil {
		return seen, false, err
	}
	if p.Session == "" {
		seen.Worker = cmp.Or(p.Worker, "worker-"+strings.ToLower(rand.Text()[:8]))
		seen.Incarnation, seen.Owner = s.issueLocked(seen.Worker), ownerOf(p, seen.Worker)
		return seen, p.Secret == "" && p.Free > 0, nil
	}
	was, err := s.parseSession(p.Session)
	switch {
	case err != nil:
	case p.Worker != "" && p.Worker != was.Worker:
		err = job.Invalid("worker", "leave one of them out", "the session belongs to the worker %q", was.Worker)
	case was.Fence > newest: // it would hold up every delivery
		err = sessionUnknown(was.Worker, "it is not of this cluster's history")
	case !was.Before(s.session) || mutant.On(mutant.OldReceipt):
		return was, true, nil
	default:
		seen.Worker, seen.Incarnation, seen.Owner, seen.Fence = was.Worker, was.Incarnation, was.Owner, was.Fence
	}
	return seen, false, err
}

// parseSession reads the text of a session with this group, of this leader or of an earlier one.
func (s *Scheduler) parseSession(text string) (job.Session, error) {
	was, err := job.ParseSession(text)
	switch {
	case err != nil:
	case was.Group != s.group || was.Cluster != s.session.Cluster:
		err = sessionUnknown(was.Worker, "it is one with another group, or of before a restore")
	case s.session.Before(was):
		err = job.Errorf(job.CodeNoLeader, "ask another node", "this node led before the session was opened")
	}
	return was, err
}

// issueLocked makes the number of a new process. Numbers are used again: only the fence of a claim has to be unique.
func (s *Scheduler) issueLocked(worker string) uint64 {
	for {
		s.nextInc = (s.nextInc + 1) % (1 << incarnationBits)
		inc := s.o.Term<<incarnationBits | s.nextInc
		if s.nextInc != 0 && s.sessions[sessionKey{worker, inc}] == nil {
			return inc
		}
	}
}

// newNonce is a number that tells an answer from every other.
func newNonce() uint64 { return mathrand.Uint64() }

// enterLocked finds the session of a poll, or makes it known to this leader: one that was just opened, one that an
// earlier leader gave runs, or one that was forgotten because it was idle.
func (s *Scheduler) enterLocked(p *job.Poll, seen job.Session, leaving, onHold bool) (*session, error) {
	if err := s.servingLocked(); err != nil {
		return nil, err
	}
	mono := s.o.Clock.Mono()
	key := sessionKey{seen.Worker, seen.Incarnation}
	x := s.sessions[key]
	first := x == nil || !x.present
	switch {
	case x != nil && x.owner != seen.Owner:
		return nil, sessionUnknown(seen.Worker, "another process has it")
	case first:
		older, err := s.takeNameLocked(key, seen.Owner, p)
		if err == nil && x == nil && len(older) == 0 && p.Node == nil {
			err = s.roomLocked(key.worker)
		}
		if err != nil {
			return nil, err
		}
		for _, y := range older {
			if len(y.claims) > 0 {
				s.log.Warn("worker restarted; the runs of its old process are released", "worker", y.key.worker,
					"incarnation", y.key.incarnation, "runs", len(y.claims))
			}
			s.removeLocked(y)
		}
		if x == nil {
			x = newSession(key, mono)
			x.owner = seen.Owner
			s.addSessionLocked(x)
		}
		x.present, x.leaving = true, leaving
		s.version++
		s.inheritedLocked(x, seen.Fence, onHold)
		if x.owner&ownsName != 0 {
			s.log.Info("worker registered", "worker", key.worker, "where", p.Where, "incarnation", key.incarnation,
				"slots", p.Slots, "open", x.open)
		}
	case seen.Serial < x.serial || seen.Serial == x.serial && seen.Nonce != x.nonce:
		err := forkedError(x, p)
		s.log.Warn("session forked, or a poll came late: refused", "error", err)
		return nil, err
	default:
		x.receivedLocked(seen.Fence)
	}
	x.serial, x.nonce = seen.Serial, seen.Nonce
	x.heard, x.heardAt, x.silent = mono, s.o.Clock.Now(), false
	if p.Shared {
		s.sharing.Store(true)
	}
	before, version := x.free(), s.version
	if x.describe(p) {
		s.version++
	}
	if x.offer(p); first || s.version != version || p.Hold <= 0 {
		wait.Wake(s.wake)
	} else if x.free() > before {
		s.freed()
	}
	return x, nil
}

// receivedLocked notes which claims the worker has: those up to the fence of the answer that it goes on from.
func (x *session) receivedLocked(fence uint64) {
	n := 0
	for ; n < len(x.line) && x.line[n].fence <= fence; n++ {
		x.line[n].assignment, x.line[n].arrived = nil, true
	}
	x.line = slices.Delete(x.line, 0, n)
}

// inheritedLocked hands out again what an earlier leader claimed for a session that comes for the first time, and what
// its worker has not received: same claim, same fence.
func (s *Scheduler) inheritedLocked(x *session, fence uint64, onHold bool) {
	var unknown []*claim
	for _, c := range x.claims {
		switch {
		case c.fence <= fence, c.arrived && !mutant.On(mutant.OldReceipt), c.pending != nil, c.expiring,
			onHold: // it may have been done with in the cluster that the backup was taken from: the release closes it
			c.arrived = true
		default:
			c.unsent, c.arrived = true, false
			unknown = append(unknown, c)
		}
	}
	if len(unknown) == 0 {
		return
	}
	slices.SortFunc(unknown, func(a, b *claim) int { return cmp.Compare(a.fence, b.fence) })
	x.resending = true // before anything that is claimed from now on: the fences of a session only grow
	s.wg.Go(func() { s.resend(x, unknown) })
}

// resend reads the definitions of claims from the store, which is not read under the lock.
func (s *Scheduler) resend(x *session, claims []*claim) {
	for start := 0; start < len(claims); start += buildChunk {
		chunk := claims[start:min(start+buildChunk, len(claims))]
		out := make([]*job.Assignment, len(chunk))
		fills := make([]*filled, len(chunk))
		err := s.st.View(func(v *store.View) error {
			for i, c := range chunk {
				row, ok, err := v.Run(c.run)
				if err != nil || !ok || row.Fence != c.fence {
					continue
				}
				// An edit since the claim would make another payload of the same fence. Its worker was told of neither,
				// so the run goes back and is claimed anew.
				if def, ok, err := v.Definition(c.run.Job); err == nil && ok &&
					(def.Version == row.Version || mutant.On(mutant.ResendEdited)) {
					fills[i] = s.fill(&def.Spec, def.Spec.SecretRefs())
					out[i] = fills[i].into(s.assignment(c, row.Key, &def.Spec))
				}
			}
			return nil
		})
		if err != nil {
			s.log.Error("assignments not sent again", "worker", x.key.worker, "error", err)
		}
		s.mu.Lock()
		for i, c := range chunk {
			switch f := fills[i]; {
			case s.ended || x.gone || s.claims[c.fence] != c || c.pending != nil || c.arrived:
			case c.canceling:
				s.notToldLocked(c, job.OutcomeCanceled)
			case out[i] == nil, f != nil && !maySee(x, f.uses.names):
				s.notToldLocked(c, job.OutcomeReturned)
			case f != nil && f.err != nil:
				s.lacksLocked(c, f)
			default:
				c.assignment, c.unmasked = out[i], f.hides()
				x.line = append(x.line, c)
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	x.resending = false
	x.wakePolls()
	s.mu.Unlock()
	wait.Wake(s.wake)
}

// pollLocked waits until there is an answer.
func (s *Scheduler) pollLocked(ctx context.Context, x *session, q *poll) (job.PollReply, error) {
	lasts := min(max(time.Duration(q.Wait), 0), s.o.TTL/waitShare)
	if q.Free > 0 && q.Hold <= 0 {
		lasts = max(lasts, pollFloor)
	}
	timer := time.NewTimer(lasts)
	defer timer.Stop()
	q.over = lasts == 0
	for sure := false; ; {
		if err := cmp.Or(s.servingLocked(), ctx.Err()); err != nil {
			return job.PollReply{}, err
		}
		if q.replaced {
			return s.answerLocked(x, q, false), nil
		}
		var tick <-chan time.Time
		if q.over || x.speaks(q) {
			if q.settle.IsZero() {
				q.settle = time.Now().Add(settleLimit)
			}
			late := !time.Now().Before(q.settle)
			switch unsettled := x.unsettled(q, late); {
			case unsettled && late && q.Free <= 0 && len(x.line) == 0: // it may be about to leave
				return job.PollReply{}, job.Errorf(job.CodeNotReady, "poll again",
					"runs for the worker %q are on their way", x.key.worker)
			case unsettled && !late:
				tick = time.After(settleTick)
			case len(x.line) == 0 || sure:
				return s.answerLocked(x, q, true), nil
			default:
				s.mu.Unlock()
				err := s.confirm(ctx, s.o.TTL/confirmShare)
				s.mu.Lock()
				if err != nil {
					return job.PollReply{}, err // what is there is for the next poll, or for the next leader
				}
				sure = true
				continue // it may have been replaced meanwhile
			}
		}
		wake := x.wake
		s.mu.Unlock()
		sure = false
		select {
		case <-wake:
		case <-tick:
		case <-timer.C:
			q.over = true
		case <-ctx.Done():
		case <-s.done:
		}
		s.mu.Lock()
	}
}

// speaks says whether there is something to answer a poll with.
func (x *session) speaks(q *poll) bool {
	return len(x.line) > 0 || len(x.watch) > 0 || len(x.stops(false)) > 0 ||
		q.Shared && q.Free <= 0 && !q.Told && x.ready > 0
}

// unsettled says whether a poll that could be answered waits for what is being claimed for its worker at this moment.
// One whose offer stands gets that with its next poll; of any other it would have to go back. That one also takes what
// follows from those claims, until it is full: of a job's occurrences the next one is due only when the one before is
// claimed. One that takes no more, or less than before, waits for what is on its way beyond that.
func (x *session) unsettled(q *poll, late bool) bool {
	if q.Hold > 0 {
		return q.Wait <= 0 && (x.resending || x.reserved > max(0, q.Free-len(x.line)))
	}
	if q.over || late || !x.more && !x.resending {
		x.capacity = x.open + x.reserved // nothing more is claimed for it
	}
	return x.resending || x.reserved > 0 || x.free() > 0
}

// answerLocked answers a poll: with all that its worker does not have yet, in order of the fences, and with what it is
// to stop. A poll that a later one replaced gets a session and nothing else.
func (s *Scheduler) answerLocked(x *session, q *poll, all bool) job.PollReply {
	mono, now := s.o.Clock.Mono(), job.At(s.o.Clock.Now())
	next := q.seen
	next.Serial, next.Nonce = q.seen.Serial+1, newNonce()
	out := job.PollReply{Lease: job.Duration(s.o.TTL), Waited: job.Duration(mono - q.came), Runs: []job.Assignment{}}
	size := 0
	line := slices.Clone(x.line)
	if mutant.On(mutant.OutOfOrder) {
		slices.Reverse(line)
	}
	for _, c := range line {
		if !all {
			break
		}
		if c.canceling && c.unsent { // so there is nothing to stop
			s.notToldLocked(c, job.OutcomeCanceled)
			continue
		}
		if size += 256 + len(c.assignment.Payload); len(out.Runs) > 0 && (len(out.Runs) == maxPollRuns ||
			size > maxPollBytes) {
			break // it is next
		}
		if c.unsent = false; x.ahead == 0 {
			c.started = now
		}
		c.timeout = cmp.Or(max(time.Duration(c.assignment.Timeout), 0), time.Duration(job.DefaultTimeout))
		c.deadline = mono + c.timeout
		s.extendLocked(c, mono)
		next.Fence = max(next.Fence, c.fence)
		out.Runs = append(out.Runs, *c.assignment)
	}
	if all {
		for _, c := range x.stops(false) {
			c.stopSaid = true
			out.Stop = append(out.Stop, job.Stop{Ref: c.ref(), Why: job.StopCanceled})
		}
		out.Watch, x.watch = x.watch, nil
		if q.Shared {
			out.Ready = x.ready
		}
	}
	if mutant.On(mutant.GiveTwice) {
		for _, y := range s.sessions {
			for _, c := range y.line {
				if y != x && !c.unsent && slices.Equal(y.types, x.types) {
					out.Runs = append(out.Runs, *c.assignment)
				}
			}
		}
	}
	out.Session = next.String()
	return out
}

func (c *claim) ref() job.Ref { return job.Ref{Fence: c.fence, Run: c.run} }

// stops are the attempts that are to stop. A poll names each once, or it would return at once for ever; every heartbeat
// that names one is told.
func (x *session) stops(said bool) (out []*claim) {
	if x.canceling == 0 {
		return nil
	}
	for _, c := range x.claims {
		if c.canceling && c.stopSaid == said && c.pending == nil && !c.unsent {
			out = append(out, c)
		}
	}
	return out
}

// pollEndedLocked notes that no poll of a session waits any more. What was claimed for a caller that hung up goes back;
// one whose offer stands will be back.
func (s *Scheduler) pollEndedLocked(x *session, p *job.Poll, err error) {
	x.poll, x.polled = nil, s.o.Clock.Mono()
	if errors.Is(err, context.Canceled) {
		x.hold = min(x.hold, s.maxSleep()) // it gave the poll up and will be back at once, or it is dead
	}
	if p.Hold <= 0 || p.Leave {
		x.offers = false
		if err != nil {
			s.takeBackLocked(x)
		}
	}
	if !x.inHand() && p.Session == "" {
		s.removeLocked(x) // polls that stand for themselves leave nothing behind
	}
}

// takeBackLocked has claims that were in no answer go back.
func (s *Scheduler) takeBackLocked(x *session) {
	for _, c := range slices.Clone(x.line) {
		if c.unsent {
			s.notToldLocked(c, job.OutcomeReturned)
		}
	}
}

// notToldLocked ends a claim that its worker was never told of, or did not receive: nothing is lost by that, not even
// with at_most_once.
func (s *Scheduler) notToldLocked(c *claim, o job.Outcome) {
	c.x.arrive(c)
	c.unsent = false
	r := job.Result{Ref: c.ref(), Outcome: o}
	if o == job.OutcomeCanceled {
		r.Error = "canceled before the worker was given the run"
	}
	s.addResultLocked(c, r, nil)
}

// matched tells the polls that were given something by the last claims that the loop has looked since: what is not
// reserved for them by now is not there.
func (l *loop) matched() {
	if len(l.polled) == 0 {
		return
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	for _, x := range l.polled {
		if x.reserved == 0 && x.more {
			x.more = false
			x.wakePolls()
		}
	}
	clear(l.polled)
	l.polled = l.polled[:0]
}

// cancelLocked makes a claim's worker stop it. If the worker has not been told of it yet, it never is.
func (s *Scheduler) cancelLocked(c *claim) {
	x := c.x
	if !c.canceling {
		c.canceling = true
		x.canceling++
	}
	switch {
	case c.pending != nil || x.gone:
	case c.unsent:
		s.notToldLocked(c, job.OutcomeCanceled)
	default:
		x.wakePolls()
	}
}
