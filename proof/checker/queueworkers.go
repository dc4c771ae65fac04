package checker

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// byQueue says whether a worker names a queue in each call, as package client does: it then reaches the leader through
// any node.
func (c *checker) byQueue(worker string) bool { return slices.Contains(c.in.QueueWorkers, worker) }

// overdue says that an attempt was held for as long as its job's timeout. That of a queue worker counts from its
// delivery, and under the next leader from its claim.
func (c *checker) overdue(l *life, a *attempt) bool {
	return l.w.any(int64(a.ClaimedAt), int64(a.ClaimedAt), func(v *version) bool {
		d := v.spec.Timeout
		if d == 0 {
			d = job.DefaultTimeout
		}
		return max(int64(a.FinishedAt), c.behind[a.Seq])-int64(a.ClaimedAt)+c.clock >= ms(d)
	})
}
