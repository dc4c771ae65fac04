package fsm

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// canStart says whether one more run of the job may become active now.
func (a *applier) canStart(id job.ID, s *store.State, serial bool) bool {
	if s.Overlap != store.OverlapAllow {
		return s.Active == 0 || mutant.On(mutant.LeakOverlap)
	}
	if s.Concurrency != 0 && s.Active >= uint32(s.Concurrency) {
		return false
	}
	return !serial || !a.serialActive(id)
}

// serialActive says whether a catch-up or backfill run is active: those go one by one, whatever else may overlap.
func (a *applier) serialActive(id job.ID) bool {
	for _, ref := range a.b.Open(id) {
		if ref.Serial && (ref.Status != job.RunWaiting || ref.Held) {
			return true
		}
	}
	return false
}

// release lets waiting runs become pending, oldest first, as far as the job's overlap policy allows.
func (a *applier) release(id job.ID, s *store.State) error {
	if s.Waiting == 0 || s.Paused || s.Quarantined {
		return nil
	}
	serial := a.serialActive(id)
	for _, ref := range a.b.Open(id) {
		if !a.canStart(id, s, false) {
			return nil
		}
		if ref.Status != job.RunWaiting || ref.Held || ref.Serial && serial {
			continue
		}
		k := job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}
		r, err := a.row(k)
		if err != nil {
			return err
		}
		next := r
		next.Status, next.Ready = job.RunPending, a.now
		if err := a.b.PutRun(k, &r, &next); err != nil {
			return err
		}
		serial = serial || ref.Serial
		s.Waiting--
		s.Active++
	}
	return nil
}

// replace makes room for a newer run: what runs is told to stop, what waits for its retry or its turn is dropped. Catch-up and
// backfill runs are not replaced; they take their turns.
func (a *applier) replace(id job.ID, s *store.State) error {
	for _, ref := range slices.Clone(a.b.Open(id)) {
		if ref.Serial {
			continue
		}
		if err := a.stop(job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}, s, job.ReasonReplaced); err != nil {
			return err
		}
	}
	return nil
}

// verdict is what the overlap policy says about a new run.
type verdict uint8

const (
	start verdict = iota
	wait
	refuse
	refuseFull
)

// overlap decides in apply, from the committed state, whether a new run may start: everywhere else it would leak.
func (a *applier) overlap(id job.ID, s *store.State, serial bool) (verdict, error) {
	if a.canStart(id, s, serial) {
		return start, nil
	}
	if serial {
		return wait, nil
	}
	switch s.Overlap {
	case store.OverlapSkip:
		return refuse, nil
	case store.OverlapReplace:
		if err := a.replace(id, s); err != nil {
			return refuse, err
		}
		if s.Active == 0 {
			return start, nil
		}
		return wait, nil
	}
	if s.Waiting >= job.MaxWaiting {
		return refuseFull, nil
	}
	return wait, nil
}
