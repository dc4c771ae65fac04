package checker

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// pulls says whether a worker is one that pulls. It has no session: each of its runs has a lease of its own, from the claim on, and it
// reaches the leader through any node.
func (c *checker) pulls(worker string) bool { return slices.Contains(c.in.Pull, worker) }

// excusedPull is excused for a pull worker. Besides what happened to itself, whatever kept nodes from passing on its calls is an excuse if it
// lasted for long enough: the runs that it holds are named several times a lease, and one whose delivery got lost is asked for with the
// next poll.
func (c *checker) excusedPull(a *attempt, from, to int64) bool {
	for _, f := range c.in.Faults {
		if int64(f.From) > to || c.until(f) < from || f.Kind == FaultClock {
			continue
		}
		mine := f.Node == a.Worker || f.Peer == a.Worker
		if mine && (f.Kind == FaultKill || f.Kind == FaultStop) {
			return true
		}
		if !mine && (c.pulls(f.Node) || c.pulls(f.Peer)) {
			continue // another one's
		}
		if c.troubleOnTheWay(a.Worker, int64(f.From), c.until(f)) >= c.patience() {
			return true
		}
	}
	return slices.ContainsFunc(c.in.Outages, func(w Outage) bool {
		return int64(w.From) <= to && int64(w.To) >= from && int64(w.To-w.From) >= c.patience()
	})
}

// troubleOnTheWay is trouble with the faults of all nodes.
func (c *checker) troubleOnTheWay(worker string, from, to int64) int64 {
	for again := true; again; {
		again = false
		join := func(a, b int64) {
			if a <= to+takeover && b >= from-takeover && (a < from || b > to) {
				from, to, again = min(from, a), max(to, b), true
			}
		}
		for _, f := range c.in.Faults {
			other := f.Node != worker && f.Peer != worker && (c.pulls(f.Node) || c.pulls(f.Peer))
			if !other && f.Kind != FaultClock {
				join(int64(f.From), c.until(f))
			}
		}
		for _, w := range c.in.Outages {
			join(int64(w.From), int64(w.To))
		}
	}
	return to - from
}

// overdue says that an attempt was held for as long as its job's timeout. That of a pull worker counts from its delivery, and under the
// next leader from its claim.
func (c *checker) overdue(l *life, a *attempt) bool {
	return l.w.any(int64(a.ClaimedAt), a.recorded, func(v *version) bool {
		d := v.spec.Timeout
		if d == 0 {
			d = job.DefaultTimeout
		}
		return int64(a.FinishedAt-a.ClaimedAt)+c.clock >= ms(d)
	})
}
