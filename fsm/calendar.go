package fsm

import "github.com/carillon-scheduler/carillon/job"

// Calendar writes a blackout calendar; empty Data removes it.
type Calendar struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	Name    string  `codec:"n"`
	Data    []byte  `codec:"d"`
}

func (c *Calendar) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *Calendar) do(a *applier) (Outcome, error) {
	if c.Name == "" || len(c.Name) > job.MaxName {
		return Outcome{Code: CodeRefused, Text: "a calendar needs a name of reasonable length"}, nil
	}
	if len(c.Data) == 0 {
		if a.b.Calendar(c.Name) == nil {
			return Outcome{Code: CodeNotFound}, nil
		}
		return Outcome{Code: CodeOK}, a.b.PutCalendar(c.Name, nil)
	}
	return Outcome{Code: CodeOK}, a.b.PutCalendar(c.Name, c.Data)
}
