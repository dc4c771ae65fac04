package checker

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// order: runs that wait for their turn under overlap: queue are started oldest first. Only runs of one kind are
// compared, those of the schedule and those by hand: which of two kinds was there first depends on when the leader got
// to an occurrence. Catch-up and what was sent back take turns of their own.
func (c *checker) queueOrder(l *life) {
	for _, origin := range []job.Origin{job.OriginSchedule, job.OriginManual} {
		var all []*runLife
		for k, r := range l.runs {
			if k.Origin == origin && len(r.attempts) > 0 && !c.inOutage(l, k) && !c.redriven(l, r) {
				all = append(all, r)
			}
		}
		slices.SortFunc(all, func(a, b *runLife) int { return cmp.Compare(a.key.At, b.key.At) })
		var newest *runLife // the one with the highest first fence so far
		for _, r := range all {
			first := r.attempts[0]
			if newest != nil && first.Fence < newest.attempts[0].Fence &&
				c.queued(l, r.key.At, int64(newest.attempts[0].ClaimedAt)) {
				c.bad(RuleOrder, l, r.key.At,
					"%s was first claimed with fence %d at %s, and %s, which is older, with fence %d at %s",
					r.key, first.Fence, first.ClaimedAt,
					newest.key, newest.attempts[0].Fence, newest.attempts[0].ClaimedAt)
			}
			if newest == nil || first.Fence > newest.attempts[0].Fence {
				newest = r
			}
		}
	}
}

// queued says that overlap was queue all the time.
func (c *checker) queued(l *life, from, to int64) bool {
	return !l.w.any(min(from, to)-c.clock, max(from, to)+c.clock,
		func(v *version) bool { return v.spec.Overlap != job.OverlapQueue })
}

// inOutage says that no leader was there when a run was due. An occurrence is due when its jitter is over, and by that
// it is missed or not: one whose nominal time is before the outage may be caught up, too.
func (c *checker) inOutage(l *life, k job.RunKey) bool {
	return l.w.any(k.At, forever-1, func(v *version) bool {
		ready := k.At
		if k.Origin == job.OriginSchedule {
			ready += v.o.delay
		}
		return slices.ContainsFunc(c.in.Outages, func(w Outage) bool {
			return int64(w.From) < ready && ready <= int64(w.To)
		})
	})
}
