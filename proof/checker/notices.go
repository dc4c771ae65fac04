package checker

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// noticeTime is within which a change is told where nothing keeps the leader from it.
const noticeTime = 60_000

// notices: every change of a job's health is told at most once, in the order of the changes, and nothing else is told.
// What a receiver could not take comes again, and nothing else about the job before it. What was not told must be
// explained by a fault around that time: a leader that is gone while it sends cannot say whether it did.
func (c *checker) notices() {
	if c.in.Notified == nil {
		return
	}
	c.findRefusals()
	arrived, refused := map[job.ID][]Notified{}, map[job.ID]Notified{}
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
		if first, ok := refused[t.Job]; ok && first.Key != t.Key && !c.troubled(int64(first.At)-takeover, int64(t.At)) {
			c.bad(RuleNotice, l, 0, "the notification %q arrived at %s, and %q of before it, which was refused at %s, "+
				"had not come again", t.Key, t.At, first.Key, first.At)
		}
		if t.Refused {
			refused[t.Job] = t
			continue
		}
		delete(refused, t.Job)
		keys[t.Key] = t.At
		arrived[t.Job] = append(arrived[t.Job], t)
	}
	for _, id := range c.order {
		l := c.lives[id]
		if l.w == nil {
			continue
		}
		t, waits := refused[id]
		if by := c.toldBy(int64(t.At)); waits && l.final != nil && l.final.Notify != nil &&
			by <= int64(c.in.Final.At) && !c.troubled(int64(t.At)-takeover, by) {
			c.bad(RuleNotice, l, 0, "the notification %q was refused at %s, and did not come again", t.Key, t.At)
		}
		c.health(l, arrived[id], waits)
	}
}

// findRefusals finds until when the receiver refused something, and how often in a row.
func (c *checker) findRefusals() {
	row, tries := 0, map[string]int{}
	for _, t := range c.in.Notified {
		if !t.Refused {
			row = 0
			continue
		}
		row++
		tries[t.Key]++
		c.refusals, c.refusedAt = max(c.refusals, row, tries[t.Key]), max(c.refusedAt, int64(t.At))
	}
}

// The delays of notifications that were refused, in milliseconds.
const (
	firstNoticeDelay = 5_000
	mostNoticeDelay  = 15 * 60_000
)

// toldBy is by when a change of some time is told, or told again, where nothing keeps the leader from it. A receiver
// that refuses something is left alone for a while, and for longer each time.
func (c *checker) toldBy(at int64) int64 {
	by := max(at, c.refusedAt) + noticeTime
	if c.refusals > 0 {
		by += min(int64(firstNoticeDelay)<<min(c.refusals-1, 10), mostNoticeDelay)
	}
	return by
}

// turn is a change of a job's health.
type turn struct {
	failure bool
	run     string
	at      int64
}

// health holds what was told about a job against how its runs ended, in commit order. waits says that the last try was
// refused: what is not told yet waits behind it.
func (c *checker) health(l *life, told []Notified, waits bool) {
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
	if !waits {
		c.untold(l, turns)
	}
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
		late := c.toldBy(t.at)
		if late > int64(c.in.Final.At) || c.troubled(t.at-takeover, late) || l.w.deleted.lo <= late || l.final == nil {
			continue
		}
		c.bad(RuleNotice, l, 0, "no notification was sent that it %s with %s at %s", verb(t.failure), t.run,
			job.Instant(t.at))
	}
}
