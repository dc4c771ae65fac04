package checker

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// Read is a job as a node showed it to a caller that was not content with an old state.
type Read struct {
	Node           string
	Job            job.ID
	Invoke, Return job.Instant
	Version        uint64 // 0: there is no such job
}

// reads: what was answered before a read began is in what it shows, through whichever node, and so is what another read
// showed. Every time is that of a caller, so no clock is in doubt.
func (c *checker) reads() {
	all := slices.Clone(c.in.Reads)
	slices.SortStableFunc(all, func(a, b Read) int { return cmp.Compare(a.Invoke, b.Invoke) })
	for i, r := range all {
		l := c.lives[r.Job]
		if l == nil {
			continue
		}
		say := func(format string, args ...any) {
			c.bad(RuleRead, l, 0, "%s was asked for it at %s and showed version %d, and "+format,
				append([]any{r.Node, r.Invoke, r.Version}, args...)...)
		}
		gone, made := job.Instant(0), uint64(0)
		for k := range c.in.Calls {
			call := &c.in.Calls[k]
			if call.Job != r.Job || call.Outcome != OK || call.Return == 0 || call.Return >= r.Invoke {
				continue
			}
			switch call.Kind {
			case CallCreate:
				made = max(made, 1)
			case CallUpdate:
				if call.Answer != nil {
					made = max(made, call.Answer.Version)
				}
			case CallDelete:
				gone = call.Return
			}
		}
		for _, before := range all[:i] {
			switch {
			case before.Job != r.Job || before.Return >= r.Invoke:
			case before.Version == 0 && made > 0 && gone == 0 && l.mayBeGone(int64(before.Return)):
				gone = before.Return
			default:
				made = max(made, before.Version)
			}
		}
		switch {
		case r.Version == 0 && made > 0 && !l.mayBeGone(int64(r.Return)):
			say("it exists")
		case r.Version != 0 && gone != 0:
			say("that it was deleted was known at %s", gone)
		case r.Version != 0 && r.Version < made:
			say("version %d was known before", made)
		}
	}
}

// mayBeGone says whether a job may have been deleted, or cleaned up, by a time.
func (l *life) mayBeGone(by int64) bool {
	return l.w == nil || l.w.cleaned ||
		slices.ContainsFunc(l.of(CallDelete), func(ch *change) bool { return ch.lo <= by })
}
