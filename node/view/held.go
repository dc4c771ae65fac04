package view

import (
	"errors"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// Held is a job as one view showed it: everything that an edit, a resume or an answer is computed from.
type Held struct {
	ID    job.ID
	Def   store.Definition
	State store.State
	Place store.Place
}

// Held reads a job.
func (r *Reader) Held(id job.ID) (Held, error) {
	def, err := r.Def(id)
	if err != nil {
		return Held{}, err
	}
	if def == nil {
		return Held{}, NoJob(id.String())
	}
	st, p, ok, err := r.State(id)
	if err != nil {
		return Held{}, err
	}
	if !ok {
		return Held{}, errors.New("node: " + id.String() + " has a definition but no state")
	}
	return Held{id, *def, st, p}, nil
}

// Due is the occurrence that waits: in the due index, or parked in the state of a paused job.
func (h *Held) Due() fsm.When {
	if h.Place.Parked {
		return fsm.When{At: h.State.ParkedAt, Ready: h.State.ParkedReady}
	}
	return fsm.When{At: h.Place.At, Ready: h.Place.Ready}
}

// Seen is the place that a change of the job was computed from.
func (h *Held) Seen() fsm.Seen {
	s := fsm.Seen{Gen: h.State.Gen, Parked: h.Place.Parked}
	if !s.Parked {
		s.At, s.Ready = h.Place.At, h.Place.Ready
	}
	return s
}

// Stopped says that no occurrence runs: the job is paused or in quarantine.
func (h *Held) Stopped() bool { return h.State.Paused || h.State.Quarantined }

// StopReason is why not.
func (h *Held) StopReason() job.Reason {
	if h.State.Quarantined {
		return job.ReasonQuarantined
	}
	return job.ReasonPaused
}

// Status is the job's state as its owner sees it.
func (h *Held) Status() job.Status { return h.State.Status(h.Place.Parked) }

// Compile reads the schedule of a job.
func Compile(spec *job.Spec, id job.ID) (*schedule.Schedule, error) {
	s, err := scheduler.Compile(spec, id)
	return s, wire.ScheduleError(err)
}

// CountLimit is how far occurrences that did not run are counted; beyond it a record says "at least".
const CountLimit = 10_000

// Passed are the occurrences of a stopped job that a resume would record, and of any other one, or where some were due
// before the pause, those that are due and would go with the job.
func (h *Held) Passed(now int64) fsm.Gap {
	due, reason := h.Due(), job.ReasonDeleted
	first, kept := due.At, h.State.KeepsDue(due.Ready)
	if h.Stopped() && !kept {
		reason = h.StopReason()
	}
	sched, err := Compile(&h.Def.Spec, h.ID)
	switch {
	case first == 0 || first > now:
		return fsm.Gap{}
	case err != nil: // it is in quarantine for that: what was due is all that can be said
		g := GapOf(nil, first, first, reason)
		g.AtLeast = true
		return g
	case h.Stopped() && !kept && (sched.Kind() == schedule.Instant || first > now-sched.Delay().Milliseconds()):
		return fsm.Gap{} // it would still run
	}
	return GapOf(sched, first, max(first, now-sched.Delay().Milliseconds()), reason)
}

// GapOf counts the occurrences from first, which is one by itself, to until that will not run.
func GapOf(s *schedule.Schedule, first, until int64, reason job.Reason) fsm.Gap {
	if until < first {
		return fsm.Gap{}
	}
	g := fsm.Gap{First: first, Last: first, Count: 1, Status: job.RunSkipped, Reason: reason}
	if until == first {
		return g
	}
	n, more := s.Count(time.UnixMilli(first), time.UnixMilli(until), CountLimit-1)
	if n > 0 {
		last, _ := s.Prev(time.UnixMilli(until))
		g.Last, g.Count, g.AtLeast = last.UnixMilli(), int64(n)+1, more
	}
	return g
}

// intervalRun is an interval of occurrences that did not run as the API shows it.
func intervalRun(id job.ID, namespace, name string, i store.Interval) job.Run {
	return job.Run{JobID: id, JobName: name, Namespace: namespace, Status: i.Status, Reason: i.Reason,
		First: job.Instant(i.First), Last: job.Instant(i.Last), Count: i.Count, CountAtLeast: i.AtLeast}
}

// inPauses are the occurrences in pauses that those which were due before them have yet to pass, newest first.
func (h *Held) inPauses(now int64) (out []fsm.Gap) {
	sched, err := Compile(&h.Def.Spec, h.ID)
	if err != nil {
		return nil
	}
	pauses := h.State.Pauses
	if h.State.KeepsDue(h.State.ParkedReady) {
		pauses.Add(store.Span{From: h.State.PausedAt, To: now})
	}
	delay := sched.Delay().Milliseconds()
	for _, p := range pauses {
		if p == (store.Span{}) {
			break
		}
		first, ok := sched.Next(time.UnixMilli(p.From - delay))
		if !ok || first.UnixMilli() > p.To-delay {
			continue
		}
		out = append(out, GapOf(sched, first.UnixMilli(), p.To-delay, job.ReasonPaused))
	}
	slices.Reverse(out)
	return out
}

// NotRunYet are the occurrences that did not run and are not in the history yet, newest first: the interval that still
// grows, and of a job that is or was stopped what passed since, which is recorded when it is resumed, edited or
// deleted, or when what was due before has run.
func (h *Held) NotRunYet(now int64) []job.Run {
	var all []store.Interval
	gaps := h.inPauses(now)
	if h.Stopped() && !h.State.KeepsDue(h.State.ParkedReady) {
		gaps = []fsm.Gap{h.Passed(now)}
	}
	for _, g := range gaps {
		all = append(all, store.Interval{First: g.First, Last: g.Last, Count: g.Count, AtLeast: g.AtLeast,
			Status: g.Status, Reason: g.Reason})
	}
	last := h.State.NotRun
	if n := len(all); n == 1 && last.Add(all[0]) {
		all = all[:0]
	}
	all = append(all, last)
	var out []job.Run
	for _, i := range all {
		if !i.Empty() {
			out = append(out, intervalRun(h.ID, h.Def.Spec.Namespace, h.Def.Spec.Name, i))
		}
	}
	return out
}
