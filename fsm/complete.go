package fsm

import (
	"cmp"

	"github.com/carillon-scheduler/carillon/job"
)

// Result says how an attempt ended, after the proposer applied the job's retry rule.
type Result uint8

// The results.
const (
	ResultSucceeded Result = 1
	ResultRetry     Result = 2 // failed; the next attempt is at RetryAt
	ResultDead      Result = 3 // failed for good
	ResultCanceled  Result = 4
	ResultReturned  Result = 5 // never started
)

// Complete records the ends of attempts.
type Complete struct {
	Head    `codec:"h"`
	Jobs    Numbers  `codec:"j"`
	At      Times    `codec:"a"`
	Origin  []byte   `codec:"o"`
	Fence   Numbers  `codec:"f"`
	Result  []byte   `codec:"r"`
	Reason  []byte   `codec:"x"`
	RetryAt Times    `codec:"y"`
	Started Times    `codec:"s"`
	Ended   Times    `codec:"e"`
	Error   []string `codec:"m"` // empty, or one an item
	Output  []string `codec:"u"` // empty, or one an item
}

func (c *Complete) items() int { return len(c.Jobs) }

func (c *Complete) check() error {
	n := len(c.Jobs)
	return cmp.Or(sameLength(n, len(c.At), len(c.Origin), len(c.Fence), len(c.Result), len(c.Reason), len(c.RetryAt),
		len(c.Started), len(c.Ended)), optional(n, len(c.Error), len(c.Output)))
}

func (c *Complete) apply(a *applier) error {
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
		if res := Result(c.Result[i]); res < ResultSucceeded || res > ResultReturned {
			a.outcome(Outcome{Code: CodeRefused, Run: k, Text: "there is no such result"})
			continue
		}
		rec := a.record(k, row, job.RunSucceeded, job.Reason(c.Reason[i]))
		rec.StartedAt, rec.EndedAt = c.Started[i], c.Ended[i]
		rec.Error, rec.Output = at(c.Error, i), at(c.Output, i)
		if res := Result(c.Result[i]); s != nil && res <= ResultDead {
			a.took(s, row)
		}
		if err := a.end(k, row, s, rec, Result(c.Result[i]), c.RetryAt[i]); err != nil {
			return err
		}
		if err := a.after(k.Job, s, p); err != nil {
			return err
		}
		a.outcome(Outcome{Code: CodeOK, Run: k, Class: row.Class})
	}
	return nil
}
