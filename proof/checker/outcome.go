package checker

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func ms(d job.Duration) int64 { return time.Duration(d).Milliseconds() }

// race is how far two commands that were on their way together may be apart in their stamps. With one clock they have
// the same one.
func (c *checker) race() int64 { return c.clock }

// ran looks at an occurrence that became a run: the rules must have allowed it.
func (x *walker) ran(p *path, s *position, v *version, r *runLife) {
	at, ready := s.at, s.at+v.o.delay
	claimed := r.firstClaim()
	if s.outage != nil {
		from := int64(s.outage.To)
		until := int64(x.c.in.Final.At)
		if claimed != 0 {
			until = claimed
		}
		if !x.w.any(from, until, func(n *version) bool { run, _ := x.missedOutcome(v, n, s, at); return run }) {
			p.bad(RuleMissed, x.l, at,
				"it ran, and under missed policy %s (window %s, max %d, grace %s) the outage from %s to "+
					"%s swallowed it",
				v.spec.Missed.Policy, v.spec.Missed.Window, v.spec.Missed.Max, v.spec.Missed.Grace, s.outage.From,
				s.outage.To)
		}
	}
	if v.o.oneOff() && s.v == 0 && v.spec.Missed.Policy == job.MissedSkip &&
		x.w.versions[0].at.lo-ready > ms(v.spec.Missed.Grace) && len(x.w.versions) == 1 {
		p.bad(RuleMissed, x.l, at,
			"it ran, and its time had passed by more than the grace when it was created, under missed policy skip")
	}
	if claimed == 0 {
		return
	}
	if claimed < ready {
		p.bad(RuleEarly, x.l, at, "it was claimed at %s, %d ms before its time %s", job.Instant(claimed), ready-claimed,
			job.Instant(ready))
	}
	// What finds a run of its job open is judged then and waits, and so is what run_all puts up: a calendar that
	// changes later is not asked. Nor is it for a run that was taken back.
	judged := claimed
	if x.l.openDuring(ready, claimed, at, x.c) || x.caughtUp(r.key) || r.takenBack(ready) {
		judged = ready
	}
	if !x.w.any(ready, claimed, func(n *version) bool {
		_, must := x.c.forbidden(n.spec, at, judged, claimed)
		return !must
	}) {
		p.bad(RuleBounds, x.l, at, "it ran, and a calendar forbids it")
	}
	if !x.w.any(ready, claimed, func(n *version) bool { return !n.o.skipped(at) }) {
		p.bad(RuleBounds, x.l, at, "it ran, its time does not exist, and dst_gap is skip")
	}
	if !x.w.any(claimed, claimed,
		func(n *version) bool { return n.spec.Deadline == 0 || claimed <= ready+ms(n.spec.Deadline) }) {
		p.bad(RuleDeadline, x.l, at, "it was claimed at %s, %s after its time, with a deadline of %s",
			job.Instant(claimed), time.Duration(claimed-ready)*time.Millisecond, v.spec.Deadline)
	}
	if !v.o.oneOff() && len(x.w.specs(ready, claimed)) == 1 && x.l.surelyPaused(ready-x.c.clock) &&
		x.l.surelyPaused(ready+x.c.clock) {
		p.bad(RulePaused, x.l, at, "it was claimed at %s, and at its time its job was paused", job.Instant(claimed))
	}
	x.ownTime(p, s, v, r, claimed, ready)
	x.late(p, s, v, claimed, ready)
}

// late: where there are always free slots, an occurrence is claimed soon, unless something explains the delay.
func (x *walker) late(p *path, s *position, v *version, claimed, ready int64) {
	limit := x.c.in.MaxLag.Milliseconds()
	born := max(ready, x.w.versions[0].at.lo)
	if limit == 0 || claimed-born <= limit {
		return
	}
	if x.l.maybePaused(ready, claimed) || x.c.troubled(ready-limit, claimed) ||
		x.l.openDuring(ready, claimed, s.at, x.c) {
		return
	}
	for i := range x.w.versions[1:] {
		if w := x.w.versions[i+1].at; w.lo <= claimed && w.hi >= ready {
			return
		}
	}
	p.bad(RuleLate, x.l, s.at, "it was claimed %s after its time, and nothing kept it",
		time.Duration(claimed-born)*time.Millisecond)
}

// troubled says that a fault or an outage touches [from, to].
func (c *checker) troubled(from, to int64) bool {
	for _, f := range c.in.Faults {
		if int64(f.From) <= to && c.until(f) >= from {
			return true
		}
	}
	for _, w := range c.in.Outages {
		if int64(w.From) <= to && int64(w.To) >= from {
			return true
		}
	}
	return false
}

// permits says why a record about an occurrence cannot be right; "" if it can. The decision was made between the time
// of the occurrence and the writing of the record, under a definition that was in force then.
func (x *walker) permits(p *path, s *position, v *version, at int64, g *gap) string {
	ready, until := at+v.o.delay, g.recorded
	if until < at-x.c.clock && g.Reason != job.ReasonCanceled { // a one-off may be canceled before its time
		return fmt.Sprintf("it was written at %s, before its time", job.Instant(until))
	}
	want := map[job.Reason]job.RunStatus{job.ReasonOverlap: job.RunSkipped, job.ReasonQueueFull: job.RunSkipped,
		job.ReasonOutage: job.RunMissed, job.ReasonPast: job.RunMissed,
		job.ReasonPaused: job.RunSkipped, job.ReasonBlackout: job.RunSkipped, job.ReasonDSTGap: job.RunSkipped,
		job.ReasonDeadline: job.RunExpired,
		job.ReasonDeleted:  job.RunCanceled,
		job.ReasonCanceled: job.RunCanceled, job.ReasonEdited: job.RunSkipped, job.ReasonWaiting: job.RunSkipped,
		job.ReasonReplaced: job.RunCanceled,
		job.ReasonRestored: job.RunMissed}
	if st, ok := want[g.Reason]; !ok || st != g.Status {
		return "that status and that reason do not go together, or nothing in this history makes it possible"
	}
	switch g.Reason {
	case job.ReasonOutage:
		return x.permitsMissed(s, v, at, g)
	case job.ReasonRestored:
		return x.permitsRestored(at, g)
	case job.ReasonPast:
		if !v.o.oneOff() || v.spec.Missed.Policy != job.MissedSkip ||
			x.w.versions[0].at.hi-at-v.o.delay <= ms(v.spec.Missed.Grace) {
			return "its time had not passed when it was created, or its missed policy is not skip"
		}
	case job.ReasonOverlap:
		if !x.w.any(at, until, func(n *version) bool { return n.spec.Overlap == job.OverlapSkip }) {
			return "its overlap policy is not skip"
		}
		if x.swallowed(v, at, until) {
			return "it fell into an outage and was older than the grace at its end: it is missed, or runs"
		}
		if s.outage != nil && x.w.any(int64(s.outage.To), until, func(n *version) bool {
			run, miss := x.missedOutcome(v, n, s, at)
			return n.spec.Missed.Policy == job.MissedRunAll && run && !miss
		}) && len(x.w.specs(int64(s.outage.To), until)) == 1 {
			return "catch-up runs take their turns and are not skipped"
		}
		// While it waits for a resume a person may run the job, and then it is skipped for that.
		if len(x.w.specs(ready, until)) > 1 || x.l.maybePaused(ready, until) {
			if !x.l.openDuring(ready, until, at, x.c) {
				return "no run of the job was open then"
			}
		} else if !x.liveOpenAt(ready, at) {
			return "no live run of the job was open at its time, nor would one have been without catch-up runs"
		}
	case job.ReasonWaiting:
		if !x.w.any(at, until, func(n *version) bool { return n.spec.Overlap == job.OverlapSkip }) {
			return "its overlap policy is not skip"
		}
		if x.swallowed(v, at, until) {
			return "it fell into an outage and was older than the grace at its end: it is missed, or runs"
		}
		if !x.waitedBefore(ready, at, until) {
			return "no earlier occurrence waited for a slot then"
		}
	case job.ReasonReplaced:
		if !x.w.any(at, until, func(n *version) bool { return n.spec.Overlap == job.OverlapReplace }) {
			return "its overlap policy is not replace"
		}
		if !x.displaced(v, ready, at, until) {
			return "nothing newer took its place"
		}
	case job.ReasonQueueFull:
		if !x.w.any(at, until,
			func(n *version) bool {
				return n.spec.Overlap == job.OverlapQueue || n.spec.Overlap == job.OverlapAllow
			}) && !x.behindSerial(at, until) {
			return "its overlap policy has no queue"
		}
		if n := x.l.waitingAt(ready, until, at); n < job.MaxWaiting {
			return fmt.Sprintf("at most %d runs waited, and %d may", n, job.MaxWaiting)
		}
	case job.ReasonPaused:
		switch from, to := x.l.pauseOf(v, ready, at, until); {
		case !x.l.maybePaused(at, until):
			return "the job was not paused then"
		case !x.l.maybePaused(from, to+x.c.clock):
			return "it was due before the pause, and stays due"
		}
	case job.ReasonBlackout:
		if !x.w.any(at, until, func(n *version) bool { may, _ := x.c.forbidden(n.spec, at, at, until); return may }) {
			return "no calendar of the job forbids it"
		}
	case job.ReasonDSTGap:
		if !x.w.any(at, until, func(n *version) bool { return n.o.skipped(at) }) {
			return "its time exists, or dst_gap is not skip"
		}
	case job.ReasonDeadline:
		if !x.w.any(at, until, func(n *version) bool {
			return n.spec.Deadline > 0 && until > ready+ms(n.spec.Deadline)
		}) {
			return fmt.Sprintf("its deadline of %s had not passed at %s", v.spec.Deadline, job.Instant(until))
		}
	case job.ReasonDeleted:
		if x.w.deleted.lo == forever || until < x.w.deleted.lo-x.c.clock || until > x.w.deleted.hi+x.c.clock {
			return "the job was not deleted then"
		}
	case job.ReasonCanceled:
		for _, ch := range x.l.of(CallCancel) {
			if v.o.oneOff() && ch.lo <= until && ch.hi >= until {
				return ""
			}
		}
		return "it was not canceled"
	case job.ReasonEdited:
		return "no edit of the schedule came while it was due"
	}
	return ""
}

// outageOf is the outage in which an occurrence was missed: it was due without a leader, and older than the grace when
// there was one again.
func (x *walker) outageOf(v, n *version, at int64) *Outage {
	ready := at + v.o.delay
	for i := range x.c.in.Outages {
		w := &x.c.in.Outages[i]
		if int64(w.From) >= ready || ready > int64(w.To) || int64(w.To)-ready <= ms(n.spec.Missed.Grace) {
			continue
		}
		if x.w.versions[0].at.lo >= int64(w.To) || v.o.oneOff() && n.at.lo >= int64(w.To) {
			continue // it was not there to be missed
		}
		return w
	}
	return nil
}

// swallowed says that an occurrence was missed in an outage whatever definition was in force when that was decided.
func (x *walker) swallowed(v *version, at, until int64) bool {
	if v.o.oneOff() && x.l.maybePaused(at, until) {
		return false // it waited for its resume
	}
	return !x.w.any(at, until, func(n *version) bool { return x.outageOf(v, n, at) == nil })
}

// keptFromRunning says that the overlap policy may have kept an occurrence from running that the missed rule would have
// had run.
func (x *walker) keptFromRunning(v *version, at, until int64) bool {
	ready := at + v.o.delay
	if !x.w.any(at, until, func(n *version) bool { return n.spec.Overlap == job.OverlapSkip }) {
		return false
	}
	if len(x.w.specs(ready, until)) > 1 {
		return x.l.openDuring(ready, until, at, x.c)
	}
	return x.liveOpenAt(ready, at)
}

// enterOutage notes the outage that an occurrence begins: the first one that is missed decides for all that follow in
// it. Those that have expired or are in a blackout decide nothing: what follows them is looked at by itself, and if it
// is within the grace, it is late and not missed.
func (x *walker) enterOutage(s *position, v *version, r *runLife, g *gap) {
	anew := s.anew
	s.anew = false
	if s.outage != nil && s.at+v.o.delay <= int64(s.outage.To) && !anew {
		return
	}
	s.outage, s.head = nil, 0
	until := int64(x.c.in.Final.At)
	if r != nil && r.firstClaim() != 0 {
		until = r.firstClaim()
	} else if g != nil {
		until = g.recorded
	}
	if g != nil && (g.Reason == job.ReasonPaused || g.Reason == job.ReasonDeleted || g.Reason == job.ReasonEdited ||
		g.Reason == job.ReasonCanceled || g.Reason == job.ReasonRestored) {
		return // it was taken away before anybody decided
	}
	ready := s.at + v.o.delay
	if v.o.oneOff() && (x.l.surelyPaused(ready) || r != nil && x.l.maybePaused(ready, until)) {
		return // it waited for its resume and runs then, whatever fell into an outage meanwhile
	}
	for _, n := range x.w.specs(s.at, until) {
		if w := x.outageOf(v, n, s.at); w != nil {
			s.outage, s.head = w, s.at
			return
		}
	}
}

// lastIn is the last occurrence whose start fell into an outage.
func (x *walker) lastIn(v *version, w *Outage) int64 {
	return v.o.last(int64(w.From)-v.o.delay+1, int64(w.To)-v.o.delay)
}

// missedOutcome says whether the missed rule of a version lets an occurrence of the outage run, and whether it lets it
// be missed.
func (x *walker) missedOutcome(v, n *version, s *position, at int64) (run, miss bool) {
	w := s.outage
	if x.outageOf(v, n, s.head) == nil {
		return true, false // under this definition it is not missed at all
	}
	to, delay := int64(w.To), v.o.delay
	last := x.lastIn(v, w)
	if last == 0 || at > last {
		return true, false
	}
	reach := forever
	if n.spec.Missed.Window != job.WindowAuto {
		if d, err := time.ParseDuration(n.spec.Missed.Window); err == nil {
			reach = d.Milliseconds()
		}
	} else if next := v.o.next(last); next != 0 {
		reach = max(30*60_000, (next-last)/2)
	}
	inside := func(t int64) bool { return to-(t+delay) <= reach }
	switch n.spec.Missed.Policy {
	case job.MissedSkip:
		missed := to-(at+delay) > ms(n.spec.Missed.Grace)
		return !missed, missed
	case job.MissedRunAll:
		if !inside(at) {
			return false, true
		}
		limit := max(n.spec.Missed.Max, 1)
		if after := len(v.o.between(at+1, last)); after >= limit {
			return false, true
		}
		return true, false
	}
	// run_once: the latest inside the window that is not skipped.
	all := v.o.between(s.head, last)
	for i := len(all) - 1; i >= 0 && inside(all[i]); i-- {
		may, must := x.c.forbidden(n.spec, all[i], to, int64(x.c.in.Final.At))
		if must || v.o.skipped(all[i]) {
			continue
		}
		if may { // the calendar was edited: either
			return true, true
		}
		return at >= all[i], at != all[i]
	}
	return false, true
}

func (x *walker) permitsMissed(s *position, v *version, at int64, g *gap) string {
	if s.outage == nil {
		return fmt.Sprintf("no outage swallowed it: it was due at %s, and waiting for a slot or a worker is backlog, "+
			"which is never missed", job.Instant(at+v.o.delay))
	}
	missed := x.w.any(int64(s.outage.To), g.recorded,
		func(n *version) bool { _, miss := x.missedOutcome(v, n, s, at); return miss })
	if !missed && !x.keptFromRunning(v, at, g.recorded) {
		return fmt.Sprintf("under missed policy %s (window %s, max %d, grace %s) it is to run after "+
			"the outage from %s to %s",
			v.spec.Missed.Policy, v.spec.Missed.Window, v.spec.Missed.Max, v.spec.Missed.Grace, s.outage.From,
			s.outage.To)
	}
	return ""
}
