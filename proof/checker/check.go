package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// defaultTTL is the lease of a session if the input does not name one.
const defaultTTL = 30 * time.Second

// checker holds one input against the rules.
type checker struct {
	in        *Input
	rep       Report
	ttl       int64 // of a lease, in ms
	clock     int64 // how far the observer's clock and the stamps may be apart
	latency   int64 // of a message, at most
	lives     map[job.ID]*life
	order     []job.ID
	calendars map[string][]*change
	settings  []*change           // of queues
	claims    map[uint64]*attempt // by fence
	effects   map[uint64][]*Effect
	keyOf     map[string]job.RunKey
	handedAt  map[uint64]int64 // by fence: when its assignment first reached a worker
	// by seq: when a record with a stamp of a clock that was behind was committed, at the latest
	behind map[uint64]int64
	unsure []Outage // when a leader could not confirm that it led
	// of notifications: how often the receiver refused something in a row, at most, and when it did for the last time
	refusals  int
	refusedAt int64
}

// gap is a record of occurrences that did not run.
type gap struct {
	job.Run
	recorded int64 // not later than this
	pending  bool
	used     []int64 // occurrences of the walk in it
}

// runLife is a run from its first claim to its end. A forced backfill gives a run that has ended a second life under
// the same name, and so does one that finds nothing of it in the history any more.
type runLife struct {
	key      job.RunKey
	attempts []*attempt // in the order of their fences
	closed   []job.Run  // ends without an attempt: expired, or canceled before anybody had it
	open     *job.Run
	v        *version // under which it was met, of a run of the schedule
}

// attempt is one claim: a record of the history, or that of an open run.
type attempt struct {
	job.Run
	key      job.RunKey
	recorded int64 // when its end was committed; not later than this
	isOpen   bool
	renewed  bool // a backfill ran its time again, because the history held nothing of it any more
	effect   *Effect
}

// Check holds an input against every rule.
func Check(in *Input) Report {
	c := &checker{in: in, ttl: in.TTL.Milliseconds(), clock: in.ClockError.Milliseconds(),
		latency: in.Latency.Milliseconds(), lives: map[job.ID]*life{}, calendars: map[string][]*change{},
		claims: map[uint64]*attempt{}, effects: map[uint64][]*Effect{}, keyOf: map[string]job.RunKey{}}
	if c.ttl == 0 {
		c.ttl = defaultTTL.Milliseconds()
	}
	c.firstHanded()
	c.stampsBehind()
	c.findUnsure()
	c.gather()
	c.sortHistory()
	c.sortEffects()
	c.outages()
	for _, id := range c.order {
		l := c.lives[id]
		c.account(l)
		if l.w == nil {
			continue
		}
		for _, k := range sortedKeys(l.runs) {
			c.run(l, l.runs[k])
		}
		c.rep.Problems = append(c.rep.Problems, c.definitions(l, l.w)...)
		c.overlap(l)
		c.queueOrder(l)
		c.requests(l)
	}
	c.handed()
	c.leases()
	c.queues()
	c.namespaces()
	c.dead()
	c.trimmed()
	c.cleaned()
	c.notices()
	c.reads()
	c.restored()
	c.epochs()
	c.states()
	c.replicas()
	c.stalled()
	c.rep.Jobs = len(c.order)
	c.rep.Effects = len(in.Effects)
	return c.rep
}

func (c *checker) bad(rule Rule, l *life, at int64, format string, args ...any) {
	p := Problem{Rule: rule, Occurrence: job.Instant(at), Text: fmt.Sprintf(format, args...)}
	if l != nil {
		p.Job, p.Name = l.id, l.name
	}
	c.rep.Problems = append(c.rep.Problems, p)
}

func sortedKeys(m map[job.RunKey]*runLife) []job.RunKey {
	return slices.SortedFunc(maps.Keys(m), func(x, y job.RunKey) int {
		return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.At, y.At), cmp.Compare(x.Origin, y.Origin))
	})
}

// committed is when a record was written, at the latest.
func (c *checker) committed(r *job.Run) int64 {
	if at, ok := c.in.Final.Recorded[r.Seq]; ok && r.Seq != 0 {
		return max(int64(at), c.behind[r.Seq])
	}
	if r.RunID == "" && r.FinishedAt != 0 {
		return int64(r.FinishedAt) // an interval shows the stamp itself
	}
	return int64(c.in.Final.At)
}

func (c *checker) lifeOfRun(k job.RunKey) (*life, *runLife) {
	l := c.lives[k.Job]
	if l == nil {
		return nil, nil
	}
	r := l.runs[k]
	if r == nil {
		r = &runLife{key: k}
		l.runs[k] = r
	}
	return l, r
}

// sortHistory puts each record where it belongs, and looks at it by itself.
func (c *checker) sortHistory() {
	seq := uint64(0)
	for i := range c.in.Final.History {
		h := c.in.Final.History[i]
		if h.Seq <= seq && h.Seq != 0 {
			c.bad(RuleInput, c.lives[h.JobID], 0, "record %d stands behind record %d", h.Seq, seq)
		}
		seq = max(seq, h.Seq)
		l := c.lives[h.JobID]
		if l == nil {
			c.bad(RuleInvented, nil, int64(h.First+h.ScheduledAt), "record %d is about %s, which was never created",
				h.Seq, h.JobID)
			continue
		}
		if h.RunID == "" {
			c.addGap(l, h, false)
			continue
		}
		k := job.RunKey{Job: h.JobID, At: int64(h.ScheduledAt), Origin: h.Origin}
		if k.String() != h.RunID {
			c.bad(RuleInput, l, k.At, "the run id %s says something else than its record", h.RunID)
		}
		_, r := c.lifeOfRun(k)
		if h.Attempt == 0 || h.Fence == 0 {
			r.closed = append(r.closed, h)
			if h.Status == job.RunSucceeded || h.Status == job.RunFailed || h.Status == job.RunDead ||
				h.Status == job.RunLost && !c.lostRestored(&h) {
				c.bad(RuleCommitted, l, k.At, "record %d says %s, and no worker ever had it", h.Seq, h.Status)
			}
			continue
		}
		if w := c.cancelsWaiting(r, &h); w {
			r.closed = append(r.closed, h)
			continue
		}
		c.addAttempt(l, r, &attempt{Run: h, key: k, recorded: c.committed(&h)})
	}
	for _, p := range c.in.Final.Pending {
		if l := c.lives[p.JobID]; l != nil {
			c.addGap(l, p, true)
		}
	}
	for i := range c.in.Final.Open {
		h := c.in.Final.Open[i]
		k := job.RunKey{Job: h.JobID, At: int64(h.ScheduledAt), Origin: h.Origin}
		l, r := c.lifeOfRun(k)
		if l == nil {
			c.bad(RuleInvented, nil, k.At, "the open run %s is of a job that was never created", h.RunID)
			continue
		}
		if r.open != nil {
			c.bad(RuleTwice, l, k.At, "it is open twice")
		}
		r.open = &h
		switch h.Status {
		case job.RunClaimed, job.RunRunning, job.RunCanceling:
			c.addAttempt(l, r, &attempt{Run: h, key: k, recorded: int64(c.in.Final.At), isOpen: true})
		}
	}
	for _, l := range c.lives {
		for _, r := range l.runs {
			slices.SortFunc(r.attempts, func(a, b *attempt) int { return cmp.Compare(a.Fence, b.Fence) })
		}
	}
	c.fences()
}

// cancelsWaiting says whether a record is about a run that no worker had in hand: canceled or expired between two
// attempts, it names the last fence and attempt again.
func (c *checker) cancelsWaiting(r *runLife, h *job.Run) bool {
	if h.Status != job.RunCanceled && h.Status != job.RunExpired && !c.lostRestored(h) {
		return false
	}
	if h.Worker == "" {
		return true
	}
	return slices.ContainsFunc(r.attempts, func(a *attempt) bool { return a.Fence == h.Fence })
}

func (c *checker) addGap(l *life, h job.Run, pending bool) {
	if h.Count < 1 || h.First > h.Last || h.First == 0 {
		c.bad(RuleReason, l, int64(h.First), "an interval to %s with a count of %d makes no sense", h.Last, h.Count)
		return
	}
	g := &gap{Run: h, recorded: c.committed(&h), pending: pending}
	if pending {
		g.recorded = int64(c.in.Final.At)
	}
	if h.Reason == job.ReasonAlreadyRan {
		l.left = append(l.left, h)
		return
	}
	l.gaps = append(l.gaps, g)
}

func (c *checker) addAttempt(l *life, r *runLife, a *attempt) {
	if other := c.claims[a.Fence]; other != nil {
		c.bad(RuleFence, l, a.key.At, "fence %d was given out twice: to attempt %d of this run and to attempt %d of %s",
			a.Fence, a.Attempt, other.Attempt, other.RunID)
	} else {
		c.claims[a.Fence] = a
	}
	r.attempts = append(r.attempts, a)
	c.rep.Attempts++
}

// fences: in the order of the fences the stamps of the claims do not go back, because one loop makes them and a new
// leader does not begin before the last committed stamp.
func (c *checker) fences() {
	var last *attempt
	for _, f := range slices.Sorted(maps.Keys(c.claims)) {
		a := c.claims[f]
		if last != nil && a.ClaimedAt != 0 && int64(a.ClaimedAt) < int64(last.ClaimedAt)-c.clock {
			c.bad(RuleFence, c.lives[a.key.Job], a.key.At,
				"fence %d was claimed at %s, the lower fence %d of %s later, at %s",
				f, a.ClaimedAt, last.Fence, last.RunID, last.ClaimedAt)
		}
		last = a
	}
}

// sortEffects: whatever a worker started is an attempt of a committed claim, started once.
func (c *checker) sortEffects() {
	for i := range c.in.Effects {
		e := &c.in.Effects[i]
		l := c.lives[e.Run.Job]
		if others := c.effects[e.Fence]; len(others) > 0 {
			c.bad(RuleLive, l, e.Run.At, "fence %d was started twice: by %s at %s and by %s at %s",
				e.Fence, others[0].Worker, others[0].Start, e.Worker, e.Start)
		}
		c.effects[e.Fence] = append(c.effects[e.Fence], e)
		a := c.claims[e.Fence]
		switch {
		case l == nil:
			c.bad(RuleInvented, nil, e.Run.At, "%s started a run of %s, which was never created", e.Worker, e.Run.Job)
			continue
		case a == nil:
			c.bad(RuleCommitted, l, e.Run.At,
				"%s started attempt %d with fence %d at %s, and no claim with that fence is committed",
				e.Worker, e.Attempt, e.Fence, e.Start)
			c.lifeOfRun(e.Run)
			continue
		case a.key != e.Run || a.Attempt != e.Attempt || a.Worker != "" && a.Worker != e.Worker:
			c.bad(RuleFence, l, e.Run.At,
				"fence %d is attempt %d of %s on %s at the worker, and attempt %d of %s on %s in the history",
				e.Fence, e.Attempt, e.Run, e.Worker, a.Attempt, a.key, a.Worker)
			continue
		}
		if a.effect == nil {
			a.effect = e
		}
		if int64(e.Start) < int64(a.ClaimedAt)-c.clock {
			c.bad(RuleCommitted, l, e.Run.At, "attempt %d was started at %s, before it was claimed at %s",
				e.Attempt, e.Start, a.ClaimedAt)
		}
		if e.End != 0 && e.End < e.Start {
			c.bad(RuleInput, l, e.Run.At, "attempt %d ended at %s, before it started at %s", e.Attempt, e.End, e.Start)
		}
	}
}

// idleStamp is how far back the last committed stamp may lie while there is a leader and nothing happens, and takeover
// how long a change of leaders may take without anything having been done to the cluster by the test: a leader may lose
// its lease on a busy machine.
const (
	idleStamp = 10_000
	takeover  = 5_000
)

// outages: a committed outage holds no time with a leader, and something was done to the cluster around it.
func (c *checker) outages() {
	sorted := slices.Clone(c.in.Outages)
	slices.SortFunc(sorted, func(a, b Outage) int { return cmp.Compare(a.From, b.From) })
	for i, w := range sorted {
		if i > 0 && w.From < sorted[i-1].To {
			c.bad(RuleOutage, nil, 0, "the outage from %s to %s begins in the one from %s to %s", w.From, w.To,
				sorted[i-1].From, sorted[i-1].To)
		}
		for _, a := range c.claims {
			if a.ClaimedAt > w.From && a.ClaimedAt < w.To {
				c.bad(RuleOutage, c.lives[a.key.Job], a.key.At, "it was claimed at %s, in the outage from %s to %s",
					a.ClaimedAt, w.From, w.To)
			}
		}
		if len(c.in.Faults) == 0 && int64(w.To-w.From) <= idleStamp+takeover {
			continue
		}
		if int64(w.To-w.From) > idleStamp+takeover && !slices.ContainsFunc(c.in.Faults, func(f Fault) bool {
			return int64(f.From) <= int64(w.To)+c.clock && c.until(f) >= int64(w.From)-c.clock
		}) {
			c.bad(RuleOutage, nil, 0,
				"an outage from %s to %s was committed, and nothing was wrong with the cluster then", w.From, w.To)
		}
	}
}

func (c *checker) until(f Fault) int64 {
	if f.To == 0 {
		return int64(c.in.Final.At)
	}
	return int64(f.To)
}

// replicas: nodes that applied the same entries have the same state.
func (c *checker) replicas() {
	first := ""
	for _, node := range slices.Sorted(maps.Keys(c.in.Final.Digests)) {
		switch {
		case first == "":
			first = node
		case c.in.Final.Digests[node] != c.in.Final.Digests[first]:
			c.bad(RuleReplicas, nil, 0, "%s and %s differ: %s and %s", first, node, c.in.Final.Digests[first],
				c.in.Final.Digests[node])
		}
	}
}

// handed looks at assignments on their way: what a worker takes is of a term not lower than any it took before, and
// says the same each time.
func (c *checker) handed() {
	all := slices.Clone(c.in.Handed)
	slices.SortStableFunc(all, func(a, b Handed) int { return cmp.Compare(a.At, b.At) })
	type process struct {
		worker      string
		incarnation uint64
	}
	terms := map[process]uint64{}
	said := map[uint64]Handed{}
	for _, h := range all {
		l := c.lives[h.Run.Job]
		if first, ok := said[h.Fence]; ok &&
			(first.Run != h.Run || first.Attempt != h.Attempt || first.Key != h.Key || first.Worker != h.Worker ||
				!sameAssignment(first.Got, h.Got)) {
			c.bad(RuleFence, l, h.Run.At,
				"fence %d was handed to %s as attempt %d with key %q and to %s as attempt %d of %s with key %q",
				h.Fence, first.Worker, first.Attempt, first.Key, h.Worker, h.Attempt, h.Run, h.Key)
		}
		said[h.Fence] = h
		p := process{h.Worker, h.Incarnation}
		if h.Term < terms[p] {
			c.bad(RuleTerm, l, h.Run.At, "%s took an assignment of term %d at %s, after one of term %d",
				h.Worker, h.Term, h.At, terms[p])
		}
		terms[p] = max(terms[p], h.Term)
	}
}
