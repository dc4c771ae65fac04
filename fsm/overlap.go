package fsm

import (
	"slices"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// A run is live if the schedule or a person asks for it now, and serial if it catches up: run_all, backfill, redrive.
// Serial runs go one by one, in the gaps of the live schedule: where, by what the job's attempts took of late, one ends
// before the next occurrence.

// maxPassedOver is how often a serial run may find no room before it starts all the same. Live ones wait for it then,
// and none of them is lost.
const maxPassedOver = 5

// fits says that a serial run may start now, as far as the occurrence at p is concerned.
func (a *applier) fits(s *store.State, p store.Place) bool {
	switch {
	case s.Overlap == store.OverlapAllow || p.Parked || mutant.On(mutant.SerialFirst):
		return true
	case p.Ready <= a.latest():
		return false
	}
	return s.PassedOver >= maxPassedOver || s.Took == 0 || a.latest()+s.Took <= p.Ready || mutant.On(mutant.NoRoom)
}

// passOver notes that a serial run found no room.
func passOver(s *store.State) { s.PassedOver = min(s.PassedOver+1, maxPassedOver) }

// took notes how long an attempt took, from its claim to its end. A longer one counts at once, shorter ones little by
// little.
func (a *applier) took(s *store.State, row *store.Row) {
	d := max(a.latest()-row.ClaimedAt, 1)
	if d < s.Took {
		d = s.Took - (s.Took-d)/4
	}
	s.Took = d
}

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
	delayed      bool // an active live one began late because of a serial one
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

// isDue says that a job with this place has an occurrence that waits for a slot at a time. It counts as open, unless
// runs may overlap.
func isDue(s *store.State, p store.Place, at int64) bool {
	return s.Overlap != store.OverlapAllow && !p.Parked && p.Ready <= at
}

// release lets waiting runs become pending as far as the job's overlap policy allows: live ones first, oldest first,
// and a serial one only if no live one is open or due, and it fits before the next. While the job is paused, only those
// by hand. p is where the job's state goes.
func (a *applier) release(id job.ID, s *store.State, p store.Place) error {
	if s.Waiting == 0 || s.Quarantined {
		return nil
	}
	due := isDue(s, p, a.latest())
	open := a.b.Open(id)
	if mutant.On(mutant.NewestFirst) {
		open = slices.Clone(open)
		slices.Reverse(open)
	}
	for _, ref := range slices.Clone(open) {
		if !canStart(s) {
			return nil
		}
		if isActive(&ref) || ref.Serial && !mutant.On(mutant.SerialFirst) || due && ref.At > p.Ready ||
			holds(s, ref.Origin, ref.Serial, job.RunPending) {
			continue // a run by hand that came after the occurrence that is due waits behind it
		}
		if err := a.releaseLive(job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}, s, p); err != nil {
			return err
		}
	}
	if s.Waiting == 0 || s.Paused || due || !canStart(s) || a.tally(id, s).serial > 0 {
		return nil
	}
	for _, ref := range a.b.Open(id) {
		if ref.Serial && !isActive(&ref) {
			if !a.fits(s, p) {
				passOver(s)
				return nil
			}
			return a.releaseOne(job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}, s)
		}
	}
	return nil
}

// releaseLive lets a live run become pending that waited. Under skip it waited for a serial run, or for one that such a
// run had made late. Only now it is known whether the live schedule alone would have been in its way: then it is
// skipped, as it would have been.
func (a *applier) releaseLive(k job.RunKey, s *store.State, p store.Place) error {
	if s.Overlap != store.OverlapSkip || k.Origin != job.OriginSchedule || p.Parked {
		return a.releaseOne(k, s)
	}
	r, err := a.row(k)
	if err != nil {
		return err
	}
	if !a.overlaps(s, r.Ready) || s.LastManual > r.Ready { // a run by hand that came later may have been let in first
		return a.releaseOne(k, s)
	}
	if err := a.b.DeleteRun(k, &r); err != nil {
		return err
	}
	s.Waiting--
	s.Runs--
	s.Gen++ // a claim on its way may take the next one to be the last by max_runs
	return a.apart(k.Job, s, store.Interval{First: k.At, Last: k.At, Count: 1, Status: job.RunSkipped,
		Reason: job.ReasonOverlap})
}

// giveWay takes back serial runs that wait for a slot, so that a live one need not wait for them.
func (a *applier) giveWay(id job.ID, s *store.State) error {
	if canStart(s) || !a.behindSerial(id, s) || mutant.On(mutant.SerialFirst) {
		return nil
	}
	for _, ref := range slices.Clone(a.b.Open(id)) {
		if !ref.Serial || ref.Status != job.RunPending {
			continue
		}
		k := job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}
		r, err := a.row(k)
		if err != nil || r.Attempt != 0 {
			return err
		}
		if err := a.putOff(k, &r, s); err != nil {
			return err
		}
	}
	return nil
}

// putOff makes a serial run wait again that was not started.
func (a *applier) putOff(k job.RunKey, r *store.Row, s *store.State) error {
	next := *r
	next.Status, next.Ready = job.RunWaiting, 0
	s.Active--
	s.Waiting++
	return a.b.PutRun(k, r, &next)
}

func (a *applier) releaseOne(k job.RunKey, s *store.State) error {
	r, err := a.row(k)
	if err != nil {
		return err
	}
	next := r
	if next.Status, next.Ready = job.RunPending, a.now; r.Delayed {
		next.Late = max(a.now-r.Ready, 0)
	}
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
	return s.Overlap == store.OverlapSkip && ready <= s.BusyUntil && s.BusyUntil <= a.latest() &&
		!mutant.On(mutant.JudgeBySlot)
}

// behindSerial says that nothing is in the way of a live run but a serial one, or one that such a run made late.
func (a *applier) behindSerial(id job.ID, s *store.State) bool {
	if s.Active == 0 || s.Overlap == store.OverlapAllow {
		return false
	}
	t := a.tally(id, s)
	return t.late()
}

func (t *tally) late() bool { return t.live == 0 && t.serial > 0 || t.delayed }

// overlap decides in apply, from the committed state, whether a new live run that was ready at a time may start:
// everywhere else it would leak.
func (a *applier) overlap(id job.ID, s *store.State, ready int64) (verdict, error) {
	if canStart(s) {
		return start, nil
	}
	t := a.tally(id, s)
	switch s.Overlap {
	case store.OverlapSkip:
		// What it waits for is not the live schedule but a serial run, or a live one that is late because of one: that
		// must not make it skip. Whether the live schedule alone would have is seen when it is released.
		switch {
		case !t.late() || mutant.On(mutant.SerialFirst) || mutant.On(mutant.LateSkips) && t.live > 0:
			return refuse, nil
		case t.waiting >= job.MaxWaiting:
			return refuseFull, nil
		}
		return wait, nil
	case store.OverlapReplace:
		for _, ref := range a.b.Open(id) {
			if ref.Origin == job.OriginManual && ref.At > ready {
				return displaced, nil
			}
		}
		// What a serial run made late is not stopped by the next occurrence, which it would not have met, but by the
		// one after that. A run by hand does not wait.
		if t.delayed && t.waiting == 0 && ready != maxTime && !mutant.On(mutant.LateSkips) {
			return wait, nil
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
