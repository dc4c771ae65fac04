package service

import (
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// What an edit or a resume means for a job's next occurrence. Everything here is computed from one view and proposed
// with the place that was seen, so that a claim in between makes it be computed again instead of being wrong.

// plan is where a job's next occurrence goes and what is dropped on the way.
type plan struct {
	next  fsm.When
	gap   fsm.Gap // before next
	after fsm.Gap // behind it: only a one-off leaves nothing of what the old schedule had there
	// follows is the time after which the occurrences are those of the schedule; see store.Definition.
	follows int64
}

// firstRun is the next occurrence of a new job. A one-off in the past is accepted: it is due at once.
func firstRun(spec *job.Spec, s *schedule.Schedule, now int64) fsm.When {
	if s.Kind() == schedule.Instant {
		now = -1
	}
	return scheduler.NextAfter(spec, s, 0, now)
}

// scheduleChanged says whether an edit touches when the job runs.
func scheduleChanged(a, b *job.Spec) bool {
	return a.Schedule != b.Schedule || a.Timezone != b.Timezone || a.Jitter != b.Jitter || a.StartAt != b.StartAt ||
		a.EndAt != b.EndAt || a.MaxRuns != b.MaxRuns || a.DSTGap != b.DSTGap || a.DSTOverlap != b.DSTOverlap
}

// planEdit is what an edit makes of the next occurrence.
//
// Without a change of the schedule the due place stays. With one, what is due stays due if the new schedule has all of
// it: an edit of the jitter or a later end must not cost a run. Otherwise all of it is dropped with a record, and the
// new schedule counts from now. It is all or nothing because what stays is met one by one afterwards, under the new
// schedule alone: what only the old one had behind an occurrence that stays would be recorded by nobody. What lies in
// the future is the old schedule's plan and binds nothing.
func planEdit(h *view.Held, spec *job.Spec, now int64) (plan, error) {
	cur := h.Due()
	if !scheduleChanged(&h.Def.Spec, spec) {
		return plan{next: cur, follows: h.Def.Follows}, nil
	}
	sched, err := view.Compile(spec, h.ID)
	if err != nil {
		return plan{}, err
	}
	if cur.At == 0 && sched.Kind() == schedule.Instant && h.Def.Spec.Schedule == spec.Schedule {
		// Its one time has run or was canceled; another field does not bring it back.
		return plan{next: cur, follows: h.Def.Follows}, nil
	}
	old, oldErr := view.Compile(&h.Def.Spec, h.ID) // a job is in quarantine if its schedule cannot be read
	from, reason := now, job.ReasonEdited
	if h.Stopped() {
		reason = h.StopReason() // what passed meanwhile did not run, whatever the schedule becomes
	} else if cur.At != 0 && cur.At <= now && keepsDue(h, old, spec, sched, now) {
		from = cur.At - 1
	}
	if sched.Kind() == schedule.Instant {
		from = -1 // one occurrence: it runs at its time, or now if that has passed, unless it ran already
	}
	from = max(h.State.LastNominal, from)
	p := plan{next: scheduler.NextAfter(spec, sched, h.State.Runs, from), follows: from}
	if cur.At == 0 || cur.At > now {
		if late := now - p.next.Ready; p.next.At != 0 && sched.Kind() == schedule.Instant &&
			spec.Missed.Policy == job.MissedSkip &&
			late > time.Duration(spec.Missed.Grace).Milliseconds() {
			// Moved into the past: like one that is created there, it is missed under this policy.
			p.gap = fsm.Gap{First: p.next.At, Last: p.next.At, Count: 1, Status: job.RunMissed,
				Reason: job.ReasonOutage}
			p.next = fsm.When{}
		}
		return p, nil
	}
	// The occurrence that was due, and those of the old schedule after it, up to now or to where the new one goes on.
	until := now
	if p.next.At != 0 {
		until = min(until, p.next.At-1)
	}
	if oldErr != nil {
		until = min(until, cur.At) // what was due is all that can be said
	}
	p.gap = view.GapOf(old, cur.At, until, reason)
	if p.next.At != 0 && sched.Kind() == schedule.Instant {
		p.after = behind(h, old, p.next.At, now, reason)
	}
	return p, nil
}

// keepsDue says that a new schedule has every occurrence of the old one that is due, as if each of them became a run.
// More of them than are counted are not compared.
func keepsDue(h *view.Held, old *schedule.Schedule, spec *job.Spec, sched *schedule.Schedule, now int64) bool {
	at, runs := h.Due().At, h.State.Runs
	for range view.CountLimit {
		if scheduler.NextAfter(spec, sched, runs, at-1).At != at {
			return false
		}
		if old == nil {
			return true
		}
		runs++
		if at = scheduler.NextAfter(&h.Def.Spec, old, runs, at).At; at == 0 || at > now {
			return true
		}
	}
	return false
}

// behind are the occurrences of the old schedule that were due after a one-off that takes its place. old is nil if it
// cannot be read.
func behind(h *view.Held, old *schedule.Schedule, at, now int64, reason job.Reason) fsm.Gap {
	first := h.Due().At
	if first <= at {
		if old == nil {
			return fsm.Gap{}
		}
		first = scheduler.NextAfter(&h.Def.Spec, old, h.State.Runs, at).At
	}
	switch {
	case first == 0 || first > now:
		return fsm.Gap{}
	case old == nil:
		return view.GapOf(nil, first, first, reason)
	}
	return view.GapOf(old, first, now, reason)
}

// planResume is what starting a stopped job again makes of its next occurrence. One that was due before the pause is
// still due; those that passed meanwhile did not run and are recorded, or left out later where one was due before them;
// a one-off whose time passed runs now. An occurrence whose jitter is still to come has not passed.
func planResume(h *view.Held, now int64) (plan, error) {
	spec := &h.Def.Spec
	sched, err := view.Compile(spec, h.ID)
	if err != nil {
		return plan{}, err
	}
	cur := h.Due()
	if cur.At == 0 {
		return plan{}, nil // nothing waited: it was completed, or has no occurrences
	}
	if sched.Kind() == schedule.Instant {
		// it waited for this, not for the end of an outage or of a run by hand meanwhile
		cur.Ready = max(cur.Ready, now)
		return plan{next: cur}, nil
	}
	if h.State.KeepsDue(cur.Ready) && !mutant.On(mutant.PauseDrops) {
		return plan{next: cur}, nil
	}
	passed := now - sched.Delay().Milliseconds()
	if cur.At > passed {
		return plan{next: cur}, nil
	}
	next := scheduler.NextAfter(spec, sched, h.State.Runs, max(h.State.LastNominal, passed))
	return plan{next: next, gap: view.GapOf(sched, cur.At, passed, h.StopReason())}, nil
}
