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
	// waitShare is the part of a lease that a poll may wait at most: its worker counts two thirds of the lease from
	// when it sent the poll, and what is left must suffice for the first heartbeat.
	waitShare = 3
	// pollFloor is what a poll that asks for runs waits at least, or it would be gone before anything is claimed for
	// it.
	pollFloor = 100 * time.Millisecond
	// nodeWait is what the poll of a node waits at most: each one looks whether the node is a member still.
	nodeWait = 5 * time.Second
	// maxHold is how long an offer stands at most without a poll.
	maxHold = 5 * time.Second
	// settleTick is how often a poll looks whether claims for it are still on their way through the log, settleLimit
	// how long. When nothing came for settleQuiet, nothing follows.
	settleTick  = 5 * time.Millisecond
	settleQuiet = 20 * time.Millisecond
	settleLimit = 500 * time.Millisecond

	maxPollRuns  = 1024
	maxPollBytes = 1 << 20
)

// poll is one that waits.
type poll struct {
	*job.Poll
	seen     job.Session   // the session that it has
	wake     chan struct{} // a latch of size one: there may be something for it
	came     time.Duration // when it did, on Clock.Mono
	replaced bool          // by a later one
	over     bool          // it has waited as long as it may

	settle time.Time // when what is on its way is not waited for any more; zero: it has nothing to say yet
	runs   int       // that there were at the last look
	grew   time.Time // when there were others, or some on their way
}

// Poll waits for runs, or for attempts that are to stop, and returns empty-handed after a while. A poll that opens a
// session, and one with the session of an earlier leader, are answered at once with a session of this term and decide
// nothing: such a message may have been on its way for long, and what its worker has and is may have changed since.
func (s *Scheduler) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	// Not with the lock held: views of the store wait for it, and a commit that waits for them keeps readers out.
	seen, decides, err := s.readSession(&p)
	if err == nil && decides && p.Queue.Name != "" {
		err = KnownQueue(s.st, p.Queue)
	}
	if err == nil && decides {
		err = s.standing(&p, keyOf(seen))
	}
	onHold := s.st.Info().Hold.On
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = cmp.Or(s.servingLocked(), err); err != nil {
		return job.PollReply{}, err
	}
	if !decides {
		return job.PollReply{Session: seen.String(), Opened: true, Lease: job.Duration(s.o.TTL),
			Runs: []job.Assignment{}}, nil
	}
	x, err := s.enterLocked(&p, seen, onHold)
	if err != nil {
		return job.PollReply{}, err
	}
	q := &poll{Poll: &p, seen: seen, wake: make(chan struct{}, 1), came: s.o.Clock.Mono()}
	if x.poll != nil {
		x.poll.replaced = true // its worker gave it up, and does not read the answer
		x.wakePoll()
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
	seen.Nonce = mathrand.Uint64()
	if p.Session == "" {
		seen.Worker = cmp.Or(p.Worker, "worker-"+strings.ToLower(rand.Text()[:8]))
		seen.Incarnation = s.o.Term<<32 | uint64(s.opened.Add(1)) // later processes have higher ones
		seen.Owner = ownerOf(p, seen.Worker)
		return seen, p.Secret == "" && p.Free > 0, nil
	}
	was, err := s.parseSession(p.Session)
	switch {
	case err != nil:
	case p.Worker != "" && p.Worker != was.Worker:
		err = job.Invalid("worker", "leave one of them out", "the session belongs to the worker %q", was.Worker)
	case was.Fence > s.st.Counters().Fence: // it would hold up every delivery
		err = sessionUnknown(was.Worker, "it is not of this cluster's history")
	case !was.Before(s.session) || mutant.On(mutant.OldReceipt):
		return was, true, nil
	default:
		seen.Worker, seen.Incarnation, seen.Owner, seen.Fence = was.Worker, was.Incarnation, was.Owner, was.Fence
	}
	return seen, false, err
}

// parseSession reads the text of a session with this group, of this leader or of an earlier one. Without a text it has
// the term 0.
func (s *Scheduler) parseSession(text string) (job.Session, error) {
	if text == "" {
		return job.Session{}, nil
	}
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

// enterLocked finds the session of a poll, or makes it known to this leader: one that was just opened, one that an
// earlier leader gave runs, or one that was forgotten because it was idle.
func (s *Scheduler) enterLocked(p *job.Poll, seen job.Session, onHold bool) (*session, error) {
	key, version := keyOf(seen), s.version
	x := s.sessions[key]
	switch {
	case x != nil && x.owner != seen.Owner:
		return nil, sessionUnknown(seen.Worker, "another process has it")
	case x == nil || !x.present():
		err := s.takeNameLocked(key, seen.Owner, p)
		if err == nil && x == nil && p.Node == nil {
			err = s.roomLocked(key.worker)
		}
		if err != nil {
			return nil, err
		}
		if x == nil {
			x = &session{key: key, owner: seen.Owner}
			s.addSessionLocked(x)
		}
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
	x.serial, x.nonce, x.heard = seen.Serial, seen.Nonce, s.o.Clock.Mono()
	if p.Shared {
		s.sharing.Store(true)
	}
	before := x.free()
	if x.describe(p) {
		s.version++
	}
	if x.offer(p); x.free() > before || s.version != version {
		s.freed()
	}
	return x, nil
}

// receivedLocked notes which claims the worker has: those up to the fence of the answer that it goes on from.
func (x *session) receivedLocked(fence uint64) {
	n := 0
	for ; n < len(x.line) && x.line[n].fence <= fence; n++ {
		x.line[n].assignment = nil
	}
	x.line = slices.Delete(x.line, 0, n)
}

// inheritedLocked hands out again what an earlier leader claimed for a session that comes for the first time, and what
// its worker has not received: same claim, same fence.
func (s *Scheduler) inheritedLocked(x *session, fence uint64, onHold bool) {
	var unknown []*claim
	x.stops = nil
	for _, c := range x.claims {
		// On hold it may have been done with in the cluster that the backup was taken from: the release closes it.
		if c.unsent = c.fence > fence && !onHold && (c.inherited || mutant.On(mutant.OldReceipt)); c.unsent {
			unknown = append(unknown, c)
		} else if c.canceling {
			x.stops = append(x.stops, job.Stop{Ref: c.ref(), Why: job.StopCanceled})
		}
		c.inherited = false
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
	for chunk := range slices.Chunk(claims, buildChunk) {
		out := make([]*job.Assignment, len(chunk))
		fills := make([]*filled, len(chunk))
		err := s.st.View(func(v *store.View) error {
			for i, c := range chunk {
				out[i], fills[i] = s.sameAssignment(v, c)
			}
			return nil
		})
		if err != nil {
			s.log.Error("assignments not sent again", "worker", x.key.worker, "error", err)
		}
		s.mu.Lock()
		for i, c := range chunk {
			switch f := fills[i]; {
			case s.ended || s.claims[c.fence] != c:
			case c.canceling:
				s.notToldLocked(c, job.OutcomeCanceled)
			case out[i] == nil, f != nil && !maySee(x, f.uses.names):
				s.notToldLocked(c, job.OutcomeReturned)
			default:
				s.lineUpLocked(c, out[i], f)
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	x.resending = false
	x.wakePoll()
	s.mu.Unlock()
	wait.Wake(s.wake)
}

// sameAssignment is what a claim was handed out with; nil: that cannot be had. An edit since the claim would make
// another payload of the same fence: its worker was told of neither, so the run goes back and is claimed anew.
func (s *Scheduler) sameAssignment(v *store.View, c *claim) (*job.Assignment, *filled) {
	row, ok, err := v.Run(c.run)
	if err != nil || !ok || row.Fence != c.fence {
		return nil, nil
	}
	def, ok, err := v.Definition(c.run.Job)
	if err != nil || !ok || def.Version != row.Version && !mutant.On(mutant.ResendEdited) {
		return nil, nil
	}
	return s.assignment(c, row.Key, &def.Spec), s.fill(&def.Spec, def.Spec.SecretRefs())
}

// lineUpLocked puts a claim in line for the polls of its session, unless it lacks a secret.
func (s *Scheduler) lineUpLocked(c *claim, a *job.Assignment, f *filled) {
	if f != nil && f.err != nil {
		s.lacksLocked(c, f)
		return
	}
	c.assignment, c.unmasked = f.into(a), f.hides()
	c.x.line = append(c.x.line, c)
}

// pollLocked waits until there is an answer.
func (s *Scheduler) pollLocked(ctx context.Context, x *session, q *poll) (job.PollReply, error) {
	lasts := min(max(time.Duration(q.Wait), 0), s.o.TTL/waitShare)
	if q.Free > 0 && q.Hold <= 0 {
		lasts = max(lasts, pollFloor)
	}
	if q.Node != nil {
		lasts = min(lasts, nodeWait)
	}
	timer := time.NewTimer(lasts)
	defer timer.Stop()
	q.over = lasts == 0
	for sure := false; ; {
		if err := cmp.Or(s.servingLocked(), ctx.Err()); err != nil {
			return job.PollReply{}, err
		}
		if q.replaced {
			return s.answerLocked(x, q), nil
		}
		var tick <-chan time.Time
		if q.over || x.speaks(q) {
			switch settled, late := x.settled(q); {
			case !settled && !late:
				tick = time.After(settleTick)
			case !settled && q.Free <= 0 && len(x.line) == 0: // it may be about to leave
				return job.PollReply{}, job.Errorf(job.CodeNotReady, "poll again",
					"runs for the worker %q are on their way", x.key.worker)
			case len(x.line) == 0 || sure:
				return s.answerLocked(x, q), nil
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
		s.mu.Unlock()
		sure = false
		select {
		case <-q.wake:
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
	return len(x.line) > 0 || len(x.watch) > 0 || len(x.stops) > 0 || q.Shared && q.Free <= 0 && !q.Told && x.ready > 0
}

// settled says whether an answer would have in it what is being claimed for its worker at this moment; late, that it
// was waited for long enough. A poll whose offer stands gets that with the next one. For any other it would have to go
// back. That one also takes what follows, until it is full or nothing came for a moment: of a job's occurrences the
// next one is due only when the one before is claimed.
func (x *session) settled(q *poll) (settled, late bool) {
	now := time.Now()
	if q.settle.IsZero() {
		q.settle = now.Add(settleLimit)
	}
	if n := len(x.line); n != q.runs || x.reserved > 0 || x.resending {
		q.runs, q.grew = n, now
	}
	late = !now.Before(q.settle)
	if q.Hold > 0 {
		return !x.resending, late
	}
	if q.over || late || now.Sub(q.grew) >= settleQuiet {
		x.capacity = min(x.capacity, x.open) // nothing more is claimed for it
	}
	return !x.resending && x.reserved == 0 && x.free() == 0, late
}

// answerLocked answers a poll: with all that its worker does not have yet, in order of the fences, and with what it is
// to stop. A poll that a later one replaced gets a session and nothing else.
func (s *Scheduler) answerLocked(x *session, q *poll) job.PollReply {
	mono, now := s.o.Clock.Mono(), job.At(s.o.Clock.Now())
	next := q.seen
	next.Serial, next.Nonce = q.seen.Serial+1, mathrand.Uint64()
	out := job.PollReply{Lease: job.Duration(s.o.TTL), Waited: job.Duration(mono - q.came), Runs: []job.Assignment{}}
	if q.replaced {
		out.Session = next.String()
		return out
	}
	size := 0
	line := x.line
	if mutant.On(mutant.OutOfOrder) {
		line = slices.Clone(line)
		slices.Reverse(line)
	}
	for _, c := range line {
		if size += 256 + len(c.assignment.Payload); len(out.Runs) > 0 && (len(out.Runs) == maxPollRuns ||
			size > maxPollBytes) {
			break // it is next
		}
		c.unsent, c.started = false, now
		c.timeout = cmp.Or(max(time.Duration(c.assignment.Timeout), 0), time.Duration(job.DefaultTimeout))
		c.deadline = mono + c.timeout
		c.until = mono + s.leaseTime()
		next.Fence = max(next.Fence, c.fence)
		out.Runs = append(out.Runs, *c.assignment)
	}
	out.Stop, x.stops = x.stops, nil
	out.Watch, x.watch = x.watch, nil
	if q.Shared {
		out.Ready = x.ready
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

// pollEndedLocked notes that no poll of a session waits any more. What it did not get goes back soon, if its worker
// does not come back for that.
func (s *Scheduler) pollEndedLocked(x *session, p *job.Poll, err error) {
	stands := s.maxSleep()
	if !errors.Is(err, context.Canceled) { // otherwise it gave the poll up and will be back at once, or it is dead
		stands = max(stands, min(time.Duration(p.Hold), maxHold))
	}
	x.poll, x.offerEnd = nil, s.o.Clock.Mono()+stands
	x.offers = p.Hold > 0 && !p.Leave
	if !x.inHand() && p.Session == "" {
		s.removeLocked(x) // polls that stand for themselves leave nothing behind
	}
}
