package checker

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// pulls says whether a worker is one that pulls. It has no session: each of its runs has a lease of its own, from the
// claim on, and it reaches the leader through any node.
func (c *checker) pulls(worker string) bool { return slices.Contains(c.in.Pull, worker) }

// overdue says that an attempt was held for as long as its job's timeout. That of a pull worker counts from its
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
