// Package decide applies a job's rules to an occurrence whose time has come: it is claimed, or it is missed, expired,
// forbidden by a calendar, replaced or skipped, with a record that says so. It is pure: every leader decides the same
// from the same committed state.
package decide

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	minAutoWindow = 30 * time.Minute
	// maxCount bounds how far occurrences that did not run are counted; beyond it the record says "at least".
	maxCount = 10_000
	// maxBack bounds how far back a run is looked for that no calendar forbids.
	maxBack = 1000
	// maxRows bounds how many runs of run_all are put up in one step.
	maxRows = 100
)

// Occurrence is what decides about an occurrence whose time has come. All of it is committed state, the clock excepted,
// and outages are committed too: a second leader that looks at the same occurrence decides the same.
type Occurrence struct {
	Spec             *job.Spec
	Sched            *schedule.Schedule
	Blackouts        []*schedule.Blackout
	Created, Updated int64 // of the job
	At, Ready        int64
	Runs             uint32
	Released         int64         // when the cluster was released after a restore; 0 if it was not restored
	Pauses           *store.Pauses // of the job, that this occurrence lies before or in; nil: none
}

// Decision is what is to become of an occurrence: it is claimed, or moved to next with a record of what does not run.
type Decision struct {
	Claim bool
	// Next is what follows. With Last it follows only if the overlap policy skips the run that is claimed: if it
	// counts, it is the last one.
	Next fsm.When
	Last bool
	Due  bool    // Next is due as well, and has to be looked at by itself
	Gap  fsm.Gap // of a claim: what became due behind it and does not run
	Rows []int64 // of run_all: what is put up to run in the gaps of the live schedule
}

// Flags is what a claim or an admission says of an occurrence.
func (f *Decision) Flags() (b byte) {
	if f.Last {
		b |= fsm.ClaimLast
	}
	if f.Due {
		b |= fsm.ClaimDue
	}
	return b
}

// decide applies a job's rules to an occurrence that is ready, in this order: max_runs, what a restore made impossible,
// pauses, missed windows (a one-off that was created too late counts as missed), deadline, dst_gap, blackouts.
func decide(o *Occurrence, now int64, outages []store.Outage) Decision {
	if o.Spec.MaxRuns > 0 && int64(o.Runs) >= int64(o.Spec.MaxRuns) {
		return Decision{} // nothing follows the last run
	}
	if o.restored() && !mutant.On(mutant.RestoreFires) {
		return o.skipThrough(o.prev(o.Released), job.RunMissed, job.ReasonRestored)
	}
	if p, ok := o.pausedIn(o.At); ok {
		return o.skipThrough(o.prev(p.To-o.delay()), job.RunSkipped, job.ReasonPaused)
	}
	if o.createdPastDue() && o.Spec.Missed.Policy == job.MissedSkip {
		return o.skipThrough(o.At, job.RunMissed, job.ReasonPast)
	}
	if mutant.On(mutant.BacklogMissed) && now-o.Ready > time.Duration(o.Spec.Missed.Grace).Milliseconds() {
		outages = []store.Outage{{From: o.Ready - 1, To: now}}
	}
	if w, ok := o.missedIn(outages); ok {
		if f := o.missed(w, now); !f.Claim {
			return f
		}
	}
	if o.expired(o.At, now) {
		last := o.prev(now - o.deadline() - o.delay() - 1)
		return o.skipThrough(last, job.RunExpired, job.ReasonDeadline)
	}
	if o.Sched.Skipped(time.UnixMilli(o.At)) {
		return o.skipThrough(o.At, job.RunSkipped, job.ReasonDSTGap)
	}
	if o.forbidden(o.At) {
		return o.skipThrough(o.At, job.RunSkipped, job.ReasonBlackout)
	}
	last := o.At
	switch o.Spec.Overlap {
	case job.OverlapReplace:
		if newest := o.lastDue(now, outages); newest > o.At && !mutant.On(mutant.JudgeBySlot) {
			return Decision{Next: when(o.Sched, newest),
				Gap: o.gap(o.prev(newest-1), job.RunCanceled, job.ReasonReplaced)}
		}
	case job.OverlapSkip:
		if !mutant.On(mutant.JudgeBySlot) {
			last = o.lastDue(now, outages)
		}
	}
	f := o.follow(last)
	f.Claim = true
	f.Due = f.Next.At != 0 && f.Next.Ready <= now
	if last > o.At {
		f.Gap = o.gap(last, job.RunSkipped, job.ReasonWaiting)
		f.Gap.First, f.Gap.Count = o.next(o.At), f.Gap.Count-1 // without this one, which runs
	}
	return f
}

// follow is what comes after last if this occurrence becomes a run.
func (o *Occurrence) follow(last int64) (f Decision) {
	if f.Next = NextAfter(o.Spec, o.Sched, o.Runs+1, last); f.Next.At == 0 {
		// Apply may skip it, because of a run that is not known here, and a skipped occurrence does not count towards
		// max_runs: there must be a next one then. The claim names it, and that it follows only then.
		f.Next = NextAfter(o.Spec, o.Sched, o.Runs, last)
		f.Last = f.Next.At != 0
	}
	return f
}

// lastDue is the last occurrence up to a time, from this one on, about which the same is decided under an overlap
// policy: between them is none that is missed, in a pause or forbidden by a calendar, because those are judged by that
// first. What fell into an outage and is within the grace is late, not missed.
func (o *Occurrence) lastDue(until int64, outages []store.Outage) int64 {
	for _, w := range outages {
		if w.From >= o.Ready && w.From < until && o.missesIn(w) {
			until = w.From
		}
	}
	if o.Pauses != nil {
		for _, p := range o.Pauses {
			if first := o.next(p.From - o.delay()); p.From >= o.Ready && p.From < until && first != 0 &&
				first+o.delay() <= p.To {
				until = p.From
			}
		}
	}
	until -= o.delay()
	if len(o.Blackouts) == 0 && o.Spec.DSTGap != "skip" {
		return o.prev(until)
	}
	last := o.At
	for range maxBack {
		at := o.next(last)
		if at == 0 || at > until || o.forbidden(at) {
			break
		}
		last = at
	}
	return last
}

// next is the nominal time after one; 0 if there is none.
func (o *Occurrence) next(at int64) int64 {
	t, ok := o.Sched.Next(time.UnixMilli(at))
	if !ok {
		return 0
	}
	return t.UnixMilli()
}

// missesIn says that the first occurrence after the beginning of an outage is missed in it. If that one is not, no
// later one is.
func (o *Occurrence) missesIn(w store.Outage) bool {
	first := *o
	if first.At = o.next(w.From - o.delay()); first.At == 0 {
		return false
	}
	first.Ready = first.At + o.delay()
	_, ok := first.missedIn([]store.Outage{w})
	return ok
}

// Admission is what is proposed for an occurrence that finds a run of its job open: what follows if it waits for that
// one, and up to which one none runs, with what follows then, if it is skipped. until is how long the job was busy, or
// the time of looking if it still is.
func (o *Occurrence) Admission(until int64, outages []store.Outage) (wait, skip Decision) {
	if _, ok := o.missedIn(outages); ok {
		// The missed rule would have it run, and the overlap policy may not: then it is missed as those before it are.
		return o.follow(o.At), o.skipThrough(o.At, job.RunMissed, job.ReasonOutage)
	}
	last := o.lastDue(until, outages)
	return o.follow(o.At), o.skipThrough(last, job.RunSkipped, job.ReasonOverlap)
}

// deadline is the job's, in ms; 0 if it has none.
func (o *Occurrence) deadline() int64 {
	d := time.Duration(o.Spec.Deadline).Milliseconds()
	if mutant.On(mutant.EarlyDeadline) {
		d /= 20
	}
	return d
}

// expired says that an occurrence may no longer start. That does not count from when it is ready: a one-off that was
// paused over its time is ready at its resume.
func (o *Occurrence) expired(at, now int64) bool {
	d := o.deadline()
	return d > 0 && now > at+o.delay()+d
}

// restored says that the cluster which the backup was taken from may have run this occurrence: it is of a job that was
// there before the release, and its nominal time had come by then. No rule of the job counts against that. Jitter does
// not either, because an edit in the other cluster may have taken it away; nor an edit after the release, which may
// have been about something else.
func (o *Occurrence) restored() bool { return o.At <= o.Released && o.Created < o.Released }

// createdPastDue says that this is a one-off whose time had passed, by more than the grace, when it was created. One
// that an edit moves into the past is the edit's business: an edit of something else must not make a backlog missed.
func (o *Occurrence) createdPastDue() bool {
	return o.Sched.Kind() == schedule.Instant &&
		o.Created-o.At-o.delay() > time.Duration(o.Spec.Missed.Grace).Milliseconds()
}

func (o *Occurrence) delay() int64 { return o.Sched.Delay().Milliseconds() }

// prev is the last nominal time at or before ms, but never before this occurrence.
func (o *Occurrence) prev(ms int64) int64 {
	t, ok := o.Sched.Prev(time.UnixMilli(ms))
	if !ok {
		return o.At
	}
	return max(o.At, t.UnixMilli())
}

// pausedIn is the pause that an occurrence is in. What was due before it is not: that stayed due.
func (o *Occurrence) pausedIn(at int64) (store.Span, bool) {
	if o.Pauses == nil || o.Sched.Kind() == schedule.Instant {
		return store.Span{}, false
	}
	return o.Pauses.At(at + o.delay())
}

// forbidden says that an occurrence does not run for its calendars or for a pause, or because its time does not exist.
func (o *Occurrence) forbidden(at int64) bool {
	if _, ok := o.pausedIn(at); ok || o.Sched.Skipped(time.UnixMilli(at)) {
		return true
	}
	return slices.ContainsFunc(o.Blackouts, func(b *schedule.Blackout) bool { return b.Contains(time.UnixMilli(at)) })
}

// skipThrough moves on to the first occurrence after last and records those from this one to last.
func (o *Occurrence) skipThrough(last int64, status job.RunStatus, reason job.Reason) Decision {
	return Decision{Next: NextAfter(o.Spec, o.Sched, o.Runs, last), Gap: o.gap(last, status, reason)}
}

func (o *Occurrence) gap(last int64, status job.RunStatus, reason job.Reason) fsm.Gap {
	if last < o.At {
		return fsm.Gap{}
	}
	n, more := o.Sched.Count(time.UnixMilli(o.At), time.UnixMilli(last), maxCount-1)
	// This occurrence is counted by itself: an edit may have left it where the schedule no longer has one.
	return fsm.Gap{First: o.At, Last: last, Count: int64(n) + 1, AtLeast: more, Status: status, Reason: reason}
}

// missedIn is the outage that this occurrence was missed in. Waiting for a slot or a worker is backlog, and backlog is
// never missed: only what was due while no node led, and was older than the job's grace when one did again.
func (o *Occurrence) missedIn(outages []store.Outage) (store.Outage, bool) {
	grace := time.Duration(o.Spec.Missed.Grace).Milliseconds()
	for _, w := range outages {
		if w.From >= o.Ready || o.Ready > w.To || w.To-o.Ready <= grace {
			continue
		}
		if o.Created >= w.To || o.Sched.Kind() == schedule.Instant && o.Updated >= w.To {
			continue // it was not there to be missed; a one-off for a time in the past was decided before
		}
		return w, true
	}
	return store.Outage{}, false
}

// missed applies the missed rule. Everything is measured at the end of the outage, not at the time of looking, so that
// backlog after the takeover changes nothing.
func (o *Occurrence) missed(w store.Outage, now int64) Decision {
	if mutant.On(mutant.DropCatchup) {
		return o.skipThrough(o.prev(w.To-o.delay()), job.RunMissed, job.ReasonOutage)
	}
	delay := o.delay()
	last := o.prev(w.To - delay) // the last one whose start fell into the outage
	inWindow := func(at int64) bool { return w.To-(at+delay) <= o.window(last) }

	switch o.Spec.Missed.Policy {
	case job.MissedSkip:
		// Only what was older than the grace: the younger ones are not missed, and run by the ordinary rules.
		last = o.prev(w.To - delay - time.Duration(o.Spec.Missed.Grace).Milliseconds() - 1)
	case job.MissedRunAll:
		if first, ok := o.oldestAllowed(last, w.To-delay); ok {
			return o.runAll(first, last, now)
		}
	default: // run_once
		for i, at := 0, last; i < maxBack && inWindow(at); i++ {
			if !o.forbidden(at) {
				if at == o.At {
					return Decision{Claim: true}
				}
				return Decision{Next: when(o.Sched, at), Gap: o.gapBefore(at)}
			}
			if at == o.At {
				break
			}
			at = o.prev(at - 1)
		}
	}
	return o.skipThrough(last, job.RunMissed, job.ReasonOutage)
}

// runAll puts up the runs from first to last. What has expired or is in a blackout, and what is too much for one
// command, is looked at again by itself: the answer is the same, because it is counted from the end of the outage. Only
// if nothing is left but what is within the grace, that is late and not missed: it runs by the ordinary rules.
func (o *Occurrence) runAll(first, last, now int64) Decision {
	f := Decision{Gap: o.gapBefore(first)}
	at := first
	for ; at != 0 && at <= last && len(f.Rows) < maxRows && !o.expired(at, now) && !o.forbidden(at); at = o.next(at) {
		if o.Spec.MaxRuns > 0 && int64(o.Runs)+int64(len(f.Rows)) >= int64(o.Spec.MaxRuns) {
			return f
		}
		f.Rows = append(f.Rows, at)
	}
	if len(f.Rows) == 0 && first == o.At {
		return Decision{Claim: true} // deadline and blackout are judged next
	}
	if at != 0 {
		f.Next = NextAfter(o.Spec, o.Sched, o.Runs+uint32(len(f.Rows)), at-1)
	}
	return f
}

// gapBefore records the missed occurrences from this one up to, and without, the one that will run.
func (o *Occurrence) gapBefore(at int64) fsm.Gap {
	if at == o.At {
		return fsm.Gap{}
	}
	return o.gap(o.prev(at-1), job.RunMissed, job.ReasonOutage)
}

// oldestAllowed is the first of the missed occurrences that run_all may run: inside the window, and not more than max.
func (o *Occurrence) oldestAllowed(last, end int64) (int64, bool) {
	first := o.At
	if w := o.window(last); w < end-first {
		t, ok := o.Sched.Next(time.UnixMilli(end - w - 1))
		if !ok || t.UnixMilli() > last {
			return 0, false
		}
		first = max(first, t.UnixMilli())
	}
	limit := max(o.Spec.Missed.Max, 1)
	if _, more := o.Sched.Count(time.UnixMilli(first), time.UnixMilli(last), limit-1); !more {
		return first, true
	}
	at := last
	for range limit - 1 {
		at = o.prev(at - 1)
	}
	return at, true
}

// window is how far back a missed occurrence may lie to be run, in ms.
func (o *Occurrence) window(last int64) int64 {
	if o.Spec.Missed.Window != job.WindowAuto {
		if d, err := time.ParseDuration(o.Spec.Missed.Window); err == nil {
			return d.Milliseconds()
		}
	}
	next, ok := o.Sched.Next(time.UnixMilli(last))
	if !ok {
		return math.MaxInt64 // a one-off, or the last of its kind: late is better than never
	}
	return max(minAutoWindow.Milliseconds(), (next.UnixMilli()-last)/2)
}

// Decide is decide for a job that may be broken in a way that was not foreseen.
func Decide(o *Occurrence, now int64, outages []store.Outage) (f Decision, bad string) {
	defer func() {
		if r := recover(); r != nil {
			f, bad = Decision{}, fmt.Sprintf("the schedule %q made the scheduler panic: %v", o.Spec.Schedule, r)
		}
	}()
	return decide(o, now, outages), ""
}

// Expiry is when a run that is open already (manual, backfill, released from waiting) may no longer start for the first
// time; 0 if it always may.
func Expiry(spec *job.Spec, delay time.Duration, k store.DueKey, attempts uint16) int64 {
	d := time.Duration(spec.Deadline)
	if d <= 0 || attempts > 0 || k.Kind != store.KindExtra {
		return 0
	}
	from := k.At
	switch k.Origin {
	case job.OriginSchedule:
		from += delay.Milliseconds()
	case job.OriginBackfill:
		from = k.Ready // its nominal time is long past on purpose
	}
	return from + d.Milliseconds()
}
