package fsm

import (
	"slices"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// A run is live if the schedule or a person asks for it now, and serial if it catches up: run_all, backfill, redrive.
// Serial runs go one by one, in the gaps of the live schedule.

// canStart says whether one more run of the job may become active now.
func canStart(s *store.State) bool {
	if s.Overlap != store.OverlapAllow {
		return s.Active == 0 || mutant.On(mutant.LeakOverlap)
	}
	return s.Concurrency == 0 || s.Active < uint32(s.Concurrency)
}

// tally counts a job's open runs.
type tally struct {
	live, serial int  // active
	waiting      int  // live ones that wait
	delayed      bool // an active live one had to wait behind a serial one
}

func isActive(ref *store.OpenRef) bool { return ref.Status != job.RunWaiting || ref.Held }

func (a *applier) tally(id job.ID, s *store.State) (t tally) {
	if s.Active == 0 && s.Waiting == 0 {
		return t
	}
	refs := a.b.Open(id)
	for i := range refs {
		switch ref := &refs[i]; {
		case isActive(ref) && ref.Serial:
			t.serial++
		case isActive(ref):
			t.live++
			t.delayed = t.delayed || ref.Delayed
		case !ref.Serial:
			t.waiting++
		}
	}
	return t
}

// isDue says that a job with this place has an occurrence that waits for a slot. It counts as open, unless runs may
// overlap.
func (a *applier) isDue(s *store.State, p store.Place) bool {
	return s.Overlap != store.OverlapAllow && !p.Parked && p.Ready <= a.now
}

// release lets waiting runs become pending as far as the job's overlap policy allows: live ones first, oldest first,
// and a serial one only if no live one is open or due. While the job is paused, only those by hand. p is where the
// job's state goes.
func (a *applier) release(id job.ID, s *store.State, p store.Place) error {
	if s.Waiting == 0 || s.Quarantined {
		return nil
	}
	due := a.isDue(s, p)
	open := a.b.Open(id)
	if mutant.On(mutant.NewestFirst) {
		open = slices.Clone(open)
		slices.Reverse(open)
	}
	for _, ref := range open {
		if !canStart(s) {
			return nil
		}
		if isActive(&ref) || ref.Serial && !mutant.On(mutant.SerialFirst) || due && ref.At > p.Ready ||
			holds(s, ref.Origin, ref.Serial, job.RunPending) {
			continue // a run by hand that came after the occurrence that is due waits behind it
		}
		if err := a.releaseOne(job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}, s); err != nil {
			return err
		}
	}
	if s.Waiting == 0 || s.Paused || due || !canStart(s) || a.tally(id, s).serial > 0 {
		return nil
	}
	for _, ref := range a.b.Open(id) {
		if ref.Serial && !isActive(&ref) {
			return a.releaseOne(job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}, s)
		}
	}
	return nil
}

func (a *applier) releaseOne(k job.RunKey, s *store.State) error {
	r, err := a.row(k)
	if err != nil {
		return err
	}
	next := r
	next.Status, next.Ready = job.RunPending, a.now
	s.Waiting--
	s.Active++
	return a.b.PutRun(k, &r, &next)
}

// replace makes room for a newer run: what runs is told to stop, what waits for its retry or its turn is dropped.
// Serial runs are not replaced; they take their turns.
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

// verdict is what the overlap policy says about a new live run.
type verdict uint8

const (
	start verdict = iota
	wait
	refuse
	refuseFull
	displaced // a newer run took its place before it could start
)

// reason is that of an occurrence which does not run by a verdict.
func (v verdict) reason() (job.RunStatus, job.Reason) {
	switch v {
	case refuseFull:
		return job.RunSkipped, job.ReasonQueueFull
	case displaced:
		return job.RunCanceled, job.ReasonReplaced
	}
	return job.RunSkipped, job.ReasonOverlap
}

// overlaps says that a live run of the job was open at a time that has come, with nothing open now. A stamp that is
// ahead of this one is of a clock that was reset.
func (a *applier) overlaps(s *store.State, ready int64) bool {
	return s.Overlap == store.OverlapSkip && ready <= s.BusyUntil && s.BusyUntil <= a.now &&
		!mutant.On(mutant.JudgeBySlot)
}

// behindSerial says that nothing but a serial run is in the way of a live one.
func (a *applier) behindSerial(id job.ID, s *store.State) bool {
	if s.Active == 0 || s.Overlap == store.OverlapAllow {
		return false
	}
	t := a.tally(id, s)
	return t.serial > 0 && t.live == 0
}

// overlap decides in apply, from the committed state, whether a new live run that was ready at a time may start:
// everywhere else it would leak.
func (a *applier) overlap(id job.ID, s *store.State, ready int64) (verdict, error) {
	if canStart(s) {
		return start, nil
	}
	t := a.tally(id, s)
	switch s.Overlap {
	case store.OverlapSkip:
		// What it waits for is not the live schedule but a serial run: that must not make it skip. If a live one is
		// late because of a serial one, one more waits for it.
		if (t.live == 0 && t.waiting < job.MaxWaiting || t.delayed && t.waiting == 0) &&
			!mutant.On(mutant.SerialFirst) {
			return wait, nil
		}
		return refuse, nil
	case store.OverlapReplace:
		for _, ref := range a.b.Open(id) {
			if ref.Origin == job.OriginManual && ref.At > ready {
				return displaced, nil
			}
		}
		if err := a.replace(id, s); err != nil {
			return refuse, err
		}
		if s.Active == 0 {
			return start, nil
		}
		return wait, nil
	}
	if t.waiting >= job.MaxWaiting {
		return refuseFull, nil
	}
	return wait, nil
}
