// Package ends counts what a command ends: runs, attempts and occurrences that do not run. Apply is where all of them
// end, so this is where none is forgotten; it is no part of the state, and only the leader that wrote the entry counts
// it.
package ends

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Tally is what one command ended.
type Tally struct {
	All    []End
	NotRun []NotRun
}

// End is some ends of one kind.
type End struct {
	Class  uint32 // store.Row.Class
	Status job.RunStatus
	// Attempt says that these are attempts, which may be followed by others of their run. Otherwise they are runs, and
	// that was all of them.
	Attempt bool
	Count   int
}

// NotRun are some occurrences that do not run.
type NotRun struct {
	Reason job.Reason
	Count  int64
}

// near is how far back a like end is looked for: most commands have very few kinds of them, and one with hundreds is
// not to be slowed down by a search.
const near = 8

// Closed counts a run that is over, and the attempt that ended with it, if a worker had it in hand.
func (t *Tally) Closed(r *store.Row, rec *store.Record) {
	t.end(End{Class: r.Class, Status: rec.Status})
	if r.Status == job.RunClaimed || r.Status == job.RunCanceling {
		t.Attempt(r, rec)
	}
}

// Attempt counts an attempt that ended. What it means for its run is not its status: the last one failed as those
// before it did.
func (t *Tally) Attempt(r *store.Row, rec *store.Record) {
	status := rec.Status
	switch {
	case rec.Reason == job.ReasonWorkerLost:
		status = job.RunLost
	case status == job.RunDead:
		status = job.RunFailed
	}
	t.end(End{Class: r.Class, Status: status, Attempt: true})
}

func (t *Tally) end(e End) {
	for i := len(t.All) - 1; i >= max(0, len(t.All)-near); i-- {
		if x := &t.All[i]; x.Class == e.Class && x.Status == e.Status && x.Attempt == e.Attempt {
			x.Count++
			return
		}
	}
	e.Count = 1
	t.All = append(t.All, e)
}

// Missed counts occurrences that do not run.
func (t *Tally) Missed(i store.Interval) {
	if i.Empty() {
		return
	}
	if n := len(t.NotRun); n > 0 && t.NotRun[n-1].Reason == i.Reason {
		t.NotRun[n-1].Count += i.Count
		return
	}
	t.NotRun = append(t.NotRun, NotRun{i.Reason, i.Count})
}
