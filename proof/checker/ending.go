package checker

import (
	"github.com/carillon-scheduler/carillon/job"
)

// Two definitions decide what becomes of a run when an attempt of it ends. Whether it may be repeated at all is decided
// by the one that the attempt was started with, because its target was told so; how often and when, by the one that is
// in force when the end is recorded. An edit in between changes the second and not the first.

// endedWith are the definitions that may have been in force when the leader looked at the end of an attempt: after the
// stamp that it gave the record, and before anybody saw that. Where the stamp is not known it is any since the claim.
func (c *checker) endedWith(l *life, a *attempt) (specs []*job.Spec) {
	from, to := int64(a.ClaimedAt), a.recorded
	if at, ok := c.in.Final.Recorded[a.Seq]; ok && a.Seq != 0 {
		from = max(from, int64(at))
	}
	if at, ok := c.in.Final.Seen[a.Seq]; ok && a.Seq != 0 {
		to = max(to, int64(at))
	}
	for _, v := range l.w.committed(from-c.clock, to+c.clock) {
		specs = append(specs, v.spec)
	}
	return append(specs, l.unsure()...)
}

// retryLimits are how many may follow the first attempt, by the definitions that may decide that.
func retryLimits(specs []*job.Spec) (least, most int) {
	least, most = specs[0].Retry.Limit(), specs[0].Retry.Limit()
	for _, s := range specs {
		least, most = min(least, s.Retry.Limit()), max(most, s.Retry.Limit())
	}
	return least, most
}

// claimedOnce says whether an attempt may have been, or surely was, started for at_most_once.
func (c *checker) claimedOnce(l *life, a *attempt) (may, must bool) {
	specs, _ := c.startedWith(l, l.w, a)
	once := func(s *job.Spec) bool { return s.Delivery == job.DeliverAtMostOnce }
	return len(specs) == 0 || anyOf(specs, once),
		len(specs) > 0 && !anyOf(specs, func(s *job.Spec) bool { return !once(s) })
}
