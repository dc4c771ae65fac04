package fsm

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Update replaces a job's definition. Next is where its next occurrence is to be afterwards (for a paused job: where it
// would be); Dropped is what the edit takes away before it, After what it takes away behind it: a one-off in the past
// leaves nothing of what was due later.
type Update struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	Version uint64  `codec:"v"` // the version it was made from; it must still be that one
	Seen    Seen    `codec:"s"`
	Def     []byte  `codec:"d"`
	Next    When    `codec:"n"`
	Dropped Gap     `codec:"x"`
	After   Gap     `codec:"y"`

	// The reservation of a new name whose home is another group.
	Home        uint32 `codec:"o,omitempty"`
	Reservation uint64 `codec:"r,omitempty"`
}

func (c *Update) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *Update) do(a *applier) (Outcome, error) {
	id := job.ID(c.Job)
	old, ok, err := a.b.Definition(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if old.Version != c.Version {
		return Outcome{Code: CodeConflict, Job: id, Version: old.Version}, nil
	}
	def, err := store.DecodeDefinition(c.Def)
	if err != nil {
		return Outcome{}, err
	}
	if def.Spec.Namespace != old.Spec.Namespace { // its history and dead letters are of that one
		return Outcome{Code: CodeRefused, Job: id, Text: TextNamespace}, nil
	}
	s, p, ok, err := a.b.State(id)
	if err != nil {
		return Outcome{}, err
	}
	if !ok {
		return Outcome{}, fmt.Errorf("fsm: %s has no state", id)
	}
	// The proposer computed Next and Dropped from what it read. If a claim, a pause or another edit came in between,
	// that is no longer what the edit starts from: an occurrence would be lost or repeated.
	if !seen(&s, p, c.Seen) || def.Version != c.Version+1 || c.Next.At != 0 && c.Next.At <= s.LastNominal {
		return Outcome{Code: CodeMoved, Job: id}, nil
	}
	if why := wrong(c.Next, c.Dropped, s.LastNominal); why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	if why := wrongAfter(def.Spec.OneOff(), c.Next, c.After, s.LastNominal); why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	name := job.NameRef{Kind: job.NameJob, Namespace: def.Spec.Namespace, Name: def.Spec.Name}
	if def.Spec.Name != old.Spec.Name && def.Spec.Name != "" {
		if other, taken := a.b.Named(def.Spec.Namespace, def.Spec.Name); taken {
			return Outcome{Code: CodeDuplicate, Job: other}, nil
		}
		if o, err := a.entitled(name, c.Home, c.Reservation); err != nil || o.Code != 0 {
			return o, err
		}
	}
	if why := a.unfit(&def.Spec); why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	if def.Spec.Name != old.Spec.Name {
		if old.Spec.Name != "" {
			if err := a.b.DeleteName(old.Spec.Namespace, old.Spec.Name, id); err != nil {
				return Outcome{}, err
			}
		}
		if err := a.owe(id); err != nil {
			return Outcome{}, err
		}
		if def.Spec.Name != "" {
			if err := a.b.PutName(def.Spec.Namespace, def.Spec.Name, id); err != nil {
				return Outcome{}, err
			}
			if err := a.hold(name, c.Home, c.Reservation, id); err != nil {
				return Outcome{}, err
			}
		}
	}
	if err := a.b.PutDefinition(id, c.Def); err != nil {
		return Outcome{}, err
	}
	s.Gen++
	before := s
	if err := a.adopt(&s, &def.Spec); err != nil {
		return Outcome{}, err
	}
	if err := a.forget(id, &s, &before); err != nil {
		return Outcome{}, err
	}
	if at := waiting(&s, p); !c.After.covers(at) {
		if err := a.account(id, &s, at, c.Next, c.Dropped, stopReason(&s)); err != nil {
			return Outcome{}, err
		}
	}
	if err := a.notRun(id, &s, c.Dropped.interval()); err != nil {
		return Outcome{}, err
	}
	if err := a.flush(id, &s); err != nil {
		return Outcome{}, err
	}
	// Straight into the history: the last nominal time must not pass the next occurrence.
	if err := a.apart(id, &s, c.After.interval()); err != nil {
		return Outcome{}, err
	}
	s.Canceled = s.Canceled && s.OneOff && c.Next.At == 0
	if s.Paused || s.Quarantined {
		s.ParkedAt, s.ParkedReady = c.Next.At, c.Next.Ready
	}
	if s.Lane != before.Lane || s.Class != before.Class || s.AtMostOnce != before.AtMostOnce {
		if err := a.follow(id, &s); err != nil {
			return Outcome{}, err
		}
	}
	next := place(&s, c.Next)
	a.b.Reclassed(next, before.Class, s.Class)
	if err := a.release(id, &s, next); err != nil { // a looser overlap or concurrency lets waiting runs start
		return Outcome{}, err
	}
	if err := a.settle(id, &s, next); err != nil {
		return Outcome{}, err
	}
	return Outcome{Code: CodeOK, Job: id, Version: def.Version}, a.b.PutState(id, &s, next)
}

// follow makes runs that no worker has in hand follow an edit: what they are given to a worker with is the definition
// of that moment, so lane, class and delivery must be of the same one.
func (a *applier) follow(id job.ID, s *store.State) error {
	for _, ref := range a.b.Open(id) {
		if ref.Status == job.RunClaimed || ref.Status == job.RunCanceling {
			continue
		}
		k := job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}
		row, err := a.row(k)
		if err != nil {
			return err
		}
		next := row
		next.Lane, next.Class, next.AtMostOnce = s.Lane, s.Class, s.AtMostOnce
		if next == row {
			continue
		}
		if next.Class != row.Class {
			next.Ready++ // a claim on its way has picked a worker of the old class: its key must no longer be this one
		}
		if err := a.b.PutRun(k, &row, &next); err != nil {
			return err
		}
	}
	return nil
}
