package fsm

import (
	"errors"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Cleanup removes one-off jobs whose retention is over; entries are clean-up keys of the due index. One that still has
// open runs or dead letters is put off to Later.
type Cleanup struct {
	Head  `codec:"h"`
	Lane  []byte  `codec:"l"`
	Ready Times   `codec:"r"`
	Jobs  Numbers `codec:"j"`
	Later int64   `codec:"a"`
}

func (c *Cleanup) items() int      { return len(c.Jobs) }
func (*Cleanup) stopsOnHold() bool { return true }
func (c *Cleanup) check() error    { return sameLength(len(c.Jobs), len(c.Lane), len(c.Ready)) }

func (c *Cleanup) apply(a *applier) error {
	for i := range c.Jobs {
		key := store.DueKey{Lane: job.Lane(c.Lane[i]), Ready: c.Ready[i], Job: job.ID(c.Jobs[i]),
			Kind: store.KindCleanup}
		o, err := a.cleanupOne(key, c.Later)
		if err != nil {
			return err
		}
		a.outcome(o)
	}
	return nil
}

func (a *applier) cleanupOne(k store.DueKey, later int64) (Outcome, error) {
	if !a.b.HasDue(k) {
		return Outcome{Code: CodeStale}, nil
	}
	if err := a.b.DeleteDue(k); err != nil {
		return Outcome{}, err
	}
	s, p, ok, err := a.b.State(k.Job)
	if err != nil {
		return Outcome{}, err
	}
	done := Outcome{Code: CodeOK, Job: k.Job}
	if !ok || !p.Parked || !s.OneOff {
		return done, nil // gone, or an edit gave it another time
	}
	if s.Active != 0 || s.Waiting != 0 || s.Dead != 0 || s.Paused || s.Quarantined {
		return Outcome{Code: CodeRefused, Job: k.Job}, a.b.PutCleanup(cleanupKey(k.Job, max(later, a.now+1)))
	}
	if ends := s.LastAt + int64(s.Retention)*1000; a.now < ends && !mutant.On(mutant.CleanEarly) {
		return Outcome{Code: CodeRefused, Job: k.Job}, a.b.PutCleanup(cleanupKey(k.Job, ends)) // it ran again meanwhile
	}
	if s.Notify != 0 { // whom to tell is in the definition
		pending, err := a.b.JobNotices(k.Job)
		if err != nil {
			return Outcome{}, err
		}
		if len(pending) > 0 {
			return Outcome{Code: CodeRefused, Job: k.Job}, a.b.PutCleanup(cleanupKey(k.Job, max(later, a.now+1)))
		}
	}
	def, ok, err := a.b.Definition(k.Job)
	if err != nil || !ok {
		return Outcome{}, errors.Join(err, fmt.Errorf("fsm: %s has a state but no definition", k.Job))
	}
	return done, a.remove(k.Job, &s, &def.Spec)
}

func cleanupKey(id job.ID, ready int64) store.DueKey {
	return store.DueKey{Lane: job.Lanes - 1, Ready: ready, Job: id, Kind: store.KindCleanup}
}
