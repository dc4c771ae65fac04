package fsm

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Quarantine parks a job that the scheduler cannot handle, with the reason.
type Quarantine struct {
	Head `codec:"h"`
	Job  uint64 `codec:"j"`
	Gen  uint32 `codec:"g"`
	Why  string `codec:"y"`
}

func (*Quarantine) stopsOnHold() bool { return true }

func (c *Quarantine) apply(a *applier) error {
	id := job.ID(c.Job)
	s, p, ok, err := a.b.State(id)
	if err != nil {
		return err
	}
	if !ok || s.Gen != c.Gen || s.Quarantined {
		a.outcome(Outcome{Code: CodeStale})
		return nil
	}
	s.Quarantined = true
	if err := a.b.PutNote(id, c.Why); err != nil {
		return err
	}
	// Nothing of it runs until it is resumed, which is worth a notification.
	n := store.Notice{Job: id, At: a.now, Reason: job.ReasonQuarantined, Error: head(c.Why)}
	if err := a.failed(&s, &n); err != nil {
		return err
	}
	a.outcome(Outcome{Code: CodeOK, Job: id})
	return a.park(id, &s, p)
}
