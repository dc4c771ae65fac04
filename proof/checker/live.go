package checker

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// A run is live if the schedule or a person wants it now, and serial if it catches up: a backfill, a redriven letter,
// run_all. Whether an occurrence is skipped depends on the live runs that were open at its own time; serial ones take
// the gaps.

// liveSpan is when a run was open as a live one: made at the earliest, first claimed (0: never), and ended between
// least and most.
type liveSpan struct{ made, claimed, least, most int64 }

func (c *checker) liveSpan(l *life, r *runLife) (s liveSpan, ok bool) {
	if r.key.Origin == job.OriginBackfill {
		return s, false
	}
	s = liveSpan{made: r.made(l), claimed: r.firstClaim()}
	part := c.parts(l, r)[0]
	if len(part) > 0 {
		last := part[len(part)-1]
		if s.most, s.least = last.recorded, int64(last.FinishedAt); !last.isOpen && last.Status != job.RunFailed {
			if at, known := c.in.Final.Recorded[last.Seq]; known && last.Seq != 0 {
				s.least = int64(at)
			}
			if c.lostRestored(&last.Run) {
				s.least = min(s.least, int64(c.in.Restored.Release)) // after that it was another cluster
			}
			return s, true
		}
	}
	if r.open != nil {
		s.least, s.most = int64(c.in.Final.At), int64(c.in.Final.At)
		return s, true
	}
	s.most = max(s.most, r.ended(c))
	s.least = max(s.least, s.made)
	return s, true
}

// everAllowed says that runs of the job could overlap at some time.
func (w *world) everAllowed() bool {
	return slices.ContainsFunc(w.versions, func(v version) bool { return v.spec.Overlap == job.OverlapAllow })
}

// caughtUp says that an occurrence may have been put up by run_all, after an outage.
func (x *walker) caughtUp(k job.RunKey) bool {
	return k.Origin == job.OriginSchedule && x.c.caughtUp(x.w, k.At)
}

func (c *checker) caughtUp(w *world, at int64) bool {
	return w.any(at, forever-1, func(v *version) bool {
		return v.spec.Missed.Policy == job.MissedRunAll && slices.ContainsFunc(c.in.Outages, func(o Outage) bool {
			return int64(o.From) < at+v.o.delay && at <= int64(o.To)
		})
	})
}

// serialDuring says that a serial run of the job may have been open at some time in [from, to].
func (x *walker) serialDuring(from, to int64) bool {
	for k, r := range x.l.runs {
		since := r.made(x.l)
		if k.Origin != job.OriginBackfill && !x.caughtUp(k) {
			since = x.c.redrivenAt(x.l, r)
		}
		if since != forever && since-x.c.clock <= to && r.ended(x.c)+x.c.clock >= from {
			return true
		}
	}
	return false
}

// redrivenAt is when a run that had died was redriven for the first time, at the earliest; forever if it never was.
func (c *checker) redrivenAt(l *life, r *runLife) int64 {
	died := slices.IndexFunc(r.attempts, func(a *attempt) bool { return a.Status == job.RunDead })
	if died < 0 || !c.redriven(l, r) {
		return forever
	}
	at := int64(r.attempts[died].FinishedAt)
	if stamp, known := c.in.Final.Recorded[r.attempts[died].Seq]; known {
		at = min(at, int64(stamp))
	}
	return max(at, l.earliest(CallRedrive))
}

// behindSerial says that an occurrence may have become a run that waits by a time: behind a serial run, or behind a
// live one that waited behind a serial one and began late because of it. An edit of the schedule does not drop such a
// run.
func (x *walker) behindSerial(at, until int64) bool {
	if x.serialDuring(at, until) {
		return true
	}
	for k, r := range x.l.runs {
		if k.Origin == job.OriginBackfill || k.Origin == job.OriginSchedule && k.At >= at {
			continue
		}
		made, late := r.made(x.l), until
		if first := r.firstClaim(); first != 0 {
			late = min(first, until)
		}
		if made-x.c.clock <= until && r.ended(x.c)+x.c.clock >= at && x.serialDuring(made, late) {
			return true
		}
	}
	return false
}

// liveOpenAt says that a live run of the job may have been open at the time of an occurrence; a later one of the
// schedule comes after that.
func (x *walker) liveOpenAt(ready, at int64) bool {
	for k, r := range x.l.runs {
		if k.Origin == job.OriginSchedule && k.At >= at {
			continue
		}
		if x.w.everAllowed() && r.made(x.l)-x.c.clock <= ready && r.ended(x.c)+x.c.clock >= ready {
			return true // what is redriven while runs may overlap is not serial
		}
		if s, ok := x.c.liveSpan(x.l, r); ok && s.made-x.c.clock <= ready &&
			s.most-x.lateness(r, 0)+x.c.clock >= ready {
			return true
		}
	}
	return false
}

// prompt is how soon after its time an occurrence is decided about, with nothing wrong.
const prompt = 1000

// lateness is by how much a live run surely began later because of catch-up runs: at its time one of them was open, or
// a live run that was late because of one, and it waited for that. Without them it would have ended that much earlier.
func (x *walker) lateness(r *runLife, depth int) int64 {
	first := r.firstClaim()
	if r.key.Origin != job.OriginSchedule || first == 0 || depth > 100 || x.w.everAllowed() || x.caughtUp(r.key) {
		return 0
	}
	specs := x.w.specs(r.key.At, first)
	if len(specs) != 1 || specs[0].o.oneOff() {
		return 0
	}
	ready := r.key.At + specs[0].o.delay
	if first <= ready+prompt || x.l.maybePaused(ready, first) || x.c.troubled(ready-prompt, first) {
		return 0
	}
	for k, o := range x.l.runs {
		if o == r || k.Origin == job.OriginManual || x.caughtUp(k) {
			continue
		}
		for i, part := range x.c.parts(x.l, o) {
			if len(part) == 0 || int64(part[0].ClaimedAt) >= ready-x.c.clock {
				continue
			}
			last := part[len(part)-1]
			end := min(int64(last.FinishedAt), last.recorded)
			if last.isOpen || last.Status == job.RunFailed || end <= ready+prompt || end > first {
				continue
			}
			if k.Origin == job.OriginBackfill || i > 0 || x.lateness(o, depth+1) > 0 {
				return end - ready
			}
		}
	}
	return 0
}

// mayBeLate says that a run may have begun later because of catch-up runs.
func (x *walker) mayBeLate(r *runLife) (may bool) {
	if may, ok := x.tardy[r]; ok {
		return may
	}
	defer func() { x.tardy[r] = may }()
	made, first := r.made(x.l), r.firstClaim()
	if first == 0 || x.serialDuring(made, first) {
		return true
	}
	for k, o := range x.l.runs {
		if o == r || k.Origin == job.OriginBackfill || o.firstClaim() >= first || o.firstClaim() == 0 {
			continue
		}
		if o.firstClaim()-x.c.clock <= first && o.ended(x.c)+x.c.clock >= made && x.mayBeLate(o) {
			return true
		}
	}
	return false
}

// room: a backfill or a redriven run is started where it ends before the next occurrence, as far as what the job's
// attempts took tells: if each of them took longer than that, it waits. After some live runs without room it starts
// all the same. The product counts what it looks at, at most twice for a run or a call.
func (c *checker) room(l *life, all []stretch) {
	const passed = 3
	if l.w.everAllowed() {
		return
	}
	since := int64(0) // the claim of the serial run before
	for i, b := range all {
		if !b.serial {
			continue
		}
		least, began, events := forever, b.from, 0
		for _, a := range all[:i] {
			for _, at := range a.r.attempts {
				end := min(int64(at.FinishedAt), at.recorded)
				if at.Status == job.RunSucceeded && end < b.from-c.clock {
					least, began = min(least, end-int64(at.ClaimedAt)), min(began, int64(at.ClaimedAt))
				}
			}
			if a.to > since && a.to <= b.from+c.clock {
				events++
			}
		}
		for _, ch := range l.calls {
			if ch.hi >= since && ch.lo <= b.from+c.clock {
				events++
			}
		}
		for _, g := range l.gaps {
			if g.recorded >= since && int64(g.First) <= b.from {
				events++
			}
		}
		since = b.from
		v := b.policies[0]
		next := v.o.next(b.from - v.o.delay)
		if least == forever || next == 0 || events >= passed || len(l.w.specs(began, next)) != 1 ||
			v.spec.MaxRuns > 0 || l.maybePaused(began, next) || c.troubled(began, next) || c.in.Restored != nil {
			continue
		}
		if left := next + v.o.delay - b.from; least > left+c.clock {
			c.bad(RuleOverlap, l, b.r.key.At, "the catch-up run %s was started at %s, %d ms before the next "+
				"occurrence, and no attempt of the job took less than %d ms", b.r.key, job.Instant(b.from), left, least)
		}
	}
}

// waitedBefore says that an earlier occurrence may still have waited for a slot at a time. The record is written when
// it has been claimed; but a claim that went with its worker before it was started is not recorded, and what is known
// as the first one came later.
func (x *walker) waitedBefore(ready, at, until int64) bool {
	for k, r := range x.l.runs {
		if first := r.firstClaim(); k.Origin == job.OriginSchedule && k.At < at && first >= ready-x.c.clock &&
			(first <= until+x.c.clock || x.c.troubled(k.At, until)) {
			return true
		}
	}
	return false
}

// displaced says that something newer may have taken the place of an occurrence before it could start.
func (x *walker) displaced(v *version, ready, at, until int64) bool {
	if next := v.o.next(at); next != 0 && next+v.o.delay <= until+x.c.clock {
		return true
	}
	for k, r := range x.l.runs {
		if k.Origin == job.OriginManual && k.At+x.c.clock >= ready && r.made(x.l)-x.c.clock <= until {
			return true
		}
	}
	return false
}

// ownTime: an occurrence under skip does not run if a live run of its job was open when its time came, however long it
// then waited for a slot. One that was due and waited for a slot itself counts. A serial run makes live ones wait, and
// those are not skipped.
func (x *walker) ownTime(p *path, s *position, v *version, r *runLife, claimed, ready int64) {
	specs := x.w.specs(ready, claimed)
	if len(specs) != 1 || specs[0].spec.Overlap != job.OverlapSkip || x.caughtUp(r.key) ||
		v.o.oneOff() && x.l.maybePaused(ready, claimed) {
		return
	}
	for k, o := range x.l.runs {
		span, ok := x.c.liveSpan(x.l, o)
		if !ok || o == r || x.caughtUp(k) || span.claimed == 0 {
			continue
		}
		late := int64(0)
		if (span.least > ready || span.claimed > ready) && x.mayBeLate(o) { // it counts as if it had begun at its time
			late = max(span.claimed-k.At, 0)
		}
		open := span.claimed < ready-x.c.clock && span.least-late > ready+x.c.clock
		waited := k.Origin == job.OriginSchedule && k.At < s.at && span.claimed > ready+x.c.clock && late == 0
		if (open || waited) && !x.serialDuring(min(span.made, k.At), claimed) {
			p.bad(RuleOverlap, x.l, s.at,
				"it was claimed at %s, and at its time %s was open (claimed at %s, ended at %s), under overlap skip",
				job.Instant(claimed), k, job.Instant(span.claimed), job.Instant(span.least))
			return
		}
	}
}

// liveFirst: no serial run is started while a live one waits. When a serial one may start is when the run before it has
// ended; one that was ready before that, and is claimed after it, was pushed aside.
func (c *checker) liveFirst(l *life, all []stretch) {
	if l.w.everAllowed() { // what was redriven then is not serial
		return
	}
	for _, b := range all {
		if !b.serial {
			continue
		}
		free := int64(0)
		for _, a := range all {
			if a.fence < b.fence && a.to <= b.from+c.clock {
				free = max(free, a.to)
			}
		}
		for k, r := range l.runs {
			span, ok := c.liveSpan(l, r)
			if !ok || r == b.r || span.claimed <= b.from+c.clock ||
				k.Origin == job.OriginSchedule && c.caughtUp(l.w, k.At) {
				continue
			}
			since := max(k.At, l.create.hi)
			if r.v != nil {
				since = max(since, k.At+r.v.o.delay)
			}
			specs := l.w.specs(since, span.claimed)
			if since >= free-c.clock || len(specs) != 1 || specs[0].spec.Overlap == job.OverlapAllow ||
				l.maybePaused(since, span.claimed) {
				continue
			}
			c.bad(RuleOverlap, l, k.At,
				"it waited since %s and was claimed at %s, and the catch-up run %s was started in between, at %s",
				job.Instant(since), job.Instant(span.claimed), b.r.key, job.Instant(b.from))
		}
	}
}
