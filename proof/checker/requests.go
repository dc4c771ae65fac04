package checker

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// redriven says whether a dead run may have been redriven.
func (c *checker) redriven(l *life, r *runLife) bool {
	return slices.ContainsFunc(l.of(CallRedrive), func(ch *change) bool {
		if len(ch.Dead) == 0 {
			return true
		}
		return slices.ContainsFunc(r.attempts, func(a *attempt) bool { return slices.Contains(ch.Dead, a.Seq) })
	})
}

// requests: what was asked for by hand was done once, and nothing was done by hand without a request.
func (c *checker) requests(l *life) {
	asked := map[job.RunKey]int{}
	var unknown []int64 // when those without an answer began
	for _, ch := range l.of(CallRun) {
		if !ch.sure || ch.Run == (job.RunKey{}) {
			unknown = append(unknown, ch.lo)
			continue
		}
		if ch.Run.Job != l.id || ch.Run.Origin != job.OriginManual {
			c.bad(RuleCall, l, ch.Run.At, "a run by hand was answered with %s", ch.Run)
		}
		if asked[ch.Run]++; asked[ch.Run] > 1 {
			c.bad(RuleTwice, l, ch.Run.At, "two requests to run were answered with the same run %s", ch.Run)
		}
		if l.runs[ch.Run] == nil {
			c.bad(RuleLost, l, ch.Run.At, "%s was acknowledged at %s, and nothing is known of it", ch.Run, ch.Return)
		}
	}
	slices.Sort(unknown)
	extra := 0
	for _, k := range sortedKeys(l.runs) { // in the order of their times
		if k.Origin == job.OriginManual && asked[k] == 0 {
			if extra++; extra > len(unknown) || unknown[extra-1] > k.At+c.clock {
				c.bad(RuleInvented, l, k.At, "%s was made by hand, and was not asked for", k)
			}
		}
	}
	c.backfills(l)
	for _, ch := range l.of(CallCancelRun) {
		r := l.runs[ch.Run]
		if !ch.sure || r == nil {
			continue
		}
		// What was canceled is not claimed again, unless it is redriven.
		for _, a := range r.attempts {
			if int64(a.ClaimedAt) > ch.hi+c.clock && !c.redriven(l, r) && r.key.Origin != job.OriginBackfill {
				c.bad(RuleCanceled, l, ch.Run.At, "attempt %d was claimed at %s, and the run was canceled by %s",
					a.Attempt, a.ClaimedAt, ch.Return)
			}
		}
	}
}

func (c *checker) backfills(l *life) {
	may := map[int64]bool{}
	for _, ch := range l.of(CallBackfill) {
		for _, v := range l.w.specs(ch.lo, min(ch.hi, int64(c.in.Final.At))) {
			for _, t := range v.o.running(int64(ch.From), int64(ch.To)) {
				may[t] = true
			}
			if ch.sure {
				c.backfilled(l, ch, v)
			}
		}
		for _, t := range ch.Times {
			if r := l.runs[job.RunKey{Job: l.id, At: int64(t), Origin: job.OriginBackfill}]; r == nil {
				c.bad(RuleLost, l, int64(t), "a backfill was answered with it at %s, and nothing is known of it",
					ch.Return)
			}
		}
	}
	for k := range l.runs {
		if k.Origin == job.OriginBackfill && !may[k.At] {
			c.bad(RuleInvented, l, k.At, "%s is no occurrence of an interval of a backfill", k)
		}
	}
}

// backfilled: an answered backfill names every occurrence of its interval, as made or as left out, and leaves out only
// what ran, is open, or will run by itself.
func (c *checker) backfilled(l *life, ch *change, v *version) {
	if ch.Times == nil && ch.Skipped == nil || len(l.w.specs(ch.lo, ch.hi)) > 1 {
		return
	}
	named := append(slices.Clone(ch.Times), ch.Skipped...)
	slices.Sort(named)
	want := v.o.running(int64(ch.From), int64(ch.To))
	same := len(named) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = int64(named[i]) == want[i]
	}
	if !same {
		c.bad(RuleCall, l, 0, "a backfill from %s to %s was answered with %d occurrences, and there are %d",
			ch.From, ch.To, len(named), len(want))
	}
	if ch.Force {
		return
	}
	for _, t := range ch.Times {
		if r := l.runs[job.RunKey{Job: l.id, At: int64(t), Origin: job.OriginSchedule}]; r != nil &&
			len(r.attempts) > 0 &&
			!r.attempts[0].isOpen && r.attempts[0].recorded < ch.lo && !c.forgottenBy(r, ch.hi) {
			c.bad(RuleTwice, l, int64(t), "a backfill at %s ran it again, and it had run", ch.Invoke)
		}
	}
}

// dead: the dead letters are the runs that ended as dead and were not redriven or purged.
func (c *checker) dead() {
	have := map[uint64]bool{}
	for _, d := range c.in.Final.Dead {
		l := c.lives[d.JobID]
		seq := d.Seq
		if have[seq] {
			c.bad(RuleDead, l, int64(d.ScheduledAt), "the dead letter %d is listed twice", seq)
		}
		have[seq] = true
		if l == nil {
			continue
		}
		r := l.runs[job.RunKey{Job: d.JobID, At: int64(d.ScheduledAt), Origin: d.Origin}]
		if r == nil || !slices.ContainsFunc(r.attempts,
			func(a *attempt) bool { return a.Seq == seq && a.Status == job.RunDead }) {
			c.bad(RuleDead, l, int64(d.ScheduledAt), "the dead letter %d is not in the history as a run that died", seq)
		}
	}
	for _, id := range c.order {
		l := c.lives[id]
		gone := func(seq uint64) bool {
			return slices.ContainsFunc(l.of(CallRedrive, CallPurge),
				func(ch *change) bool { return len(ch.Dead) == 0 || slices.Contains(ch.Dead, seq) })
		}
		for _, k := range sortedKeys(l.runs) {
			for _, a := range l.runs[k].attempts {
				if a.Status == job.RunDead && !have[a.Seq] && !gone(a.Seq) {
					c.bad(RuleDead, l, k.At, "it died with attempt %d (%s), and it is not among the dead letters",
						a.Attempt, a.Reason)
				}
			}
		}
	}
}
