package fsm

import (
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Redrive puts dead letters back to work: same key, higher fence, attempts go on counting.
type Redrive struct {
	Head      `codec:"h"`
	Request   Request  `codec:"q"`
	Seqs      []uint64 `codec:"s"`
	Namespace string   `codec:"ns,omitempty"` // those of others are passed over; empty: whichever
}

func (c *Redrive) apply(a *applier) error { return a.once(c.Request, c.do) }

// do puts dead letters back to work: the same run, with its key and its count of attempts, and a fresh retry budget.
func (c *Redrive) do(a *applier) (Outcome, error) {
	if a.b.Info().Hold.On {
		return Outcome{Code: CodeRefused, Text: TextHold}, nil
	}
	o := Outcome{Code: CodeOK, Named: len(c.Seqs)}
	for _, seq := range c.Seqs {
		d, ok, err := a.b.Dead(seq)
		if err != nil {
			return Outcome{}, err
		}
		if !ok || c.Namespace != "" && c.Namespace != a.b.Namespace(d.Row.Class) {
			continue
		}
		s, p, ok, err := a.b.State(d.Run.Job)
		if err != nil {
			return Outcome{}, err
		}
		_, open, err := a.b.Run(d.Run)
		if err != nil {
			return Outcome{}, err
		}
		if !ok || open {
			continue // the job is gone, or the same occurrence is being run again already
		}
		row := d.Row
		row.Status, row.Held, row.Cancel = job.RunWaiting, job.RunNone, job.ReasonNone
		row.Serial, row.Delayed, row.Late = s.Overlap != store.OverlapAllow, false, 0
		if !mutant.On(mutant.RedriveCounts) {
			row.Failures, row.Losses = 0, 0
		}
		row.Worker, row.Incarnation, row.Owner = "", 0, 0
		row.Lane, row.Class, row.AtMostOnce = s.Lane, s.Class, s.AtMostOnce
		if err := a.b.PutRun(d.Run, nil, &row); err != nil {
			return Outcome{}, err
		}
		s.Waiting++
		s.Dead -= min(s.Dead, 1)
		if err := a.b.DeleteDead(seq, &d); err != nil {
			return Outcome{}, err
		}
		if err := a.after(d.Run.Job, &s, p); err != nil {
			return Outcome{}, err
		}
		o.Count++
	}
	return o, nil
}

// Purge forgets dead letters.
type Purge struct {
	Head      `codec:"h"`
	Request   Request  `codec:"q"`
	Seqs      []uint64 `codec:"s"`
	Namespace string   `codec:"ns,omitempty"` // those of others are passed over; empty: whichever
}

func (c *Purge) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *Purge) do(a *applier) (Outcome, error) {
	o := Outcome{Code: CodeOK, Named: len(c.Seqs)}
	for _, seq := range c.Seqs {
		d, ok, err := a.b.Dead(seq)
		if err != nil {
			return Outcome{}, err
		}
		if !ok || c.Namespace != "" && c.Namespace != a.b.Namespace(d.Row.Class) {
			continue
		}
		if err := a.b.DeleteDead(seq, &d); err != nil {
			return Outcome{}, err
		}
		o.Count++
		s, p, ok, err := a.b.State(d.Run.Job)
		if err != nil {
			return Outcome{}, err
		}
		if ok {
			s.Dead -= min(s.Dead, 1)
			if err := a.b.PutState(d.Run.Job, &s, p); err != nil {
				return Outcome{}, err
			}
		}
	}
	return o, nil
}
