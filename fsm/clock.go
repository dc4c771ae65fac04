package fsm

import (
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// Stamp commits the leader's clock. With Takeover it also records the outage since the last stamp.
type Stamp struct {
	Head     `codec:"h"`
	Takeover bool `codec:"o,omitempty"`
	// Index and Chain say which state the leader has: every replica compares its own with it; see package chain.
	Index uint64 `codec:"i,omitempty"`
	Chain uint64 `codec:"c,omitempty"`
}

func (c *Stamp) apply(a *applier) error {
	if c.Takeover && mutant.On(mutant.ForgetRequests) {
		_, _ = a.b.TrimRequests(maxTime, 1<<20, a.forgotten)
	}
	if c.Takeover {
		info := a.b.Info()
		gap := store.Outage{From: a.mark, To: c.Head.Now}
		if a.mark > 0 && gap.To-gap.From > minOutage {
			info.NoteOutage(gap, maxOutages)
			a.b.SetInfo(info)
		}
	}
	a.outcome(Outcome{Code: CodeOK})
	return nil
}

const (
	minOutage  = 1000 // ms; a shorter one is younger than any grace worth setting
	maxOutages = 64
)

// ClockReset lowers the mark to the stamp.
type ClockReset struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
}

func (c *ClockReset) apply(a *applier) error { return a.once(c.Request, c.do) }

// do lowers the mark to the stamp. A release that was stamped by a clock which ran ahead goes with it: it would make
// everything up to that time be taken for something that another cluster ran.
func (c *ClockReset) do(a *applier) (Outcome, error) {
	a.b.C.Mark = a.now
	if info := a.b.Info(); info.Released > a.now {
		info.Released = a.now
		a.b.SetInfo(info)
	}
	return Outcome{Code: CodeOK}, nil
}
