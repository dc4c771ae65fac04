package checker

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// retryTime: an attempt that follows another comes when it is to. After a failure that is when the backoff is over,
// after the loss of a worker at once, and after a redrive not before that. A pause moves it to the resume at the
// earliest, and takes nothing away of the backoff.
func (c *checker) retryTime(l *life, r *runLife, a, prev *attempt) {
	ready := int64(a.ReadyAt)
	if ready == 0 || c.in.Final.Recorded == nil { // less is known: only that it is not too early
		ready = int64(a.ClaimedAt)
	} else if ready > int64(a.ClaimedAt) {
		c.bad(RuleEarly, l, r.key.At, "attempt %d was claimed at %s, and it was to wait until %s", a.Attempt,
			a.ClaimedAt, a.ReadyAt)
	}
	lo, hi := int64(prev.FinishedAt)-c.clock, int64(prev.FinishedAt)
	switch {
	case prev.FinishedAt == 0:
		return
	case prev.Status == job.RunDead:
		c.redriveTime(l, r, a, prev)
		return
	case prev.Status != job.RunFailed:
		return
	case prev.Reason != job.ReasonWorkerLost:
		least, most := c.backoffs(l, r, prev)
		lo, hi = lo+least-1, c.seen(prev)+most+c.clock // the product cuts to milliseconds
	}
	if ready < lo {
		c.bad(RuleRetry, l, r.key.At, "attempt %d could be claimed at %s, and attempt %d had failed at %s: it is to "+
			"wait until %s at least", a.Attempt, job.Instant(ready), prev.Attempt, prev.FinishedAt, job.Instant(lo))
	}
	if a.ReadyAt == 0 || c.in.Final.Recorded == nil || c.returned(prev, a) || ready <= hi+l.edits(a) {
		return
	}
	if !l.came(ready-l.edits(a), ready, CallResume) {
		c.bad(RuleRetry, l, r.key.At, "attempt %d could not be claimed before %s, and attempt %d had ended at %s "+
			"(%s): it is to wait until %s at most, and no resume came at that time", a.Attempt, a.ReadyAt,
			prev.Attempt, prev.FinishedAt, prev.Reason, job.Instant(hi))
	}
}

// redriveTime: a dead letter is tried again when somebody asks for that, and at once if its job's runs may overlap.
func (c *checker) redriveTime(l *life, r *runLife, a, prev *attempt) {
	asked := func(ch *change) bool {
		return ch.Kind == CallRedrive && (len(ch.Dead) == 0 || slices.Contains(ch.Dead, prev.Seq))
	}
	ready := int64(a.ReadyAt)
	if ready == 0 || c.in.Final.Recorded == nil || !slices.ContainsFunc(l.calls, asked) {
		return // a backfill with force, or a request of which nothing is known
	}
	first := forever
	for _, ch := range l.calls {
		if asked(ch) {
			first = min(first, ch.lo)
		}
	}
	if least := c.setBack(first, int64(a.ClaimedAt)); ready < least {
		c.bad(RuleRetry, l, r.key.At, "attempt %d could be claimed at %s, and nobody had redriven it before %s",
			a.Attempt, a.ReadyAt, job.Instant(least))
	}
	free := !l.w.any(first, ready, func(v *version) bool {
		return v.spec.Overlap != job.OverlapAllow || v.spec.Concurrency > 0
	})
	edits := l.edits(a)
	now := func(ch *change) bool { return asked(ch) && ch.lo <= ready && ready-edits <= ch.hi }
	if !free || c.returned(prev, a) || l.came(ready-edits, ready, CallResume, CallUpdate) ||
		slices.ContainsFunc(l.calls, now) {
		return
	}
	c.bad(RuleRetry, l, r.key.At, "attempt %d could not be claimed before %s, and nobody redrove it then", a.Attempt,
		a.ReadyAt)
}

// setBack is the earliest stamp of a result between two times. A leader whose clock was set back holds, and stamps
// results by that clock; what waited for a run that such a result ends may be claimed from then on.
func (c *checker) setBack(from, to int64) int64 {
	least := from
	for _, f := range c.in.Faults {
		if f.Kind == FaultClock && f.Amount < 0 && int64(f.From) <= to && c.until(f) >= from {
			least = min(least, max(from, int64(f.From))+f.Amount.Milliseconds()-c.clock)
		}
	}
	return least
}

// seen is by when the end of an attempt was committed.
func (c *checker) seen(a *attempt) int64 {
	return max(a.recorded, int64(c.in.Final.Seen[a.Seq]))
}

// came says whether a call of some kinds may have taken effect between two times.
func (l *life) came(from, to int64, kinds ...CallKind) bool {
	return slices.ContainsFunc(l.of(kinds...), func(ch *change) bool { return ch.lo <= to && from <= ch.hi })
}

// edits are how many may have come before an attempt. One that changes who may take the job's runs moves those that
// wait by a millisecond.
func (l *life) edits(a *attempt) (n int64) {
	for _, ch := range l.of(CallUpdate) {
		if ch.lo <= int64(a.ClaimedAt) {
			n++
		}
	}
	return n
}

// farApart is how many claims may lie between two attempts that are looked at one by one.
const farApart = 100_000

// returned says that a worker may have given a run back between two attempts without having begun it: that leaves no
// record, only a fence that nobody knows.
func (c *checker) returned(prev, a *attempt) bool {
	if a.Fence-prev.Fence > farApart {
		return true
	}
	for f := prev.Fence + 1; f < a.Fence; f++ {
		if c.claims[f] == nil {
			return true
		}
	}
	return false
}

// backoffs are how long a run has to wait after a failed attempt, at least and at most, in milliseconds.
func (c *checker) backoffs(l *life, r *runLife, prev *attempt) (least, most int64) {
	failures := 0
	for _, b := range r.attempts {
		if b.Fence >= prev.Fence {
			break
		}
		if b.Attempt == 1 || b.Status != job.RunFailed { // it begins, is redriven, or is run again by a backfill
			failures = 0
		}
		if b.Status == job.RunFailed && b.Reason != job.ReasonWorkerLost {
			failures++
		}
	}
	if prev.Attempt == 1 {
		failures = 0
	}
	asked := time.Duration(0)
	if prev.effect != nil {
		asked = prev.effect.RetryAfter
	}
	least = forever
	for _, s := range c.endedWith(l, prev) {
		lo, hi := backoff(s.Retry, failures, asked)
		least, most = min(least, lo.Milliseconds()), max(most, hi.Milliseconds())
	}
	return least, most
}

// backoff is the shortest and the longest time to wait after a failed attempt with failures failed ones before it.
func backoff(r job.Retry, failures int, asked time.Duration) (least, most time.Duration) {
	var d float64
	switch r.Backoff {
	case job.BackoffImmediate:
	case job.BackoffLinear:
		d = float64(r.Base) * float64(failures+1)
	default:
		d = float64(r.Base)
		for range failures {
			d *= 2
		}
	}
	d = min(d, float64(r.Cap))
	jitter := 0.0
	if r.Jitter != nil {
		jitter = *r.Jitter
	}
	asked = min(asked, max(time.Duration(r.Cap), time.Hour))
	return max(time.Duration(d*(1-jitter)), asked), max(time.Duration(d), asked)
}
