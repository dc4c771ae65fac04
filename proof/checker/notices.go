package checker

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// noticeTime is within which a change is told where nothing keeps the leader from it.
const noticeTime = 60_000

// notices: every change of a job's health is told at most once, in the order of the changes, and nothing else is told.
// What was not told must be explained by a fault around that time: a leader that is gone while it sends cannot say
// whether it did.
func (c *checker) notices() {
	if c.in.Notified == nil {
		return
	}
	arrived := map[job.ID][]Notified{}
	keys := map[string]job.Instant{}
	for _, t := range c.in.Notified {
		l := c.lives[t.Job]
		if l == nil {
			c.bad(RuleNotice, nil, 0, "a notification was sent at %s about %s, which was never created", t.At, t.Job)
			continue
		}
		if first, ok := keys[t.Key]; ok {
			c.bad(RuleNotice, l, 0, "the notification %q arrived at %s and at %s", t.Key, first, t.At)
			continue
		}
		keys[t.Key] = t.At
		arrived[t.Job] = append(arrived[t.Job], t)
	}
	for _, id := range c.order {
		if l := c.lives[id]; l.w != nil {
			c.health(l, arrived[id])
		}
	}
}

// turn is a change of a job's health.
type turn struct {
	failure bool
	run     string
	at      int64
}

// health holds what was told about a job against how its runs ended, in commit order.
func (c *checker) health(l *life, told []Notified) {
	on := false
	for i := range l.w.versions {
		spec := l.w.versions[i].spec
		on = on || spec.Notify != nil
		if spec.Deadline > 0 || spec.Notify == nil && on {
			return // an occurrence that expires changes it too, and has no record of its own
		}
	}
	if !on {
		if len(told) > 0 {
			c.bad(RuleNotice, l, 0, "a notification was sent at %s, and the job has none", told[0].At)
		}
		return
	}
	type ending struct {
		seq uint64
		run *job.Run
	}
	var all []ending
	for _, r := range l.runs {
		for _, a := range r.attempts {
			if !a.isOpen {
				all = append(all, ending{a.Seq, &a.Run})
			}
		}
		for i := range r.closed {
			all = append(all, ending{r.closed[i].Seq, &r.closed[i]})
		}
	}
	slices.SortFunc(all, func(a, b ending) int { return cmp.Compare(a.seq, b.seq) })
	var turns []turn
	failing := false
	for _, e := range all {
		bad := e.run.Status == job.RunDead || e.run.Status == job.RunLost || e.run.Status == job.RunExpired
		if bad && !failing || e.run.Status == job.RunSucceeded && failing {
			failing = bad
			turns = append(turns, turn{bad, e.run.RunID, c.committed(e.run)})
		}
	}
	for _, t := range told {
		i := slices.IndexFunc(turns, func(x turn) bool { return x.failure == t.Failure && x.run == t.Run })
		if i < 0 {
			c.bad(RuleNotice, l, 0,
				"a notification was sent at %s that it %s with %s, and its health did not change with that, or a "+
					"later change was sent before", t.At, verb(t.Failure), t.Run)
			continue
		}
		c.untold(l, turns[:i])
		turns = turns[i+1:]
	}
	c.untold(l, turns)
}

func verb(failure bool) string {
	if failure {
		return "fails"
	}
	return "works again"
}

// untold looks at changes without a notification.
func (c *checker) untold(l *life, turns []turn) {
	for _, t := range turns {
		late := t.at + noticeTime
		if late > int64(c.in.Final.At) || c.troubled(t.at-takeover, late) || l.w.deleted.lo <= late || l.final == nil {
			continue
		}
		c.bad(RuleNotice, l, 0, "no notification was sent that it %s with %s at %s", verb(t.failure), t.run,
			job.Instant(t.at))
	}
}
