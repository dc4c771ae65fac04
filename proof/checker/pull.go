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
		if c.trouble(f, func(g Fault) bool {
			other := g.Node != a.Worker && g.Peer != a.Worker && (c.pulls(g.Node) || c.pulls(g.Peer))
			return !other && g.Kind != FaultClock
		}) >= c.patience() {
			return true
		}
	}
	return slices.ContainsFunc(c.in.Outages, func(w Outage) bool {
		return int64(w.From) <= to && int64(w.To) >= from && int64(w.To-w.From) >= c.patience()
	})
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
