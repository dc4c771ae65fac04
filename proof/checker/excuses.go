package checker

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// patience is how long a worker must be silent before it may lose its runs: it gives up by itself two thirds of a TTL
// after it sent the last heartbeat that was answered, and it sends one every fifth. The next one may have been on its
// way when the silence began, there or back. That of a queue worker goes through a node that passes it on, and its
// fifth counts from the answer to the one before.
func (c *checker) patience(worker string) int64 {
	ways := int64(2)
	if c.byQueue(worker) {
		ways = 8
	}
	return c.ttl*2/3 - c.ttl/5 - ways*c.latency - c.clock
}

// holding is when an attempt was with its worker: from its claim to what took it away. What came later cannot be the
// reason.
func (c *checker) holding(a *attempt) (from, to int64) {
	from, to = int64(a.ClaimedAt), a.recorded
	if a.FinishedAt != 0 {
		to = int64(a.FinishedAt)
		if a.effect != nil && a.Reason != job.ReasonWorkerLost {
			to = max(to, int64(a.effect.End))
		}
	}
	return from - c.clock, to + c.clock
}

// excused says whether something happened to the worker of an attempt, while it had it, that may take the attempt from
// it. A leader that stands still and leads on, because no other could be elected meanwhile, is that for every worker.
func (c *checker) excused(a *attempt) bool {
	claimed, to := c.holding(a)
	patience := c.patience(a.Worker)
	mine := func(f Fault) bool { return f.Node == a.Worker || f.Peer == a.Worker }
	others := func(g Fault) bool { return mine(g) || g.Kind == FaultKill || g.Kind == FaultLeader || c.led(g) }
	matters := func(f Fault) bool { return mine(f) || c.led(f) }
	if c.byQueue(a.Worker) {
		// It reaches the leader through any node. Whatever kept nodes from passing on its calls for long enough is an
		// excuse, unless it is about another queue worker.
		others = func(g Fault) bool {
			return g.Kind != FaultClock && (mine(g) || !c.byQueue(g.Node) && !c.byQueue(g.Peer))
		}
		matters = others
	}
	for _, f := range c.in.Faults {
		if !matters(f) || int64(f.From) > to {
			continue
		}
		if mine(f) && (f.Kind == FaultKill || f.Kind == FaultStop) {
			if c.ended(f, a, claimed, to, others) {
				return true
			}
			if !c.byQueue(a.Worker) {
				continue
			}
		}
		if f.Kind == FaultPause || f.Kind == FaultCut || f.Kind == FaultLink || c.byQueue(a.Worker) {
			if from, until := c.trouble(f, others); until-from >= patience && claimed <= until+takeover &&
				to >= from+patience {
				return true
			}
		}
	}
	if c.heldTakeover(patience+c.clock, claimed, to, others) {
		return true
	}
	// A leader that cannot confirm is that for every worker. What the worker itself met adds to it, and outages do;
	// what happened to other nodes does not.
	joins := func(g Fault) bool { return mine(g) || c.led(g) }
	for _, w := range c.unsure {
		from, until := c.around(int64(w.From), int64(w.To), joins)
		if until-from >= patience && claimed <= until+takeover && to >= from+patience {
			return true
		}
	}
	// No node led for so long that every worker gave up what it had. What is claimed afterwards has nothing to do with
	// that.
	return slices.ContainsFunc(c.in.Outages, func(w Outage) bool {
		return int64(w.To-w.From)+c.far(int64(w.To)) >= patience && claimed <= int64(w.From)+c.clock &&
			to >= int64(w.From)+patience
	})
}

// far is how long the question whether it leads may take a leader at a time: there and back over the slowest link.
func (c *checker) far(at int64) (long int64) {
	for _, f := range c.in.Faults {
		if f.Kind == FaultLink && c.isNode(f.Node) && c.isNode(f.Peer) && f.Amount.Milliseconds() >= slowLink &&
			int64(f.From) <= at && at <= c.until(f) {
			long = max(long, 2*f.Amount.Milliseconds())
		}
	}
	return long
}

// led says that a fault befell the leader of the group in question. A node may lead one group and follow in others.
func (c *checker) led(f Fault) bool { return slices.Contains(f.Led, c.in.Group) }

// maxAhead is how far a leader's clock may be from the others' before it stops to stamp, in milliseconds.
const maxAhead = 5000

// heldTakeover says that a leader took over with a clock that was behind that of the leader before, and held until it
// had caught up with the last stamp: it serves no worker before. A leader whose clock gains time stamps with it until
// it is maxAhead of the others. What was claimed earlier is given up if that, and what ended the leadership before it,
// take too long. No outage tells of it, because the stamps go on where they were. All of these times are the
// observer's, so ClockError is no part of the length.
func (c *checker) heldTakeover(silent, claimed, to int64, joins func(Fault) bool) bool {
	return slices.ContainsFunc(c.in.Takeovers, func(t Takeover) bool {
		at := int64(t.At)
		from, until := at, at
		for _, f := range c.in.Faults {
			began := int64(f.From)
			if began > at {
				continue
			}
			if f.Kind == FaultClock && f.Node == t.Node && f.Amount < 0 {
				until = max(until, min(at-f.Amount.Milliseconds(), c.until(f)))
			} else if f.Kind == FaultClock && f.Node != t.Node && f.Amount > 0 && c.until(f) >= at-maxAhead {
				until = max(until, at+min(f.Amount.Milliseconds(), maxAhead))
			} else if (joins(f) || f.Kind == FaultStop) && began >= at-takeover {
				from = min(from, began)
			}
		}
		return until > at && until-from >= silent && claimed <= at+c.clock && to >= from+silent
	})
}

// ended says whether an attempt was with a process that was killed or stopped: it was claimed before that, or
// afterwards by a leader that did not know yet, which is until the next process has registered or the lease of this one
// is over. What arrived at the next process is its own.
func (c *checker) ended(f Fault, a *attempt, claimed, to int64, joins func(Fault) bool) bool {
	from, until := c.trouble(f, joins)
	if claimed > max(until+takeover, int64(f.From)+c.ttl) || to < from {
		return false
	}
	if a.effect != nil && int64(a.effect.Start) > c.until(f)+c.clock+c.in.SlackEffects.Milliseconds() {
		return false
	}
	at, ok := c.handedAt[a.Fence]
	return !ok || at <= c.until(f)+c.clock
}

// trouble is how long a worker was in trouble in one piece around a fault: a cut that follows a pause at once is one
// absence. A change of leaders in between belongs to it, because the worker has to find the new one. counts says which
// faults do.
func (c *checker) trouble(f Fault, counts func(Fault) bool) (from, to int64) {
	return c.around(int64(f.From), c.until(f), counts)
}

func (c *checker) around(from, to int64, counts func(Fault) bool) (int64, int64) {
	for again := true; again; {
		again = false
		join := func(a, b int64) {
			if a <= to+takeover && b >= from-takeover && (a < from || b > to) {
				from, to, again = min(from, a), max(to, b), true
			}
		}
		for _, f := range c.in.Faults {
			if counts(f) {
				join(int64(f.From), c.until(f))
			}
		}
		for _, w := range c.in.Outages {
			join(int64(w.From), int64(w.To))
		}
		for _, w := range c.unsure {
			join(int64(w.From), int64(w.To))
		}
	}
	return from, to
}

// slow is how long a write of a disk or a message may take, in milliseconds, without an answer being late for it. Raft
// keeps a leader for the answers to heartbeats, which may be late; the question whether it leads has to be answered
// within the time of an election, a second, and each message of that takes its time on a link.
const (
	slow     = 100
	slowLink = 500
)

// findUnsure finds when a leader could not confirm that it led: too many of the others were away, or did not answer in
// time. Then it extends no lease and registers no worker. The raft loop of a follower whose disk is slow answers no
// question, and its heartbeats are answered past that loop, so that raft lets the leader lead; one with a slow link
// answers too late. Where the others are away, an outage tells of it too, but from the last stamp on: that may be one
// which the leader proposed when they were away already, and which was committed only when it led again.
func (c *checker) findUnsure() {
	for i, t := range c.in.Takeovers {
		end := int64(c.in.Final.At)
		if i+1 < len(c.in.Takeovers) {
			end = int64(c.in.Takeovers[i+1].At)
		}
		marks := []int64{int64(t.At), end}
		for _, f := range c.in.Faults {
			for _, at := range []int64{int64(f.From), c.answersFrom(f)} {
				if at > int64(t.At) && at < end {
					marks = append(marks, at)
				}
			}
		}
		slices.Sort(marks)
		for k := 1; k < len(marks); k++ {
			if from, to := marks[k-1], marks[k]; from < to && c.noMajorityAnswers(t.Node, from, to) {
				c.unsure = append(c.unsure, Outage{job.Instant(from), job.Instant(to)})
			}
		}
	}
}

// noMajorityAnswers says that from one time to another, between which no fault begins or ends, too few nodes answer a
// leader's question: they are away, or the disk or the link of one is among the reasons. One without a vote
// (FaultLeader) counts as one that does not answer.
func (c *checker) noMajorityAnswers(leader string, from, to int64) bool {
	silent, away, unheard := map[string]bool{}, map[string]bool{}, false
	for _, f := range c.in.Faults {
		if int64(f.From) > from || c.answersFrom(f) < to {
			continue
		}
		node := f.Node
		switch f.Kind {
		case FaultClock:
			continue
		case FaultCut, FaultLink:
			if node == leader {
				node = f.Peer
			} else if f.Peer != leader && f.Peer != "" {
				continue
			}
			if f.Amount != 0 && f.Amount.Milliseconds() < slow {
				continue
			}
			unheard = unheard || f.Kind == FaultLink && f.Amount.Milliseconds() >= slowLink
		case FaultDisk:
			if f.Amount != 0 && f.Amount.Milliseconds() < slow {
				continue
			}
			unheard = unheard || node != leader
		}
		if node != leader && c.isNode(node) {
			silent[node] = true
			if slices.Contains([]FaultKind{FaultKill, FaultStop, FaultPause, FaultCut}, f.Kind) {
				away[node] = true
			}
		}
	}
	n := len(c.in.Final.Digests)
	return unheard && 2*(n-len(silent)) <= n || 2*(n-len(away)) <= n
}

// answersFrom is when the node of a fault is as before: a slow write that began before its end goes on.
func (c *checker) answersFrom(f Fault) int64 {
	if f.Kind == FaultDisk {
		return c.until(f) + f.Amount.Milliseconds()
	}
	return c.until(f)
}

func (c *checker) isNode(name string) bool {
	_, ok := c.in.Final.Digests[name]
	return ok
}

// startable is when a run may have been started for the first time, at the earliest: its deadline counts from there.
// That of a backfill counts from the request, because its nominal time is past on purpose.
func (c *checker) startable(l *life, r *runLife) int64 {
	if r.key.Origin != job.OriginBackfill {
		return r.key.At
	}
	at := forever
	for _, ch := range l.of(CallBackfill) {
		if int64(ch.From) <= r.key.At && r.key.At <= int64(ch.To) {
			at = min(at, ch.lo)
		}
	}
	return at - c.clock
}

// firstHanded notes when each fence reached a worker for the first time.
func (c *checker) firstHanded() {
	c.handedAt = map[uint64]int64{}
	all := slices.Clone(c.in.Handed)
	slices.SortStableFunc(all, func(a, b Handed) int { return cmp.Compare(a.At, b.At) })
	for _, h := range all {
		if _, ok := c.handedAt[h.Fence]; !ok {
			c.handedAt[h.Fence] = int64(h.At)
		}
	}
}
