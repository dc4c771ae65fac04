package scheduler

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// incarnationBits follow the term in an incarnation, so that numbers grow over leaderships.
	incarnationBits = 20
	// pullBit is set in the incarnations of pull sessions, so that the next leader knows whose claims have leases of
	// their own.
	pullBit     = 1 << (incarnationBits - 1)
	maxPollWait = time.Minute
	// drainTick is how often the last poll of a worker looks whether claims for it are still on their way through the
	// log, and drainLimit how long.
	drainTick  = 5 * time.Millisecond
	drainLimit = 500 * time.Millisecond
)

// Register opens a session: of a new process (Incarnation 0), or of one that comes from another leader or lost its
// session.
func (s *Scheduler) Register(ctx context.Context, r job.Register) (job.Session, error) {
	if err := checkRegister(&r); err != nil {
		return job.Session{}, err
	}
	leaving, err := s.standing(&r)
	if err != nil {
		return job.Session{}, err
	}
	// It may come from the leader that took our place: what it did there we would send it again.
	if err := s.confirm(ctx, confirmNow); err != nil && !mutant.On(mutant.LowerTerm) {
		return job.Session{}, err
	}
	mono := s.o.Clock.Mono()
	// Not with the lock held: views of the store wait for it, and a commit that waits for them keeps readers out. A
	// hold that ends meanwhile has closed the claims that it is asked for.
	onHold := s.st.Info().Hold.On
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.servingLocked(); err != nil {
		return job.Session{}, err
	}
	answer := job.Session{
		SessionRef: job.SessionRef{Worker: r.Worker, Incarnation: r.Incarnation, Group: s.group, Term: s.o.Term,
			Registration: r.Registration}, TTL: job.Duration(s.o.TTL),
	}
	if r.Registration != 0 && (r.Term != s.o.Term || r.Incarnation == 0) {
		// It may have been sent to another leader, or long ago, and what its worker is and holds may have changed
		// since.
		answer.Again = true
		if r.Incarnation == 0 {
			var err error
			answer.Incarnation, err = s.issueLocked()
			return answer, err
		}
		return answer, nil
	}
	if x := s.sessions[sessionKey{r.Worker, r.Incarnation}]; x != nil && x.registered && x.pull == nil &&
		r.Registration != 0 && r.Registration <= x.registration {
		if x.forked != "" {
			return job.Session{}, forkedError(x)
		}
		if r.Registration == x.registration && x.owner == ownerOf(&r) {
			return answer, nil // sent twice
		}
		return job.Session{}, job.Errorf(job.CodeStale, "register as a new process",
			"a later registration of the worker %q arrived before this one", r.Worker)
	}
	x, err := s.sessionForLocked(&r, mono, onHold)
	if err != nil {
		return job.Session{}, err
	}
	answer.Incarnation = x.key.incarnation
	x.registered, x.registration = true, r.Registration
	x.owner, x.where, x.node, x.leaving = ownerOf(&r), r.Where, r.Node, leaving
	x.version, x.types, x.tags, x.slots = r.Version, r.Types, r.Tags, r.Slots
	x.namespace, x.secrets = r.Namespace, r.Secrets
	x.ahead = r.Prefetch
	x.heard, x.heardAt, x.polled = mono, s.o.Clock.Now(), mono
	x.withheld, x.draining = 0, false
	x.credited, x.credit, x.polls, x.ready = r.Credit, 0, 0, 0
	if r.Credit {
		s.credited.Store(true)
	}
	x.beatLast, x.beatsSeen = 0, nil
	s.version++
	wait.Wake(s.wake)
	s.log.Info("worker registered", "worker", r.Worker, "where", r.Where, "incarnation", x.key.incarnation,
		"slots", r.Slots, "held", len(r.Held), "open", x.open)
	return answer, nil
}

// issueLocked makes the number of a new process.
func (s *Scheduler) issueLocked() (uint64, error) {
	if s.nextInc++; s.nextInc >= pullBit {
		return 0, job.Errorf(job.CodeUnavailable, "transfer the leadership",
			"this leadership has used up its incarnation numbers")
	}
	return s.o.Term<<incarnationBits | s.nextInc, nil
}

func checkRegister(r *job.Register) error {
	switch {
	case r.Worker == "" || len(r.Worker) > job.MaxName:
		return job.Invalid("worker", "use a name that is unique in the cluster",
			"a worker needs a name of at most %d bytes", job.MaxName)
	case r.Secret == "":
		return job.Invalid("secret", "send a random text that only this process knows",
			"a worker needs a secret: without one any other worker could take over its registration")
	case len(r.Where) > maxWhere:
		return job.Invalid("where", "shorten it", "it has more than %d bytes", maxWhere)
	case len(r.Version) > maxWhere:
		return job.Invalid("version", "shorten it", "it has more than %d bytes", maxWhere)
	case r.Slots < 1 || r.Slots > maxSlots:
		return job.Invalid("slots", "", "%d is not between 1 and %d", r.Slots, maxSlots)
	case r.Prefetch < 0 || r.Prefetch >= r.Slots:
		return job.Invalid("prefetch", "they count as slots", "%d is not between 0 and %d", r.Prefetch, r.Slots-1)
	case r.Namespace != "" && !job.NamespaceName(r.Namespace):
		return job.CheckNamespace(r.Namespace)
	case len(r.Types) == 0:
		return job.Invalid("types", "name the types of runs it can carry out", "a worker needs at least one type")
	}
	return nil
}

// adoptLocked goes on with a session whose worker comes with what it holds. A worker's set is every assignment it
// received and has no acknowledged result of, so what it does not hold it never received: that is sent again, same
// claim, same fence.
func (s *Scheduler) adoptLocked(x *session, held []job.Held, onHold bool) {
	has := make(map[uint64]bool, len(held))
	for _, h := range held {
		has[h.Fence] = true
		if c := x.claims[h.Fence]; c != nil {
			c.started, c.assignment, c.unsent = h.StartedAt, nil, false
		}
	}
	line := append(x.sent, x.waiting...)
	x.sent, x.waiting, x.number = nil, nil, 0
	for _, c := range line {
		if c.assignment != nil {
			c.unsent = true
			x.waiting = append(x.waiting, c)
		}
	}
	var unknown []*claim
	for _, c := range x.claims {
		c.number, c.absent, c.cancelSent = 0, 0, false
		if x.registered || has[c.fence] {
			continue
		}
		if onHold {
			continue // it may have been done with in the cluster that the backup was taken from: the release closes it
		}
		c.unsent = true // claimed under an earlier leader, and its worker was never told
		if c.canceling {
			s.cancelLocked(c)
		} else {
			unknown = append(unknown, c)
		}
	}
	s.resendLocked(x, unknown)
}

// resendLocked has the assignments of claims that an earlier leader made sent again.
func (s *Scheduler) resendLocked(x *session, claims []*claim) {
	if len(claims) > 0 {
		x.resending += len(claims)
		s.wg.Go(func() { s.resend(x, claims) })
	}
}

// resend reads the definitions of the claims from the store, which is not read under the lock.
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
			switch {
			case s.ended || x.gone || x.claims[c.fence] != c || c.pending != nil || !c.unsent:
			case out[i] == nil:
				s.takeAwayLocked(c)
			case c.canceling:
				s.cancelLocked(c)
			case fills[i] != nil && !maySee(x, fills[i].uses.names):
				s.takeAwayLocked(c)
			case fills[i] != nil && fills[i].err != nil:
				s.lacksLocked(c, fills[i])
			default:
				c.assignment, c.unmasked = out[i], fills[i].hides()
				x.waiting = append(x.waiting, c)
			}
		}
		x.resending -= len(chunk)
		x.wakePolls()
		s.mu.Unlock()
	}
}

// sessionLocked finds the session of a call.
func (s *Scheduler) sessionLocked(ref job.SessionRef) (*session, error) {
	if err := s.servingLocked(); err != nil {
		return nil, err
	}
	x := s.sessions[sessionKey{ref.Worker, ref.Incarnation}]
	if x == nil || !x.registered || x.pull != nil || ref.Group != s.group || ref.Term != s.o.Term ||
		ref.Registration != x.registration {
		return nil, job.Errorf(job.CodeSessionUnknown, "register again",
			"the leader of term %d knows no such session of the worker %q", s.o.Term, ref.Worker)
	}
	if x.forked != "" {
		return nil, forkedError(x)
	}
	return x, nil
}

// Poll waits for assignments, or for attempts that are to stop, and returns empty-handed after a while.
func (s *Scheduler) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	wait := min(max(time.Duration(p.Wait), 0), s.o.Pace.Of(maxPollWait))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	// A worker that has no capacity and does not wait for any is about to leave. It must not miss what is being claimed
	// for it at this moment: that would stay with it, unknown, until its lease ends.
	last := p.Free <= 0 && wait == 0 && p.Number == 0
	began := time.Now()
	var polling *session
	defer func() {
		if polling != nil {
			s.mu.Lock()
			polling.polling--
			polling.polled = s.o.Clock.Mono()
			s.mu.Unlock()
		}
	}()
	for first := true; ; first = false {
		s.mu.Lock()
		x, err := s.sessionLocked(p.Session)
		if err != nil {
			s.mu.Unlock()
			return job.PollReply{}, err
		}
		if first {
			if x.polling >= maxSessionPolls {
				s.mu.Unlock()
				return job.PollReply{}, errPolls(x)
			}
			polling = x
			x.polling++
			x.draining = x.draining || last // a poll that it gave up before may come after its last one
			p.Acked = x.acknowledge(p.Acked)
			before := x.free()
			if x.credited {
				x.grant(&p)
			} else {
				x.offer(p.Free)
			}
			if x.free() > before {
				s.freed()
			}
		}
		numbered := x.credited && p.Number != 0
		if numbered && p.Number < x.polls {
			s.mu.Unlock()
			return job.PollReply{}, nil // its worker has given it up
		}
		long := time.Since(began) >= drainLimit
		if last && x.expects() && long {
			s.mu.Unlock()
			return job.PollReply{}, errExpects(x)
		}
		// One that takes credit back waits until nothing is on its way above what it leaves.
		if last && x.expects() || numbered && wait == 0 && !long && !x.settled(p.Free, len(x.waiting)+len(x.sent)) {
			s.mu.Unlock()
			select {
			case <-time.After(drainTick):
			case <-ctx.Done():
				return job.PollReply{}, ctx.Err()
			case <-s.done:
			}
			continue
		}
		reply := x.collect(p.Acked)
		reply.Cancel = x.cancels(false)
		reply.Watch = x.takeWatch()
		hint := false
		if numbered {
			if reply.Ready = x.ready; x.settled(p.Free, len(reply.Assignments)) {
				reply.Number = p.Number
			}
			hint = p.Free <= 0 && !p.Told && x.ready > 0
		}
		wake := x.wake
		s.mu.Unlock()
		if len(reply.Assignments) > 0 || len(reply.Cancel) > 0 || len(reply.Watch) > 0 || wait == 0 || hint {
			return reply, nil
		}
		select {
		case <-wake:
		case <-timer.C:
			return reply, nil
		case <-ctx.Done():
			return reply, ctx.Err()
		case <-s.done:
		}
	}
}

// errExpects sends a worker that is about to leave back for what it would otherwise miss.
func errExpects(x *session) error {
	return job.Errorf(job.CodeUnavailable, "poll again", "runs for the worker %q are on their way", x.key.worker)
}

// Heartbeat extends a session's lease and compares what the worker holds with what it was given.
func (s *Scheduler) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	if err := s.confirm(ctx, s.o.TTL/confirmShare); err != nil {
		return job.HeartbeatReply{}, err
	}
	mono := s.o.Clock.Mono()
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.sessionLocked(h.Session)
	if err != nil {
		return job.HeartbeatReply{}, err
	}
	if err := s.hearLocked(x, &h); err != nil {
		return job.HeartbeatReply{}, err
	}
	x.heard, x.heardAt = mono, s.o.Clock.Now()
	acked := x.acknowledge(h.Acked)
	if before := x.free(); !x.credited && (x.polling > 0 || mono-x.polled <= s.o.TTL) {
		x.offer(h.Free) // one that does not poll does not collect what it is given
		if x.free() > before {
			s.freed()
		}
	}
	var stop []uint64
	x.beats++
	for _, held := range h.Held {
		c := x.claims[held.Fence]
		if c == nil {
			stop = append(stop, held.Fence) // it was taken away, or its result is committed
			continue
		}
		c.beat = x.beats
		if held.StartedAt != 0 {
			c.started = held.StartedAt
		}
	}
	for _, c := range x.claims {
		// What the worker had not received when it sent this cannot be missing from it, and a result that is on its way
		// may have crossed it. A run is given up only if a worker twice in a row does not know of it.
		if c.beat == x.beats || c.pending != nil || (c.unsent || c.number > acked) && !mutant.On(mutant.RacingBeat) {
			c.absent = 0
			continue
		}
		if c.absent++; (c.absent >= 2 || mutant.On(mutant.RacingBeat)) && !c.expiring {
			s.log.Warn("run lost by its worker", "worker", x.key.worker, "run", c.run, "fence", c.fence)
			s.takeAwayLocked(c)
		}
	}
	return job.HeartbeatReply{Cancel: append(stop, x.cancels(true)...), Nonce: newNonce()}, nil
}

// cancelLocked makes a claim's worker stop it. If the worker has not been told of it yet, it never is.
func (s *Scheduler) cancelLocked(c *claim) {
	x := c.x
	if !c.canceling {
		c.canceling = true
		x.canceling++
	}
	if c.pending != nil || x.gone {
		return
	}
	if c.unsent {
		x.waiting = without(x.waiting, c)
		c.assignment, c.unsent = nil, false
		s.addResultLocked(c, job.Result{Run: c.run, Fence: c.fence, Outcome: job.OutcomeCanceled,
			Error: "canceled before the worker was given the run"}, nil)
		return
	}
	x.wakePolls()
}
