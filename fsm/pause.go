package fsm

import (
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Pause stops a job's occurrences and holds its retries. Runs by hand go on, each when its turn comes. What is due by
// then stays due, and runs after the resume.
type Pause struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
}

func (c *Pause) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *Pause) do(a *applier) (Outcome, error) {
	id := job.ID(c.Job)
	s, p, ok, err := a.b.State(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if s.Paused {
		return Outcome{Code: CodeOK, Job: id}, nil
	}
	s.Paused, s.PausedAt = true, a.now
	return Outcome{Code: CodeOK, Job: id}, a.park(id, &s, p)
}

// holds says that a run which could be claimed waits for the resume of its job instead. A pause is for the schedule and
// for retries: what a person asked for, before it or after, keeps its turn, or a newer run by hand would overtake it.
func holds(s *store.State, origin job.Origin, serial bool, status job.RunStatus) bool {
	switch {
	case s.Quarantined:
		return true
	case !s.Paused:
		return false
	}
	return origin != job.OriginManual || serial || status == job.RunRetrying
}

// park stops a job: its occurrence waits in the parked entry, and what is pending or retrying is held. What a worker
// has in hand goes on.
func (a *applier) park(id job.ID, s *store.State, p store.Place) error {
	s.Gen++
	if !p.Parked {
		s.ParkedAt, s.ParkedReady = p.At, p.Ready
	}
	for _, ref := range a.b.Open(id) {
		if ref.Status != job.RunPending && ref.Status != job.RunRetrying ||
			!holds(s, ref.Origin, ref.Serial, ref.Status) {
			continue
		}
		k := job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}
		row, err := a.row(k)
		if err != nil {
			return err
		}
		held := row
		held.Held, held.Status = row.Status, job.RunWaiting
		if err := a.b.PutRun(k, &row, &held); err != nil {
			return err
		}
	}
	// The occurrence that a run by hand waited behind is due no more.
	if err := a.release(id, s, store.Place{Parked: true}); err != nil {
		return err
	}
	return a.b.PutState(id, s, store.Place{Parked: true})
}

// Resume starts a paused or quarantined job again. Next is the occurrence that was due before the pause: those that
// passed meanwhile are in Pauses of the state then, and are left out when their turn comes. Without one, Next is to
// come and NotRun is what passed meanwhile.
type Resume struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	Seen    Seen    `codec:"s"`
	Next    When    `codec:"n"`
	NotRun  Gap     `codec:"x"`
}

func (c *Resume) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *Resume) do(a *applier) (Outcome, error) {
	id := job.ID(c.Job)
	s, p, ok, err := a.b.State(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if !s.Paused && !s.Quarantined {
		return Outcome{Code: CodeOK, Job: id}, nil
	}
	if !seen(&s, p, c.Seen) || c.Next.At != 0 && c.Next.At <= s.LastNominal {
		return Outcome{Code: CodeMoved, Job: id}, nil
	}
	if why := wrongGap(&s, c.Next, c.NotRun); why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	if s.KeepsDue(c.Next.Ready) {
		s.Pauses.Add(store.Span{From: s.PausedAt, To: a.now})
	}
	if err := a.account(id, &s, s.ParkedAt, c.Next, c.NotRun, stopReason(&s)); err != nil {
		return Outcome{}, err
	}
	s.Paused, s.Quarantined = false, false
	s.ParkedAt, s.ParkedReady, s.PausedAt = 0, 0, 0
	s.Gen++
	if err := a.b.PutNote(id, ""); err != nil {
		return Outcome{}, err
	}
	if err := a.notRun(id, &s, c.NotRun.interval()); err != nil {
		return Outcome{}, err
	}
	if err := a.flush(id, &s); err != nil {
		return Outcome{}, err
	}
	for _, ref := range a.b.Open(id) {
		if !ref.Held {
			continue
		}
		k := job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}
		row, err := a.row(k)
		if err != nil {
			return Outcome{}, err
		}
		free := row
		free.Status, free.Held, free.Ready = row.Held, job.RunNone, max(row.Ready, a.now)
		if mutant.On(mutant.ResumeRetries) {
			free.Ready = a.now
		}
		if err := a.b.PutRun(k, &row, &free); err != nil {
			return Outcome{}, err
		}
	}
	next := place(&s, c.Next)
	if err := a.release(id, &s, next); err != nil {
		return Outcome{}, err
	}
	if err := a.settle(id, &s, next); err != nil {
		return Outcome{}, err
	}
	return Outcome{Code: CodeOK, Job: id}, a.b.PutState(id, &s, next)
}
