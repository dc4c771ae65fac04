package checker

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// stretch is a run from its first claim to its end.
type stretch struct {
	r        *runLife
	from, to int64 // surely open in between
	policies []*version
	fence    uint64 // of the first claim: one millisecond may have many
	serial   bool   // a backfill, or redriven
}

// overlap: unless its policy is allow, the runs of a job follow each other: from the first claim of one to its end, its
// retries included, no other is claimed. With allow a limit of concurrency holds in the same way.
//
// The end is taken at its earliest: what a worker reported as the end of the last attempt lies before the commit that
// closed the run.
func (c *checker) overlap(l *life) {
	var all []stretch
	for _, r := range l.runs {
		for i, part := range c.parts(l, r) {
			if len(part) == 0 {
				continue
			}
			s := stretch{r: r, from: int64(part[0].ClaimedAt), fence: part[0].Fence, serial: i > 0 ||
				r.key.Origin == job.OriginBackfill}
			lastOne := part[len(part)-1]
			s.to = int64(lastOne.FinishedAt)
			if at, ok := c.in.Final.Recorded[lastOne.Seq]; ok && lastOne.Seq != 0 {
				s.to = int64(at)
			}
			if lastOne.isOpen || lastOne.Status == job.RunFailed && r.open != nil {
				s.to = int64(c.in.Final.At)
			}
			s.policies = l.w.specs(s.from, s.from)
			all = append(all, s)
		}
	}
	slices.SortFunc(all,
		func(a, b stretch) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.fence, b.fence)) })
	c.liveFirst(l, all)
	c.room(l, all)
	for i, b := range all {
		var open []stretch
		for _, a := range all[:i] {
			if a.to > b.from+c.clock && a.r != b.r {
				open = append(open, a)
			}
		}
		if len(open) == 0 {
			continue
		}
		fits := slices.ContainsFunc(b.policies, func(v *version) bool {
			return v.spec.Overlap == job.OverlapAllow && (v.spec.Concurrency == 0 || len(open) < v.spec.Concurrency)
		})
		// A run that was released while an earlier definition was in force is claimed as it is.
		if !fits {
			fits = l.w.any(min(b.r.made(l), b.from), b.from, func(v *version) bool {
				return v.spec.Overlap == job.OverlapAllow && (v.spec.Concurrency == 0 || len(open) < v.spec.Concurrency)
			})
		}
		if !fits {
			v := b.policies[0]
			c.bad(RuleOverlap, l, b.r.key.At,
				"%s was claimed at %s while %s was open (until %s), under overlap %s with concurrency %d", b.r.key,
				job.Instant(b.from),
				open[0].r.key, job.Instant(open[0].to), v.spec.Overlap, v.spec.Concurrency)
		}
	}
}

// parts splits the attempts of a run where it had ended and began anew: after a redrive or another backfill.
func (c *checker) parts(_ *life, r *runLife) [][]*attempt {
	var out [][]*attempt
	var cur []*attempt
	for _, a := range r.attempts {
		cur = append(cur, a)
		if a.Status != job.RunFailed && !a.isOpen {
			out, cur = append(out, cur), nil
		}
	}
	return append(out, cur)
}
