package fsm

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Delete removes a job. Version 0: whichever. NotRun are the occurrences from the one that was due up to now, as the
// proposer counted them; it counts only if that one is still the one that is due.
type Delete struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	Version uint64  `codec:"v"`
	NotRun  Gap     `codec:"x"`
}

func (c *Delete) apply(a *applier) error { return a.once(c.Request, c.do) }

// do removes the job and everything of it that has not started, in one step; what a worker has in hand is told to stop
// and is recorded when it does.
func (c *Delete) do(a *applier) (Outcome, error) {
	id := job.ID(c.Job)
	def, ok, err := a.b.Definition(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if c.Version != 0 && c.Version != def.Version {
		return Outcome{Code: CodeConflict, Job: id, Version: def.Version}, nil
	}
	s, p, ok, err := a.b.State(id)
	if err != nil {
		return Outcome{}, err
	}
	if !ok {
		return Outcome{}, fmt.Errorf("fsm: %s has no state", id)
	}
	if err := a.stopAll(id, &s, job.ReasonDeleted); err != nil {
		return Outcome{}, err
	}
	if at := waiting(&s, p); at != 0 && at <= a.now {
		// Those after it that have passed as well are not known here, unless the proposer saw the same one: at least
		// this one.
		due := store.Interval{First: at, Last: at, Count: 1, AtLeast: !s.OneOff}
		if g := c.NotRun; g.Count > 0 && g.First == at && g.Last >= at && g.Last <= a.now {
			due.Last, due.Count, due.AtLeast = g.Last, g.Count, g.AtLeast
		}
		due.Status, due.Reason = job.RunCanceled, job.ReasonDeleted
		if (s.Paused || s.Quarantined) && !s.KeepsDue(s.ParkedReady) {
			due.Status, due.Reason = job.RunSkipped, stopReason(&s)
		}
		if err := a.notRun(id, &s, due); err != nil {
			return Outcome{}, err
		}
	}
	if err := a.remove(id, &s, &def.Spec); err != nil {
		return Outcome{}, err
	}
	return Outcome{Code: CodeOK, Job: id}, nil
}

// remove takes the job out of the state; open runs that are canceling stay until they close.
func (a *applier) remove(id job.ID, s *store.State, spec *job.Spec) error {
	if err := a.flush(id, s); err != nil {
		return err
	}
	if spec.Name != "" {
		if err := a.b.DeleteName(spec.Namespace, spec.Name, id); err != nil {
			return err
		}
	}
	if err := a.owe(id); err != nil {
		return err
	}
	if err := a.b.DeleteDefinition(id); err != nil {
		return err
	}
	if s.Notify != 0 {
		if err := a.b.DropNotices(id); err != nil {
			return err
		}
	}
	a.b.C.Jobs--
	return a.b.DeleteState(id)
}
