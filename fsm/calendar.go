package fsm

import (
	"cmp"
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
)

// Calendar writes a blackout calendar; empty Data removes it.
type Calendar struct {
	Head      `codec:"h"`
	Request   Request `codec:"q"`
	Namespace string  `codec:"ns,omitempty"` // empty: the usual one
	Name      string  `codec:"n"`
	Data      []byte  `codec:"d"`
}

func (c *Calendar) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *Calendar) do(a *applier) (Outcome, error) {
	if c.Name == "" || len(c.Name) > job.MaxName {
		return Outcome{Code: CodeRefused, Text: "a calendar needs a name of reasonable length"}, nil
	}
	namespace := cmp.Or(c.Namespace, job.DefaultNamespace)
	if !job.NamespaceName(namespace) {
		return Outcome{Code: CodeRefused, Text: fmt.Sprintf("%q is not a namespace", c.Namespace)}, nil
	}
	if len(c.Data) == 0 {
		if a.b.Calendar(namespace, c.Name) == nil {
			return Outcome{Code: CodeNotFound}, nil
		}
		return Outcome{Code: CodeOK}, a.b.PutCalendar(namespace, c.Name, nil)
	}
	return Outcome{Code: CodeOK}, a.b.PutCalendar(namespace, c.Name, c.Data)
}
