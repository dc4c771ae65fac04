package fsm

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// What a trigger is refused with: what to do about it differs.
const (
	TextOverlap = "a run of this job is open or due, and its overlap policy is skip"
	TextFull    = "too many runs of this job are waiting already"
	TextHold    = "the cluster was restored from a backup and is on hold, so nothing runs"
	// TextNamespace refuses an edit that would move a job.
	TextNamespace = "a job cannot move to another namespace"
)

// Trigger makes a manual run. Its time is the stamp, moved to the next free millisecond.
type Trigger struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	Key     string  `codec:"k,omitempty"` // the job's template of idempotency keys, if it has one
	Name    string  `codec:"m,omitempty"`
}

func (c *Trigger) apply(a *applier) error { return a.once(c.Request, c.do) }

// do makes a manual run, of a paused job too: only its retries wait for the resume. Two in one millisecond get
// different times, also after the first is long finished.
func (c *Trigger) do(a *applier) (Outcome, error) {
	id := job.ID(c.Job)
	s, p, ok, err := a.b.State(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if a.b.Info().Hold.On {
		return Outcome{Code: CodeRefused, Job: id, Text: TextHold}, nil
	}
	if s.Quarantined {
		// The scheduler cannot handle it; a run in the due index would bring it straight back to what it could not do.
		return Outcome{Code: CodeRefused, Job: id, Text: "the job is in quarantine; edit or resume it first"}, nil
	}
	delayed := a.behindSerial(id, &s)
	v, err := a.overlap(id, &s, maxTime)
	if err != nil {
		return Outcome{}, err
	}
	if v == start && isDue(&s, p, a.now) { // an occurrence that waits for a slot is open
		v = a.behindDue(id, &s)
	}
	switch v {
	case refuse:
		return Outcome{Code: CodeRefused, Job: id, Text: TextOverlap}, nil
	case refuseFull:
		return Outcome{Code: CodeRefused, Job: id, Text: TextFull}, nil
	}
	k := job.RunKey{Job: id, At: max(a.now, s.LastManual+1), Origin: job.OriginManual}
	s.LastManual = k.At
	s.ByHand++
	row := store.Row{Status: job.RunPending, Ready: a.now, AtMostOnce: s.AtMostOnce, Lane: s.Lane, Class: s.Class}
	if c.Key != "" {
		row.Key = job.IdempotencyKey(c.Key, c.Name, k)
	}
	o := Outcome{Code: CodeOK, Job: id, Run: k}
	if v == wait {
		row.Status, row.Delayed = job.RunWaiting, delayed
		s.Waiting++
		o.Code = CodeQueued
	} else {
		s.Active++
	}
	if err := a.b.PutRun(k, nil, &row); err != nil {
		return Outcome{}, err
	}
	return o, a.b.PutState(id, &s, p)
}

// behindDue is what becomes of a run by hand while an occurrence is due. Under replace the newer one starts, and the
// occurrence is recorded as replaced when it is looked at.
func (a *applier) behindDue(id job.ID, s *store.State) verdict {
	switch s.Overlap {
	case store.OverlapSkip:
		return refuse
	case store.OverlapQueue:
		if a.tally(id, s).waiting >= job.MaxWaiting {
			return refuseFull
		}
		return wait
	}
	return start
}
