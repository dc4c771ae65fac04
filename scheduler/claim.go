package scheduler

import (
	"errors"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/scheduler/decide"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	maxClaimBytes = 256 << 10
	// maxClaimPayload bounds the payloads that a batch on its way keeps in memory, for the assignments that are made of
	// it.
	maxClaimPayload = 8 << 20
	claimOverhead   = 80 // of an item in a claim
	// buildChunk is how many definitions are read in one view.
	buildChunk = 128
	// buildLimit bounds how long one batch may be in the making: counting what an outage swallowed can take
	// milliseconds a job.
	buildLimit = 50 * time.Millisecond
)

// pick is a ready entry matched with a session that has a slot for it.
type pick struct {
	item
	b *bucket
	x *session

	job       *info
	blackouts []*schedule.Blackout
	attempts  uint16 // of an extra entry with a deadline
	key       string
	decision  decide.Decision
}

// claim proposes one batch of claims, if there is work, a slot and room in the log. It says whether to try for another
// one.
func (l *loop) claim() bool {
	s := l.s
	s.mu.Lock()
	if s.inFlight >= maxInFlight || l.ready == 0 || len(l.advances) >= maxWaitingAdvances ||
		s.inFlight > 0 && !l.worthwhileLocked() {
		s.mu.Unlock()
		return false
	}
	picks := l.match(maxBatch)
	s.mu.Unlock()
	if len(picks) == 0 {
		return false
	}
	claims := l.build(picks)
	if len(claims) == 0 {
		return true
	}
	slices.SortFunc(claims, func(a, b pick) int {
		if less(&a.DueKey, &b.DueKey) {
			return -1
		}
		return 1
	})
	l.propose(claims)
	return true
}

// worthwhileLocked says whether there are enough slots and entries for another batch while one is in flight.
func (l *loop) worthwhileLocked() bool {
	if l.ready < worthwhile {
		return false
	}
	free := 0
	for _, x := range l.s.sessions {
		if free += x.free(); free >= worthwhile {
			return true
		}
	}
	return false
}

// build computes what each pick's claim says. What is not to be claimed after all goes its own way and gives its slot
// back. It returns a slice of its own: the batch in flight keeps it.
func (l *loop) build(picks []pick) []pick {
	began := l.s.o.Clock.Mono()
	claims := make([]pick, 0, len(picks))
	size, payload := 0, 0
	for start := 0; start < len(picks); start += buildChunk {
		chunk := picks[start:min(start+buildChunk, len(picks))]
		if err := l.load(chunk); err != nil {
			l.noteScan(err)
			l.giveBack(picks[start:])
			return claims
		}
		for i := range chunk {
			p := &chunk[i]
			switch {
			case size > maxClaimBytes || payload > maxClaimPayload || l.s.o.Clock.Mono()-began > buildLimit:
				l.giveBack(picks[start+i:])
				return claims
			case l.judge(p):
				claims = append(claims, *p)
				size += claimOverhead + len(p.key)
				payload += len(p.job.def.Spec.Payload)
			default:
				l.release(p)
				l.claimResolved(p, false)
			}
		}
	}
	return claims
}

// load reads the jobs of some picks.
func (l *loop) load(picks []pick) error {
	return l.s.st.View(func(v *store.View) error {
		for i := range picks {
			p := &picks[i]
			if err := l.lookUp(v, p); err != nil {
				// Nothing can be done about it through the log: apply would stop at the same record. The others go on.
				l.s.log.Error("due entry not handled; run `carillon check`", "job", p.Job, "error", err)
				p.job = nil
			}
		}
		return nil
	})
}

// calendar is where calendars are looked up in.
func (s *Scheduler) calendar(v *store.View) func(namespace, name string) []byte {
	if s.o.Calendar != nil {
		return s.o.Calendar
	}
	return v.Calendar
}

func (l *loop) lookUp(v *store.View, p *pick) (err error) {
	if p.Kind == store.KindOccurrence {
		p.job, err = l.catalog.occurrence(v, p.Job, p.gen)
	} else {
		p.job, err = l.catalog.open(v, p.Job)
	}
	if err != nil || p.job == nil || p.job.bad != "" {
		return err
	}
	spec := &p.job.def.Spec
	switch {
	case p.Kind == store.KindOccurrence && len(spec.Calendars) > 0:
		p.blackouts = l.catalog.calendars.Blackouts(l.s.calendar(v), spec, func(name, why string) {
			l.s.log.Warn("calendar not usable; the job fires as without it", "job", p.Job, "calendar", name,
				"error", why)
		})
	case p.Kind == store.KindExtra && spec.Deadline > 0:
		row, ok, err := v.Run(p.Run())
		if err != nil {
			return err
		}
		if ok {
			p.attempts = row.Attempt
		}
	}
	return nil
}

// judge says whether an entry is to be claimed now. If not, it has been put where it belongs.
func (l *loop) judge(p *pick) bool {
	if p.job == nil {
		l.refused(p.DueKey) // its job is gone, and so is the entry
		return false
	}
	bad := p.job.bad
	if bad == "" && (p.Kind == store.KindOccurrence || p.job.def.Spec.Deadline > 0) {
		bad = l.catalog.compile(p.job)
	}
	var f decide.Decision
	if bad == "" {
		f, bad = l.decideOn(p)
	}
	if bad != "" {
		l.bad = append(l.bad, quarantine{p.DueKey, p.job.gen, bad})
		return false
	}
	if !f.Claim {
		a := advance{key: p.DueKey, gen: p.gen, decision: f, keys: make([]string, len(f.Rows))}
		if spec := &p.job.def.Spec; spec.IdempotencyKey != "" {
			for i, at := range f.Rows {
				a.keys[i] = job.IdempotencyKey(spec.IdempotencyKey, spec.Name,
					job.RunKey{Job: p.Job, At: at, Origin: job.OriginSchedule})
			}
		}
		l.advances = append(l.advances, a)
		return false
	}
	p.decision = f
	if spec := &p.job.def.Spec; spec.IdempotencyKey != "" && p.Kind == store.KindOccurrence {
		p.key = job.IdempotencyKey(spec.IdempotencyKey, spec.Name, p.Run())
	}
	return true
}

// decideOn decides about an entry, and notes when it may no longer start.
func (l *loop) decideOn(p *pick) (decide.Decision, string) {
	spec := &p.job.def.Spec
	p.looked = true
	if p.Kind != store.KindOccurrence {
		if spec.Deadline > 0 {
			p.expires = decide.Expiry(spec, p.job.sched.Delay(), p.DueKey, p.attempts)
		}
		if p.expires > 0 && l.now > p.expires {
			gap := fsm.Gap{First: p.At, Last: p.At, Count: 1, Status: job.RunExpired, Reason: job.ReasonDeadline}
			return decide.Decision{Gap: gap}, ""
		}
		return decide.Decision{Claim: true}, ""
	}
	if d := time.Duration(spec.Deadline); d > 0 {
		p.expires = p.At + (d + p.job.sched.Delay()).Milliseconds()
	}
	return decide.Decide(l.occurrence(p), l.now, l.outages)
}

func (l *loop) occurrence(p *pick) *decide.Occurrence {
	return &decide.Occurrence{
		Spec: &p.job.def.Spec, Sched: p.job.sched, Blackouts: p.blackouts,
		Created: p.job.def.CreatedAt, Updated: p.job.def.UpdatedAt,
		At: p.At, Ready: p.Ready, Runs: p.runs, Released: l.released, Pauses: p.pauses,
	}
}

// giveBack puts picks back where they came from, first ones first, and frees their slots.
func (l *loop) giveBack(picks []pick) {
	for i := len(picks) - 1; i >= 0; i-- {
		p := &picks[i]
		l.putBack(p)
		l.release(p)
		l.claimResolved(p, false)
	}
}

func (l *loop) release(p *pick) {
	l.s.mu.Lock()
	p.x.reserved--
	p.x.count(p.b.class.space, -1)
	l.s.mu.Unlock()
}

// propose sends a batch. Its slots stay reserved until its outcome is known; if that stays unknown, until the epoch
// ends.
func (l *loop) propose(claims []pick) {
	s := l.s
	cmd := claimCommand(s.head(l.now), claims)
	s.mu.Lock()
	s.inFlight++
	s.mu.Unlock()
	before, done := l.dispatched, make(chan struct{})
	l.dispatched = done
	early := false
	if mutant.On(mutant.DispatchEarly) {
		early = dispatchEarly(s, cmd.Head.Now, claims)
	}
	claim := submission{cmd, func(reply *fsm.Reply, err error) {
		if err == nil && len(reply.Items) != len(claims) {
			err = errors.New("the reply has the wrong number of items")
		}
		if before != nil {
			<-before // in the order of the log: the fences of a session only grow
		}
		if err == nil && !early {
			s.dispatch(cmd.Head.Now, claims, reply)
		}
		close(done)
		s.mu.Lock()
		s.inFlight--
		if s.inFlight == 0 {
			clear(s.early)
		}
		s.mu.Unlock()
		s.post(func() { l.claimed(cmd.Head.Now, claims, reply, err) })
	}}
	if results, ok := s.completeAhead(); ok {
		s.submitAll(results, claim)
		return
	}
	s.submitAll(claim)
}

func claimCommand(h fsm.Head, claims []pick) *fsm.Claim {
	n := len(claims)
	c := &fsm.Claim{Head: h, Lane: make([]byte, n), Kind: make([]byte, n), Ready: make([]int64, n),
		Jobs: make([]uint64, n),
		At:   make([]int64, n), Gen: make([]uint32, n), Next: make([]int64, n), NextReady: make([]int64, n),
		Worker: make([]uint16, n), Timeout: make([]int64, n), Version: make([]uint64, n)}
	workers := map[*session]uint16{}
	for i := range claims {
		p := &claims[i]
		w, ok := workers[p.x]
		if !ok {
			w = uint16(len(c.Workers)) // a batch is far smaller than 65,536
			workers[p.x] = w
			c.Workers = append(c.Workers,
				fsm.WorkerRef{Name: p.x.key.worker, Incarnation: p.x.key.incarnation, Owner: p.x.owner})
		}
		c.Lane[i], c.Kind[i] = byte(p.Lane), byte(p.Kind)<<4|byte(p.Origin)
		c.Ready[i], c.Jobs[i], c.At[i], c.Gen[i] = p.Ready, uint64(p.Job), p.At, p.job.gen
		c.Next[i], c.NextReady[i], c.Worker[i] = p.decision.Next.At, p.decision.Next.Ready, w
		c.Timeout[i], c.Version[i] = time.Duration(p.job.def.Spec.Timeout).Milliseconds(), p.job.def.Version
		if p.decision.Last || p.decision.Due {
			if c.Flags == nil {
				c.Flags = make([]byte, n)
			}
			c.Flags[i] = p.decision.Flags()
		}
		if p.decision.Gap.Count > 0 {
			c.Late = append(c.Late, fsm.Late{Item: uint16(i), Gap: p.decision.Gap})
		}
		if p.key != "" {
			if c.Keys == nil {
				c.Keys = make([]string, n)
			}
			c.Keys[i] = p.key
		}
	}
	return c
}

// dispatch hands committed claims to their sessions. It is the only place where a worker learns of a run.
func (s *Scheduler) dispatch(now int64, claims []pick, reply *fsm.Reply) {
	fills := s.fillAll(claims, reply)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return // the next leader hands them to their workers
	}
	touched := map[*session]struct{}{}
	mono := s.o.Clock.Mono()
	for i := range claims {
		p, o := &claims[i], &reply.Items[i]
		p.x.reserved--
		p.x.count(p.b.class.space, -1)
		if o.Code != fsm.CodeClaimed {
			continue
		}
		c := &claim{run: o.Run, space: p.b.class.space, fence: o.Fence, attempt: o.Attempt, claimedAt: now,
			unsent: true, until: mono + s.leaseTime()}
		s.add(p.x, c)
		if !p.x.offers || !maySee(p.x, p.job.secrets) {
			s.notToldLocked(c, job.OutcomeReturned)
			continue
		}
		a := s.assignment(c, o.Key, &p.job.def.Spec)
		s.lineUpLocked(c, a, fills[i])
		if i > 0 && mutant.On(mutant.MixPayload) {
			a.Payload = claims[i-1].job.def.Spec.Payload
		}
		touched[p.x] = struct{}{}
		if _, ok := s.early[c.fence]; ok {
			delete(s.early, c.fence)
			s.cancelLocked(c)
		}
	}
	for x := range touched {
		x.wakePoll()
	}
}

func (s *Scheduler) assignment(c *claim, key string, spec *job.Spec) *job.Assignment {
	if key == "" {
		k := c.run
		if k.Origin == job.OriginSchedule && mutant.On(mutant.ReuseKey) {
			k.At -= k.At % 120_000
		}
		key = job.IdempotencyKey("", spec.Name, k)
	}
	space := spec.Namespace
	if space == job.DefaultNamespace {
		space = "" // it is not sent
	}
	return &job.Assignment{Run: c.run, JobName: spec.Name, Namespace: space,
		Attempt: int(c.attempt), Fence: c.fence, Key: key, Type: spec.Type, Payload: spec.Payload,
		Timeout: spec.Timeout, Delivery: spec.Delivery, ClaimedAt: job.Instant(c.claimedAt),
		Traceparent: s.o.Traces.Traceparent(s.cluster, c.run, c.fence)}
}

// claimed does the loop's bookkeeping after a batch.
func (l *loop) claimed(now int64, claims []pick, reply *fsm.Reply, err error) {
	m := &l.s.o.Metrics
	if err != nil {
		outcome := "unknown"
		if errors.Is(err, ErrNotApplied) {
			outcome = "not_applied"
			l.refusedAll(err)
			l.giveBack(claims)
		} else {
			// It may still be committed. Telling a worker now could make two of them run it; not telling costs at most
			// the rest of this leadership.
			l.s.log.Error("claims with unknown outcome; the next leadership settles them", "claims", len(claims),
				"error", err)
			l.s.mu.Lock()
			l.s.unknown += len(claims)
			l.s.mu.Unlock()
		}
		if m.Claims != nil {
			m.Claims(outcome, len(claims))
		}
		return
	}
	l.accepted()
	l.progress = l.s.o.Clock.Mono()
	var count [fsm.CodeBusy + 1]int
	var busy []pick
	for i := range claims {
		p, code := &claims[i], reply.Items[i].Code
		count[min(code, fsm.CodeBusy)]++
		l.claimResolved(p, code == fsm.CodeClaimed)
		switch code {
		case fsm.CodeClaimed:
			l.settled(p.DueKey)
			if p.Kind == store.KindOccurrence && m.Lag != nil {
				// A one-off for a time in the past is late only from when it was created.
				m.Lag(p.Run(), time.Duration(now-max(p.Ready, p.job.def.CreatedAt))*time.Millisecond)
			}
		case fsm.CodeSkipped, fsm.CodeQueued:
			l.settled(p.DueKey)
		case fsm.CodeRefused:
			// What was computed for it makes no sense, and would not the next time: that must show on the job.
			l.bad = append(l.bad, quarantine{p.DueKey, p.job.gen, "a claim was refused: " + reply.Items[i].Text})
			continue
		case fsm.CodeBusy:
			busy = append(busy, *p)
			continue
		default:
			l.refused(p.DueKey)
			continue
		}
		if p.decision.Next.At != 0 && (!p.decision.Last || code == fsm.CodeSkipped) {
			l.mark(store.DueMark{Lane: p.Lane, Ready: p.decision.Next.Ready}) // announcements are only a hint
		}
	}
	l.unclaimed(busy)
	if m.Claims == nil {
		return
	}
	for code, name := range map[fsm.Code]string{fsm.CodeClaimed: "claimed", fsm.CodeSkipped: "skipped",
		fsm.CodeQueued: "queued", fsm.CodeStale: "stale", fsm.CodeBusy: "busy"} {
		if count[code] > 0 {
			m.Claims(name, count[code])
		}
	}
}

// dispatchEarly is what a mutant does in place of dispatch: it tells the workers what the log will probably say.
func dispatchEarly(s *Scheduler, now int64, claims []pick) bool {
	reply := &fsm.Reply{}
	fence := s.st.Counters().Fence
	for i := range claims {
		if claims[i].Kind != store.KindOccurrence {
			return false
		}
		reply.Items = append(reply.Items, fsm.Outcome{Code: fsm.CodeClaimed, Run: claims[i].Run(),
			Fence: fence + uint64(i) + 1, Attempt: 1, Key: claims[i].key})
	}
	s.dispatch(now, claims, reply)
	return true
}
