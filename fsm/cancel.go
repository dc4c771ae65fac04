package fsm

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Cancel stops a run: one that was not started closes at once, a claimed one is marked canceling.
type Cancel struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	At      int64   `codec:"a"`
	Origin  byte    `codec:"o"`
	All     bool    `codec:"l,omitempty"` // every open run of the job
}

func (c *Cancel) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *Cancel) do(a *applier) (Outcome, error) {
	id := job.ID(c.Job)
	st, p, ok, err := a.b.State(id)
	if err != nil {
		return Outcome{}, err
	}
	s := &st
	if !ok {
		s = nil
	}
	o := Outcome{Code: CodeOK, Job: id}
	if c.All {
		if s == nil {
			return Outcome{Code: CodeNotFound}, nil
		}
		o.Count = len(a.b.Open(id))
		if err = a.stopAll(id, s, job.ReasonCanceled); err == nil && s.OneOff {
			p, err = a.cancelOneOff(id, s, p, &o)
		}
	} else {
		k := job.RunKey{Job: id, At: c.At, Origin: job.Origin(c.Origin)}
		if _, ok, err := a.b.Run(k); err != nil || !ok {
			return Outcome{Code: CodeNotFound}, err
		}
		o.Run, o.Count = k, 1
		err = a.stop(k, s, job.ReasonCanceled)
	}
	if err != nil {
		return Outcome{}, err
	}
	return o, a.after(id, s, p)
}

// cancelOneOff takes the only occurrence that a one-off job has before it. That of a recurring job stays: what is
// canceled is what is there now, and the job goes on.
func (a *applier) cancelOneOff(id job.ID, s *store.State, p store.Place, o *Outcome) (store.Place, error) {
	at := waiting(s, p)
	if at == 0 {
		return p, nil
	}
	i := store.Interval{First: at, Last: at, Count: 1, Status: job.RunCanceled, Reason: job.ReasonCanceled}
	// The last nominal time must not go ahead: an edit could not give the job a time before it, and it would be silent
	// until then.
	last := s.LastNominal
	if err := a.notRun(id, s, i); err != nil {
		return p, err
	}
	if at > a.now {
		s.LastNominal, s.Canceled = last, true
	}
	o.Count++
	s.Gen++ // what was computed from that occurrence is stale
	s.ParkedAt, s.ParkedReady = 0, 0
	s.LastStatus, s.LastAt = job.RunCanceled, a.now
	return store.Place{Parked: true}, a.flush(id, s)
}
