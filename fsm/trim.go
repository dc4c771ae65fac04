package fsm

import (
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// Trim removes old history and expired requests, a bounded number at a time. Its outcome counts the requests.
type Trim struct {
	Head     `codec:"h"`
	Before   int64  `codec:"b"` // history recorded before this goes
	MaxCount uint64 `codec:"m"` // and what exceeds this count
	Limit    int    `codec:"l"`
}

func (c *Trim) apply(a *applier) error {
	more := false
	_, err := a.b.TrimHistory(c.Limit, func(seq uint64, r *store.Record) bool {
		old := r.Recorded < c.Before || c.MaxCount > 0 && a.b.C.HistSeq-seq >= c.MaxCount
		if mutant.On(mutant.TrimMore) && !old && more {
			more = false
			return true
		}
		more = old
		return old
	})
	if err != nil {
		return err
	}
	n, err := a.b.TrimRequests(a.now, c.Limit, a.forgotten)
	a.outcome(Outcome{Code: CodeOK, Count: n})
	return err
}
