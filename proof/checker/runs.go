package checker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// version notes under which definition an occurrence became a run.
func (r *runLife) version(v *version) { r.v = v }

// firstClaim is the stamp of the first claim that is known; 0 if it never was claimed.
func (r *runLife) firstClaim() int64 {
	if len(r.attempts) == 0 {
		return 0
	}
	return int64(r.attempts[0].ClaimedAt)
}

// made is when a run was opened, at the earliest.
func (r *runLife) made(l *life) int64 {
	switch r.key.Origin {
	case job.OriginSchedule:
		return r.key.At
	case job.OriginManual:
		for _, ch := range l.of(CallRun) {
			if ch.Run == r.key {
				return ch.lo
			}
		}
		return min(r.key.At, l.earliest(CallRun))
	}
	return l.earliest(CallBackfill)
}

func (l *life) earliest(kind CallKind) int64 {
	at := forever
	for _, ch := range l.of(kind) {
		at = min(at, ch.lo)
	}
	return at
}

// takenBack says that its first worker never heard of an occurrence that was ready then: that claim leaves no record,
// but the next one may be made only since it was taken back.
func (r *runLife) takenBack(ready int64) bool {
	return len(r.attempts) > 0 && int64(r.attempts[0].ReadyAt) > ready
}

// ended is when a run was closed, at the latest.
func (r *runLife) ended(c *checker) int64 {
	if r.open != nil {
		return int64(c.in.Final.At)
	}
	at := int64(0)
	for _, a := range r.attempts {
		at = max(at, a.recorded)
	}
	for i := range r.closed {
		at = max(at, c.committed(&r.closed[i]))
	}
	return at
}

// openDuring says whether a run of the job may have been open at some time in [from, to], when its occurrence at was
// decided about: a later one of the schedule comes only after that.
func (l *life) openDuring(from, to, at int64, c *checker) bool {
	for k, r := range l.runs {
		if k.Origin == job.OriginSchedule && k.At >= at {
			continue
		}
		if r.made(l)-c.clock <= to && r.ended(c)+c.clock >= from {
			return true
		}
	}
	return false
}

// waitingAt counts live runs that may have waited at some time in [from, to].
func (l *life) waitingAt(from, to, at int64) int {
	n := 0
	for k, r := range l.runs {
		first := r.firstClaim()
		if k.Origin != job.OriginBackfill && (k.Origin != job.OriginSchedule || k.At != at) && r.made(l) <= to &&
			(first == 0 || first >= from) {
			n++
		}
	}
	return n
}

// lives of a run: a forced backfill runs a time again under the same name and with a new key, one that finds nothing of
// it in the history any more runs it again with its key, a redrive goes on with the same one.
func (c *checker) run(l *life, r *runLife) {
	c.rep.Runs++
	if len(r.attempts) == 0 && len(r.closed) == 0 && r.open == nil {
		c.bad(RuleLost, l, r.key.At, "%s was started, and neither the history nor the open runs know of it", r.key)
		return
	}
	redriven := c.redriven(l, r)
	forced := 0
	for _, ch := range l.of(CallBackfill) {
		if ch.Force && r.key.Origin == job.OriginBackfill && int64(ch.From) <= r.key.At && r.key.At <= int64(ch.To) {
			forced++
		}
	}
	var prev *attempt
	failures, losses, started := 0, 0, 0
	renewals := map[*change]bool{}
	for i, a := range r.attempts {
		if ch := c.renewed(l, r, i, renewals); ch != nil {
			renewals[ch], a.renewed = true, true
		}
		if prev != nil {
			if a.Attempt <= prev.Attempt && forced == 0 && !a.renewed {
				c.bad(RuleAttempt, l, r.key.At, "attempt %d with fence %d comes after attempt %d with fence %d",
					a.Attempt, a.Fence, prev.Attempt, prev.Fence)
			}
			if a.Seq != 0 && prev.Seq > a.Seq {
				c.bad(RuleFence, l, r.key.At, "attempt %d with fence %d was recorded before attempt %d with fence %d",
					a.Attempt, a.Fence, prev.Attempt, prev.Fence)
			}
		}
		again := i > 0 && prev.Status != job.RunFailed
		if again && prev.Status == job.RunDead && redriven || again && forced > 0 || a.renewed {
			failures, losses, started = 0, 0, 0 // it begins anew
			again = false
		}
		if again {
			c.bad(RuleTwice, l, r.key.At, "attempt %d was claimed, and the run had ended as %s with attempt %d",
				a.Attempt, prev.Status, prev.Attempt)
		}
		if a.effect != nil {
			started++
		}
		c.claim(l, r, a, prev)
		c.attempt(l, r, a, &failures, &losses)
		prev = a
	}
	if started > 1 {
		c.rep.Repeated++
	}
	c.once(l, r, redriven, 1+forced+len(renewals))
	c.last(l, r, prev, redriven)
	c.keys(l, r, forced)
	c.live(l, r)
}

// claim looks at the moment at which an attempt was given to a worker.
func (c *checker) claim(l *life, r *runLife, a, prev *attempt) {
	at := int64(a.ClaimedAt)
	if l.surelyPaused(at) && !c.triggeredPaused(l, r, a) {
		c.bad(RulePaused, l, r.key.At, "attempt %d was claimed at %s, while the job was paused", a.Attempt, a.ClaimedAt)
	}
	if at > l.w.deleted.hi+c.clock {
		c.bad(RuleDeleted, l, r.key.At, "attempt %d was claimed at %s, and the job was deleted by %s", a.Attempt,
			a.ClaimedAt, job.Instant(l.w.deleted.hi))
	}
	if at < l.create.lo-c.clock {
		c.bad(RuleDeleted, l, r.key.At, "attempt %d was claimed at %s, before the job was created",
			a.Attempt, a.ClaimedAt)
	}
	if r.key.Origin != job.OriginSchedule && at < r.made(l)-c.clock {
		c.bad(RuleEarly, l, r.key.At, "attempt %d was claimed at %s, before anybody asked for it",
			a.Attempt, a.ClaimedAt)
	}
	if prev != nil && a.Attempt > prev.Attempt {
		c.retryTime(l, r, a, prev)
	}
	if prev == nil && r.key.Origin == job.OriginManual {
		if !l.w.any(at, at, func(v *version) bool {
			return v.spec.Deadline == 0 || at <= r.key.At+ms(v.spec.Deadline)
		}) {
			c.bad(RuleDeadline, l, r.key.At, "it was claimed at %s, after its deadline", a.ClaimedAt)
		}
	}
	if a.effect != nil && int64(a.effect.Start) < r.key.At-c.clock && r.key.Origin == job.OriginSchedule {
		c.bad(RuleEarly, l, r.key.At, "attempt %d was started at %s", a.Attempt, a.effect.Start)
	}
}

// triggeredPaused says that a paused job was run by hand: its first attempt does not wait.
func (c *checker) triggeredPaused(l *life, r *runLife, a *attempt) bool {
	if r.key.Origin == job.OriginSchedule {
		return false
	}
	if a.Attempt > 1 {
		return slices.ContainsFunc(l.of(CallRedrive), func(ch *change) bool { return ch.lo <= int64(a.ClaimedAt) })
	}
	return slices.ContainsFunc(l.of(CallRun, CallBackfill), func(ch *change) bool {
		return ch.lo <= int64(a.ClaimedAt) && ch.hi >= 0
	})
}

// maxLosses is how often a run may lose its worker.
const maxLosses = 5

// attempt holds the end of an attempt against what its worker did.
func (c *checker) attempt(l *life, r *runLife, a *attempt, failures, losses *int) {
	if a.isOpen || c.lostRestored(&a.Run) {
		return
	}
	say := func(rule Rule, format string, args ...any) {
		c.bad(rule, l, r.key.At, "attempt %d with fence %d: "+format, append([]any{a.Attempt, a.Fence}, args...)...)
	}
	e := a.effect
	lost := a.Reason == job.ReasonWorkerLost
	if lost {
		c.rep.LostWorkers++
		*losses++
		if !c.excused(a) {
			say(RuleLive, "it was taken from %s between %s and %s as lost, and that worker was neither dead, nor "+
				"paused, nor cut off for long enough", a.Worker, a.ClaimedAt, a.FinishedAt)
		}
	}
	least, most := retryLimits(c.endedWith(l, a))
	mayOnce, once := c.claimedOnce(l, a)
	switch a.Status {
	case job.RunSucceeded:
		if e == nil {
			say(RuleOutcome, "it is recorded as succeeded, and no worker started it")
		} else if e.Outcome != Succeeded {
			say(RuleOutcome, "it is recorded as succeeded, and it %s", e.Outcome)
		} else if early := int64(e.End) - c.clock - c.in.SlackEffects.Milliseconds(); a.FinishedAt != 0 &&
			int64(a.FinishedAt) < early && !c.heldRecord(a) && !c.frozen(e) {
			say(RuleFence, "it is recorded as succeeded at %s, and its worker was in it until %s: the result of "+
				"another attempt was taken", a.FinishedAt, e.End)
		}
	case job.RunFailed:
		if once {
			say(RuleOnce, "it is to be tried again, and it was started for at_most_once")
		}
		if lost {
			break
		}
		*failures++
		if *failures > most {
			say(RuleRetry, "it failed for the %d. time and is tried again, with %d retries allowed", *failures, most)
		}
		c.failed(say, l, a)
	case job.RunDead:
		switch {
		case lost:
			if once {
				say(RuleOnce, "it is among the dead letters, and it was started for at_most_once and lost")
			} else if *losses < maxLosses {
				say(RuleRetry, "it was given up after it had lost %d workers", *losses)
			}
		case a.Reason == job.ReasonPermanent || a.Reason == job.ReasonEgress || a.Reason == job.ReasonSecret:
			if e == nil || e.Outcome != Permanent {
				say(RuleOutcome, "it is recorded as failed for good, and its worker did not say so")
			}
		default:
			if *failures < least && !mayOnce {
				say(RuleRetry, "it was given up (%s) after %d failures, with %d retries allowed",
					a.Reason, *failures+1, least)
			}
			c.failed(say, l, a)
		}
	case job.RunLost:
		if !lost {
			say(RuleOnce, "it is recorded as lost for the reason %q", a.Reason)
		}
		if !mayOnce {
			say(RuleOnce, "it is recorded as lost, and it was not started for at_most_once")
		}
	case job.RunCanceled:
		c.canceled(l, r, a.Reason, int64(a.ClaimedAt), a.recorded)
	default:
		say(RuleOutcome, "a finished attempt cannot be %s", a.Status)
	}
	if e == nil || a.Status == job.RunSucceeded || lost {
		return
	}
	// A worker that said success is believed, unless its claim had been taken away before anybody heard of it; a
	// success of a run that is being canceled counts.
	if e.Outcome == Succeeded && !c.excused(a) && !c.unheard(l, a) {
		say(RuleOutcome, "its worker ended it with success at %s, and it is recorded as %s (%s)",
			e.End, a.Status, a.Reason)
	}
}

// unheard says that a worker stood still while its target answered, until the job's timeout was over: it then finds
// both, and may take either.
func (c *checker) unheard(l *life, a *attempt) bool {
	return a.Reason == job.ReasonTimeout && c.overdue(l, a) && c.stoodStill(a)
}

// stoodStill says that a worker was paused while it had an attempt.
func (c *checker) stoodStill(a *attempt) bool {
	return slices.ContainsFunc(c.in.Faults, func(f Fault) bool {
		return f.Kind == FaultPause && f.Node == a.Worker && int64(f.From) <= int64(a.FinishedAt)+c.clock &&
			c.until(f) >= int64(a.ClaimedAt)-c.clock
	})
}

// heldRecord says that the end of an attempt may be dated back: a clock was wrong, or its leader had no stamps when it
// recorded it.
func (c *checker) heldRecord(a *attempt) bool {
	return c.behind[a.Seq] != 0 || c.clocksWrong(int64(a.ClaimedAt), a.recorded)
}

// clocksWrong says that a clock was set while an attempt was under way: the end of an attempt is written down by its
// worker's clock, and while a leader holds because of its own, by the last stamp.
func (c *checker) clocksWrong(from, to int64) bool {
	return slices.ContainsFunc(c.in.Faults, func(f Fault) bool {
		return f.Kind == FaultClock && int64(f.From) <= to+c.clock && c.until(f)+c.ttl >= from
	})
}

// failed: an attempt that is recorded as failed did fail, or its worker stopped it because it had lost its lease.
func (c *checker) failed(say func(Rule, string, ...any), l *life, a *attempt) {
	e := a.effect
	switch {
	case e == nil && c.excused(a): // its worker had lost its lease before it could begin
	case e == nil && c.stoodStill(a): // and then the time to reach the target in was over
	case e == nil:
		say(RuleOutcome, "it is recorded as %s (%s), and no worker started it", a.Status, a.Error)
	case e.Outcome == Failed, e.Outcome == Permanent && a.Status == job.RunDead:
	case e.Outcome == TimedOut:
		if a.Reason != job.ReasonTimeout &&
			!(c.byQueue(a.Worker) && c.clocksWrong(int64(a.ClaimedAt), int64(a.FinishedAt))) {
			say(RuleOutcome, "it ran into its timeout, and is recorded as %s (%s)", a.Status, a.Reason)
		}
	case c.byQueue(a.Worker) && a.Reason == job.ReasonTimeout && c.overdue(l, a): // its leader told it so first
	case c.unheard(l, a):
	case e.Outcome == Canceled || e.Outcome == Cut:
		if !c.excused(a) {
			say(RuleLive, "it was stopped on %s without a request, and that worker was neither dead, nor paused, nor "+
				"cut off for long enough", a.Worker)
		}
	default:
		say(RuleOutcome, "it %s, and is recorded as %s (%s)", e.Outcome, a.Status, a.Reason)
	}
}

// once: with at_most_once a run is started at most once, and if its worker is lost a record says so. Each backfill with
// force, and each that renewed the run, is one more time that it was asked for.
func (c *checker) once(l *life, r *runLife, redriven bool, asked int) {
	if len(r.attempts) == 0 || redriven {
		return
	}
	first, last := int64(r.attempts[0].ClaimedAt), r.attempts[len(r.attempts)-1].recorded
	for _, v := range l.w.specs(first, last) {
		if v.spec.Delivery != job.DeliverAtMostOnce {
			return
		}
	}
	n := 0
	for _, a := range r.attempts {
		if a.effect != nil {
			n++
		}
	}
	if n > asked {
		c.bad(RuleOnce, l, r.key.At, "it was started %d times, and it is to be delivered at most once", n)
	}
	if len(r.attempts) > asked {
		c.bad(RuleOnce, l, r.key.At, "it has %d recorded attempts, and it is to be delivered at most once",
			len(r.attempts))
	}
}

// last: a run ends, or is open.
func (c *checker) last(l *life, r *runLife, a *attempt, redriven bool) {
	for i := range r.closed {
		h := &r.closed[i]
		if c.lostRestored(h) {
			continue
		}
		switch h.Status {
		case job.RunCanceled:
			c.canceled(l, r, h.Reason, r.made(l), c.committed(h))
		case job.RunExpired:
			v := l.w.versions[0]
			if r.v != nil {
				v = *r.v
			}
			at := c.committed(h)
			if !l.w.any(r.made(l), at, func(n *version) bool {
				return n.spec.Deadline > 0 && at > c.startable(l, r)+ms(n.spec.Deadline)
			}) {
				c.bad(RuleDeadline, l, r.key.At, "it was closed as expired at %s, with a deadline of %s",
					h.FinishedAt, v.spec.Deadline)
			}
		default:
			c.bad(RuleReason, l, r.key.At, "it was closed as %s (%s) though no worker had it", h.Status, h.Reason)
		}
	}
	if n := len(r.closed); n > 1 && !redriven && !c.filledAgain(l, r) {
		c.bad(RuleTwice, l, r.key.At, "it was closed %d times", n)
	}
	if r.open != nil {
		c.forgotten(l, r.open)
		if a != nil && !a.isOpen && a.Status != job.RunFailed && !redriven && r.key.Origin != job.OriginBackfill &&
			len(r.closed) == 0 {
			c.bad(RuleTwice, l, r.key.At, "it ended as %s, and it is open as %s", a.Status, r.open.Status)
		}
		return
	}
	if a != nil && a.Status == job.RunFailed && len(r.closed) == 0 {
		c.bad(RuleLost, l, r.key.At, "attempt %d failed, and nothing came after it", a.Attempt)
	}
	if a != nil && a.Status != job.RunFailed && len(r.closed) > 0 && !redriven && r.key.Origin != job.OriginBackfill {
		c.bad(RuleTwice, l, r.key.At, "it ended as %s and was closed as %s", a.Status, r.closed[0].Status)
	}
}

// forgotten: a run that may be claimed is, unless the cluster has no slot for it; at rest nothing waits for long.
func (c *checker) forgotten(l *life, r *job.Run) {
	if r.Status != job.RunPending && r.Status != job.RunRetrying || r.ReadyAt == 0 {
		return
	}
	if end := int64(c.in.Final.At); int64(r.ReadyAt) < end-c.in.Final.Slack.Milliseconds()-c.clock &&
		c.in.Final.Slack > 0 {
		c.bad(RuleLate, l, int64(r.ScheduledAt), "%s may be claimed since %s, and is not", r.RunID, r.ReadyAt)
	}
}

// canceled: it was asked for.
func (c *checker) canceled(l *life, r *runLife, reason job.Reason, from, to int64) {
	asked := func(kinds ...CallKind) bool {
		return slices.ContainsFunc(l.of(kinds...), func(ch *change) bool {
			return ch.lo-c.clock <= to && ch.hi+c.clock >= from && (ch.Kind != CallCancelRun || ch.Run == r.key)
		})
	}
	switch reason {
	case job.ReasonCanceled:
		if !asked(CallCancel, CallCancelRun) {
			c.bad(RuleCanceled, l, r.key.At, "it is recorded as canceled, and that was not asked for")
		}
	case job.ReasonDeleted:
		if l.w.deleted.lo == forever || l.w.deleted.lo-c.clock > to {
			c.bad(RuleCanceled, l, r.key.At, "it is recorded as canceled with its job, which was not deleted")
		}
	case job.ReasonReplaced:
		newer := false
		for k, o := range l.runs {
			late := o.made(l) // a request may have taken its time
			switch k.Origin {
			case job.OriginSchedule: // it may have waited for the end of a pause, or for a slot
				if len(o.attempts) > 0 {
					late = max(late, int64(o.attempts[0].ClaimedAt))
				} else {
					late = max(late, o.readyBy(c, l))
				}
			case job.OriginManual:
				late = max(late, k.At)
			case job.OriginBackfill:
				late = to
			}
			newer = newer || k != r.key && o.made(l)-c.clock <= to && late+c.clock >= r.made(l)
		}
		if !newer || !l.w.any(from, to, func(v *version) bool { return v.spec.Overlap == job.OverlapReplace }) {
			c.bad(RuleOverlap, l, r.key.At,
				"it is recorded as replaced, and there is no newer run, or the overlap policy is not replace")
		}
	default:
		c.bad(RuleCanceled, l, r.key.At, "it is recorded as canceled for the reason %q", reason)
	}
}

// readyBy is when an occurrence that was never claimed came up, at the latest: when its jitter was over, and if it is a
// one-off that may have waited for a resume, by its end.
func (r *runLife) readyBy(c *checker, l *life) int64 {
	at, end := r.key.At, r.ended(c)
	l.w.any(r.key.At, end, func(v *version) bool {
		if at = max(at, r.key.At+v.o.delay); v.o.oneOff() && l.maybePaused(r.key.At, end) {
			at = max(at, end)
		}
		return false
	})
	return at
}

// keys: a run has one idempotency key over all its attempts, the one that its definition makes, and no other run has
// it.
func (c *checker) keys(l *life, r *runLife, forced int) {
	seen := map[string]bool{}
	opened := r.firstClaim()
	for _, a := range r.attempts {
		if a.renewed { // an edit may have changed the template since
			clear(seen)
			opened = int64(a.ClaimedAt)
		}
		if a.effect == nil {
			continue
		}
		key := a.effect.Key
		if len(seen) > 0 && !seen[key] && forced == 0 {
			c.bad(RuleKey, l, r.key.At, "attempt %d was sent with the key %q, an attempt before it with another one",
				a.Attempt, key)
		}
		if other, ok := c.keyOf[key]; ok && other != r.key {
			c.bad(RuleKey, l, r.key.At, "the key %q was sent for %s as well", key, other)
		}
		seen[key] = true
		c.keyOf[key] = r.key
		// It is made when the run is opened, and what waits behind another run may be claimed much later.
		if forced > 0 {
			opened = int64(a.ClaimedAt)
		}
		if !l.w.any(min(opened, r.made(l))-c.clock, opened+c.clock, func(v *version) bool {
			want := keyFor(v.spec, r.key)
			return key == want || forced > 0 && strings.HasPrefix(key, want+":forced:")
		}) {
			c.bad(RuleKey, l, r.key.At, "attempt %d was sent with the key %q, which is not that of this run",
				a.Attempt, key)
		}
	}
}

// keyFor is the key that a definition makes for a run.
func keyFor(spec *job.Spec, k job.RunKey) string {
	t := spec.IdempotencyKey
	if t == "" {
		t = "{job_id}:{scheduled_at_unix}"
	}
	at := time.UnixMilli(k.At).UTC()
	written, unix := at.Format(time.RFC3339), strconv.FormatInt(at.Unix(), 10)
	if ms := k.At % 1000; ms != 0 && k.Origin == job.OriginSchedule {
		written, unix = at.Format("2006-01-02T15:04:05.000Z07:00"), fmt.Sprintf("%s.%03d", unix, ms)
	}
	key := t
	for name, v := range map[string]string{
		"job_id":               k.Job.String(),
		"job_name":             spec.Name,
		"scheduled_at":         written,
		"scheduled_at_unix":    unix,
		"scheduled_at_unix_ms": strconv.FormatInt(k.At, 10),
		"origin":               k.Origin.String(),
		"run_id":               k.String(),
	} {
		key = strings.ReplaceAll(key, "{"+name+"}", v)
	}
	if k.Origin != job.OriginSchedule && !strings.Contains(t, "{run_id}") {
		key += fmt.Sprintf(":%s:%d", k.Origin, k.At)
	}
	return key
}

// live: at no moment do two workers carry out one run, unless one of them stood still and could not know that it had
// lost it. And no worker begins with a claim that was given to another.
func (c *checker) live(l *life, r *runLife) {
	slack := c.in.SlackEffects.Milliseconds()
	for i, a := range r.attempts {
		if a.effect == nil {
			continue
		}
		end := int64(a.effect.End)
		if end == 0 {
			end = int64(c.in.Final.At)
		}
		for _, b := range r.attempts[i+1:] {
			if int64(a.effect.Start)-slack > int64(b.ClaimedAt)+c.clock && !c.frozen(a.effect) {
				c.bad(RuleLive, l, r.key.At, "%s started attempt %d with fence %d at %s, after attempt %d with fence "+
					"%d was claimed for %s at %s", a.Worker, a.Attempt, a.Fence,
					a.effect.Start, b.Attempt, b.Fence, b.Worker, b.ClaimedAt)
			}
			if b.effect != nil && int64(b.effect.Start) < end-slack && !c.frozen(a.effect) {
				c.bad(RuleLive, l, r.key.At,
					"two attempts were live at %s: %d with fence %d on %s until %s, and %d with fence %d on %s",
					b.effect.Start, a.Attempt, a.Fence, a.Worker, job.Instant(end), b.Attempt, b.Fence, b.Worker)
			}
		}
	}
}

// frozen says that the worker of an attempt stood still for longer than its lease while it had it.
func (c *checker) frozen(e *Effect) bool {
	end := int64(e.End)
	if end == 0 {
		end = int64(c.in.Final.At)
	}
	return slices.ContainsFunc(c.in.Faults, func(f Fault) bool {
		stuck := f.Kind == FaultPause ||
			c.in.LooseCut && (f.Kind == FaultCut || f.Kind == FaultLink || f.Kind == FaultKill)
		return stuck && (f.Node == e.Worker || f.Peer == e.Worker) && int64(f.From) <= end+c.clock &&
			c.until(f) >= int64(e.Start)-c.ttl
	})
}
