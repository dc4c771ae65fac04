package scheduler

import (
	"fmt"
	"math"
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

// occurrence is what is decided by about an occurrence whose time has come. All of it is committed state, the clock excepted,
// and outages are committed too: a second leader that looks at the same occurrence decides the same.
type occurrence struct {
	spec             *job.Spec
	sched            *schedule.Schedule
	blackouts        []*schedule.Blackout
	created, updated int64
	at, ready        int64
	runs             uint32
	released         int64 // when the cluster was released after a restore; 0 if it was not restored
}

// decision is what is to become of an occurrence: it is claimed, or moved to next with a record of what does not run.
type decision struct {
	claim bool
	// next is what follows. With last it follows only if the overlap policy skips the run that is claimed: if it counts, it is the last one.
	next fsm.When
	last bool
	due  bool    // next is due as well, and has to be looked at by itself
	gap  fsm.Gap // of a claim: what became due behind it and does not run
	rows []int64 // of run_all: what is put up to run in the gaps of the live schedule
}

// flags is what a claim or an admission says of an occurrence.
func (f *decision) flags() (b byte) {
	if f.last {
		b |= fsm.ClaimLast
	}
	if f.due {
		b |= fsm.ClaimDue
	}
	return b
}

// decide applies a job's rules to an occurrence that is ready, in this order: max_runs, what a restore made impossible, missed windows (a
// one-off that was created too late counts as missed), deadline, blackouts.
func decide(o *occurrence, now int64, outages []store.Outage) decision {
	if o.spec.MaxRuns > 0 && int64(o.runs) >= int64(o.spec.MaxRuns) {
		return decision{} // nothing follows the last run
	}
	if o.restored() && !mutant.On(mutant.RestoreFires) {
		return o.past(o.prev(o.released), job.RunMissed, job.ReasonRestored)
	}
	if o.bornLate() && o.spec.Missed.Policy == job.MissedSkip {
		return o.past(o.at, job.RunMissed, job.ReasonPast)
	}
	if mutant.On(mutant.BacklogMissed) && now-o.ready > time.Duration(o.spec.Missed.Grace).Milliseconds() {
		outages = []store.Outage{{From: o.ready - 1, To: now}}
	}
	if w, ok := o.missedIn(outages); ok {
		if f := o.missed(w, now); !f.claim {
			return f
		}
	}
	if o.expired(o.at, now) {
		last := o.prev(now - o.deadline() - o.delay() - 1)
		return o.past(last, job.RunExpired, job.ReasonDeadline)
	}
	if o.forbidden(o.at) {
		return o.past(o.at, job.RunSkipped, job.ReasonBlackout)
	}
	last := o.at
	switch o.spec.Overlap {
	case job.OverlapReplace:
		if newest := o.lastDue(now, outages); newest > o.at && !mutant.On(mutant.JudgeBySlot) {
			return decision{next: when(o.sched, newest), gap: o.gap(o.prev(newest-1), job.RunCanceled, job.ReasonReplaced)}
		}
	case job.OverlapSkip:
		if !mutant.On(mutant.JudgeBySlot) {
			last = o.lastDue(now, outages)
		}
	}
	f := o.follow(last)
	f.claim = true
	f.due = f.next.At != 0 && f.next.Ready <= now
	if last > o.at {
		f.gap = o.gap(last, job.RunSkipped, job.ReasonWaiting)
		f.gap.First, f.gap.Count = o.next(o.at), f.gap.Count-1 // without this one, which runs
	}
	return f
}

// follow is what comes after last if this occurrence becomes a run.
func (o *occurrence) follow(last int64) (f decision) {
	if f.next = NextAfter(o.spec, o.sched, o.runs+1, last); f.next.At == 0 {
		// Apply may skip it, because of a run that is not known here, and a skipped occurrence does not count towards max_runs: there must
		// be a next one then. The claim names it, and that it follows only then.
		f.next = NextAfter(o.spec, o.sched, o.runs, last)
		f.last = f.next.At != 0
	}
	return f
}

// lastDue is the last occurrence up to a time, from this one on, about which the same is decided under an overlap policy: between them
// is none that is missed or that a calendar forbids, because those are judged by that first. What fell into an outage and is
// within the grace is late, not missed.
func (o *occurrence) lastDue(until int64, outages []store.Outage) int64 {
	for _, w := range outages {
		if w.From >= o.ready && w.From < until && o.missesIn(w) {
			until = w.From
		}
	}
	until -= o.delay()
	if len(o.blackouts) == 0 {
		return o.prev(until)
	}
	last := o.at
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
func (o *occurrence) next(at int64) int64 {
	t, ok := o.sched.Next(time.UnixMilli(at))
	if !ok {
		return 0
	}
	return t.UnixMilli()
}

// missesIn says that the first occurrence after the beginning of an outage is missed in it. If that one is not, no later one
// is.
func (o *occurrence) missesIn(w store.Outage) bool {
	first := *o
	if first.at = o.next(w.From - o.delay()); first.at == 0 {
		return false
	}
	first.ready = first.at + o.delay()
	_, ok := first.missedIn([]store.Outage{w})
	return ok
}

// admission is what is proposed for an occurrence that finds a run of its job open: what follows if it waits for that one, and up to which
// one none runs, with what follows then, if it is skipped. until is how long the job was busy, or the time of looking if it still is.
func (o *occurrence) admission(until int64, outages []store.Outage) (wait, skip decision) {
	if _, ok := o.missedIn(outages); ok {
		// The missed rule would have it run, and the overlap policy may not: then it is missed as those before it are.
		return o.follow(o.at), o.past(o.at, job.RunMissed, job.ReasonOutage)
	}
	last := o.lastDue(until, outages)
	return o.follow(o.at), o.past(last, job.RunSkipped, job.ReasonOverlap)
}

// deadline is the job's, in ms; 0 if it has none.
func (o *occurrence) deadline() int64 {
	d := time.Duration(o.spec.Deadline).Milliseconds()
	if mutant.On(mutant.EarlyDeadline) {
		d /= 20
	}
	return d
}

// expired says that an occurrence may no longer start. That does not count from when it is ready: a one-off that was paused over its time is
// ready at its resume.
func (o *occurrence) expired(at, now int64) bool {
	d := o.deadline()
	return d > 0 && now > at+o.delay()+d
}

// restored says that the cluster which the backup was taken from may have run this occurrence: it is of a job that was there before the
// release, and its nominal time had come by then. No rule of the job counts against that. Jitter does not either, because an edit in the
// other cluster may have taken it away; nor an edit after the release, which may have been about something else.
func (o *occurrence) restored() bool { return o.at <= o.released && o.created < o.released }

// bornLate says that this is a one-off whose time had passed, by more than the grace, when it was created. One that an edit moves into
// the past is the edit's business: an edit of something else must not make a backlog missed.
func (o *occurrence) bornLate() bool {
	return o.sched.Kind() == schedule.Instant && o.created-o.at-o.delay() > time.Duration(o.spec.Missed.Grace).Milliseconds()
}

func (o *occurrence) delay() int64 { return o.sched.Delay().Milliseconds() }

// prev is the last nominal time at or before ms, but never before this occurrence.
func (o *occurrence) prev(ms int64) int64 {
	t, ok := o.sched.Prev(time.UnixMilli(ms))
	if !ok {
		return o.at
	}
	return max(o.at, t.UnixMilli())
}

func (o *occurrence) forbidden(at int64) bool {
	for _, b := range o.blackouts {
		if b.Contains(time.UnixMilli(at)) {
			return true
		}
	}
	return false
}

// past moves on to the first occurrence after last and records those from this one to last.
func (o *occurrence) past(last int64, status job.RunStatus, reason job.Reason) decision {
	return decision{next: NextAfter(o.spec, o.sched, o.runs, last), gap: o.gap(last, status, reason)}
}

func (o *occurrence) gap(last int64, status job.RunStatus, reason job.Reason) fsm.Gap {
	if last < o.at {
		return fsm.Gap{}
	}
	n, more := o.sched.Count(time.UnixMilli(o.at), time.UnixMilli(last), maxCount-1)
	// This occurrence is counted by itself: an edit may have left it where the schedule no longer has one.
	return fsm.Gap{First: o.at, Last: last, Count: int64(n) + 1, AtLeast: more, Status: status, Reason: reason}
}

// missedIn is the outage that this occurrence was missed in. Waiting for a slot or a worker is backlog, and backlog is never
// missed: only what was due while no node led, and was older than the job's grace when one did again.
func (o *occurrence) missedIn(outages []store.Outage) (store.Outage, bool) {
	grace := time.Duration(o.spec.Missed.Grace).Milliseconds()
	for _, w := range outages {
		if w.From >= o.ready || o.ready > w.To || w.To-o.ready <= grace {
			continue
		}
		if o.created >= w.To || o.sched.Kind() == schedule.Instant && o.updated >= w.To {
			continue // it was not there to be missed; a one-off for a time in the past was decided before
		}
		return w, true
	}
	return store.Outage{}, false
}

// missed applies the missed rule. Everything is measured at the end of the outage, not at the time of looking, so that backlog
// after the takeover changes nothing.
func (o *occurrence) missed(w store.Outage, now int64) decision {
	if mutant.On(mutant.DropCatchup) {
		return o.past(o.prev(w.To-o.delay()), job.RunMissed, job.ReasonOutage)
	}
	delay := o.delay()
	last := o.prev(w.To - delay) // the last one whose start fell into the outage
	inWindow := func(at int64) bool { return w.To-(at+delay) <= o.window(last) }

	switch o.spec.Missed.Policy {
	case job.MissedSkip:
		// Only what was older than the grace: the younger ones are not missed, and run by the ordinary rules.
		last = o.prev(w.To - delay - time.Duration(o.spec.Missed.Grace).Milliseconds() - 1)
	case job.MissedRunAll:
		if first, ok := o.oldestAllowed(last, w.To-delay); ok {
			return o.runAll(first, last, now)
		}
	default: // run_once
		for i, at := 0, last; i < maxBack && inWindow(at); i++ {
			if !o.forbidden(at) {
				if at == o.at {
					return decision{claim: true}
				}
				return decision{next: when(o.sched, at), gap: o.gapBefore(at)}
			}
			if at == o.at {
				break
			}
			at = o.prev(at - 1)
		}
	}
	return o.past(last, job.RunMissed, job.ReasonOutage)
}

// runAll puts up the runs from first to last. What has expired or is in a blackout, and what is too much for one command, is looked at again by
// itself: the answer is the same, because it is counted from the end of the outage.
func (o *occurrence) runAll(first, last, now int64) decision {
	f := decision{gap: o.gapBefore(first)}
	at := first
	for ; at != 0 && at <= last && len(f.rows) < maxRows && !o.expired(at, now) && !o.forbidden(at); at = o.next(at) {
		if o.spec.MaxRuns > 0 && int64(o.runs)+int64(len(f.rows)) >= int64(o.spec.MaxRuns) {
			return f
		}
		f.rows = append(f.rows, at)
	}
	if len(f.rows) == 0 && first == o.at {
		return decision{claim: true} // deadline and blackout are judged next
	}
	if at != 0 {
		f.next = NextAfter(o.spec, o.sched, o.runs+uint32(len(f.rows)), at-1)
	}
	return f
}

// gapBefore records the missed occurrences from this one up to, and without, the one that will run.
func (o *occurrence) gapBefore(at int64) fsm.Gap {
	if at == o.at {
		return fsm.Gap{}
	}
	return o.gap(o.prev(at-1), job.RunMissed, job.ReasonOutage)
}

// oldestAllowed is the first of the missed occurrences that run_all may run: inside the window, and not more than max.
func (o *occurrence) oldestAllowed(last, end int64) (int64, bool) {
	first := o.at
	if w := o.window(last); w < end-first {
		t, ok := o.sched.Next(time.UnixMilli(end - w - 1))
		if !ok || t.UnixMilli() > last {
			return 0, false
		}
		first = max(first, t.UnixMilli())
	}
	limit := max(o.spec.Missed.Max, 1)
	if _, more := o.sched.Count(time.UnixMilli(first), time.UnixMilli(last), limit-1); !more {
		return first, true
	}
	at := last
	for range limit - 1 {
		at = o.prev(at - 1)
	}
	return at, true
}

// window is how far back a missed occurrence may lie to be run, in ms.
func (o *occurrence) window(last int64) int64 {
	if o.spec.Missed.Window != job.WindowAuto {
		if d, err := time.ParseDuration(o.spec.Missed.Window); err == nil {
			return d.Milliseconds()
		}
	}
	next, ok := o.sched.Next(time.UnixMilli(last))
	if !ok {
		return math.MaxInt64 // a one-off, or the last of its kind: late is better than never
	}
	return max(minAutoWindow.Milliseconds(), (next.UnixMilli()-last)/2)
}

// decideSafely is decide for a job that may be broken in a way that was not foreseen.
func decideSafely(o *occurrence, now int64, outages []store.Outage) (f decision, bad string) {
	defer func() {
		if r := recover(); r != nil {
			f, bad = decision{}, fmt.Sprintf("the schedule %q made the scheduler panic: %v", o.spec.Schedule, r)
		}
	}()
	return decide(o, now, outages), ""
}

// expiry is when a run that is open already (manual, backfill, released from waiting) may no longer start for the first time;
// 0 if it always may.
func expiry(spec *job.Spec, delay time.Duration, k store.DueKey, attempts uint16) int64 {
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
