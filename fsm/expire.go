package fsm

import "github.com/carillon-scheduler/carillon/job"

// Expire takes runs from workers that fell silent or came back as another incarnation.
type Expire struct {
	Head   `codec:"h"`
	Jobs   Numbers `codec:"j"`
	At     Times   `codec:"a"`
	Origin []byte  `codec:"o"`
	Fence  Numbers `codec:"f"`
	// Started is when each began, as its worker said in a heartbeat; 0: the leader was not told.
	Started Times `codec:"s"`
}

func (c *Expire) items() int      { return len(c.Jobs) }
func (*Expire) stopsOnHold() bool { return true }

func (c *Expire) check() error {
	return sameLength(len(c.Jobs), len(c.At), len(c.Origin), len(c.Fence), len(c.Started))
}

func (c *Expire) apply(a *applier) error {
	for i := range c.Jobs {
		k := job.RunKey{Job: job.ID(c.Jobs[i]), At: c.At[i], Origin: job.Origin(c.Origin[i])}
		row, s, p, err := a.claimedRow(k, c.Fence[i])
		if err != nil {
			return err
		}
		if row == nil {
			a.outcome(Outcome{Code: CodeStale, Run: k})
			continue
		}
		if err := a.workerLost(k, row, s, c.Started[i]); err != nil {
			return err
		}
		if err := a.after(k.Job, s, p); err != nil {
			return err
		}
		a.outcome(Outcome{Code: CodeOK, Run: k})
	}
	return nil
}
