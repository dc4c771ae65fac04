package fsm

import (
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// maxTime is far beyond every schedule and well within what a place in the index can hold.
const maxTime = 1 << 48

// notRun accounts for occurrences that do not run: they join the interval in the state, or that is written out first.
func (a *applier) notRun(id job.ID, s *store.State, i store.Interval) error {
	if a.reply.Ends.Missed(i); i.Empty() {
		return nil
	}
	s.LastNominal = max(s.LastNominal, i.Last)
	if s.NotRun.Add(i) {
		return nil
	}
	if err := a.flush(id, s); err != nil {
		return err
	}
	s.NotRun = i
	return nil
}

// apart records occurrences that do not run by themselves: the interval in the state is about others.
func (a *applier) apart(id job.ID, s *store.State, i store.Interval) error {
	if a.reply.Ends.Missed(i); i.Empty() {
		return nil
	}
	_, err := a.b.Append(&store.Record{Job: id, Recorded: a.now, Interval: i}, s)
	return err
}

// flush writes the interval of the state into the history.
func (a *applier) flush(id job.ID, s *store.State) error {
	if s.NotRun.Empty() {
		return nil
	}
	if mutant.On(mutant.ForgetNotRun) {
		s.NotRun = store.Interval{}
		return nil
	}
	rec := store.Record{Job: id, Recorded: a.now, Interval: s.NotRun}
	s.NotRun = store.Interval{}
	_, err := a.b.Append(&rec, s)
	return err
}

func (g Gap) interval() store.Interval {
	if g.Count == 0 {
		return store.Interval{}
	}
	return store.Interval{First: g.First, Last: g.Last, Count: g.Count, AtLeast: g.AtLeast,
		Status: g.Status, Reason: g.Reason}
}

func (g Gap) covers(at int64) bool { return g.Count > 0 && g.First <= at && at <= g.Last }

// wrong says what is wrong with a next occurrence and the interval before it; "" if nothing is. last is the last
// nominal time that is accounted for. Applied all the same it would leave a job that nothing can ever be claimed from,
// or an occurrence with two outcomes.
func wrong(w When, g Gap, last int64) string {
	switch {
	case w.At < 0 || w.At > maxTime || w.At != 0 && (w.Ready < w.At || w.Ready > maxTime):
		return "the next occurrence is out of range"
	case g.Count == 0:
		return ""
	case g.Count < 0 || g.First <= 0 || g.First > g.Last || g.Last > maxTime || !notRun(g.Status):
		return "the interval that does not run makes no sense"
	case g.First <= last:
		return "the interval that does not run contains what is accounted for already"
	case w.At != 0 && w.At <= g.Last:
		return "the next occurrence lies in the interval that does not run"
	}
	return ""
}

// wrongGap says what is wrong with the next occurrence of a job and the interval that does not run before it. A one-off
// has one occurrence: what an edit into one recorded behind it is accounted for already, and no interval may have it
// once more.
func wrongGap(s *store.State, w When, g Gap) string {
	if s.OneOff && g.Count != 0 && (g.Count != 1 || g.First != g.Last) {
		return "the interval that does not run has more than the one occurrence of the job"
	}
	return wrong(w, g, s.LastNominal)
}

// wrongAfter says what is wrong with an interval behind the next occurrence.
func wrongAfter(oneOff bool, w When, g Gap, last int64) string {
	switch {
	case g.Count == 0:
		return ""
	case !oneOff: // the next occurrences meet it again
		return "only the occurrence of a one-off has an interval behind it"
	case g.Count < 0 || w.At == 0 || g.First <= w.At:
		return "the interval behind the next occurrence makes no sense"
	}
	return wrong(When{}, g, last)
}

// notRun says that a status is one of an occurrence that did not run.
func notRun(s job.RunStatus) bool {
	return s == job.RunSkipped || s == job.RunMissed || s == job.RunExpired || s == job.RunCanceled
}

// waiting is the occurrence that a job has before it: in the due index, or put aside while it is stopped. 0 if there is
// none.
func waiting(s *store.State, p store.Place) int64 {
	if p.Parked {
		return s.ParkedAt
	}
	return p.At
}

// account records the occurrence at, which was due, unless it is kept as the next one or the proposer's interval has
// it. Its reason may be unknown to a proposer that counts by a schedule which no longer has it; silence would be a bug
// all the same.
func (a *applier) account(id job.ID, s *store.State, at int64, next When, g Gap, reason job.Reason) error {
	if at == 0 || at > a.now || at == next.At || g.covers(at) {
		return nil
	}
	i := store.Interval{First: at, Last: at, Count: 1, Status: job.RunSkipped, Reason: reason}
	if next.At != 0 && next.At < at { // an edit may go back; then the last nominal time must not go forward
		return a.apart(id, s, i)
	}
	return a.notRun(id, s, i)
}

func stopReason(s *store.State) job.Reason {
	switch {
	case s.Quarantined:
		return job.ReasonQuarantined
	case s.Paused:
		return job.ReasonPaused
	}
	return job.ReasonEdited
}

// place is where a state goes whose next occurrence is w. It forgets the pauses that lie behind that.
func place(s *store.State, w When) store.Place {
	if w.At == 0 || s.OneOff {
		s.Pauses = store.Pauses{}
	} else {
		s.Pauses.Pass(w.Ready)
	}
	if w.At == 0 || s.Paused || s.Quarantined {
		return store.Place{Parked: true}
	}
	return store.Place{Lane: s.Lane, Ready: w.Ready, At: w.At}
}

// seen says whether the proposer looked at this state.
func seen(s *store.State, p store.Place, x Seen) bool {
	if s.Gen != x.Gen || p.Parked != x.Parked {
		return false
	}
	return p.Parked || p.At == x.At && p.Ready == x.Ready
}

// moveOn writes the state of a job whose occurrence became a run (ran) or not.
func (a *applier) moveOn(key store.DueKey, s *store.State, next When, ran bool) error {
	id, to := key.Job, place(s, next)
	// What did not run before this one is written out when one runs, and when nothing follows that would write it out.
	if ran || to.Parked {
		if err := a.flush(id, s); err != nil {
			return err
		}
	}
	s.LastNominal = max(s.LastNominal, key.At)
	if err := a.release(id, s, to); err != nil {
		return err
	}
	if err := a.settle(id, s, to); err != nil {
		return err
	}
	return a.b.PutState(id, s, to)
}

// settle plans the end of a one-off job that has nothing left to do.
func (a *applier) settle(id job.ID, s *store.State, p store.Place) error {
	return a.settleIn(id, s, p, int64(s.Retention)*1000)
}

func (a *applier) settleIn(id job.ID, s *store.State, p store.Place, keep int64) error {
	if !s.OneOff || !p.Parked || s.Paused || s.Quarantined || s.Active != 0 || s.Waiting != 0 {
		return nil
	}
	if mutant.On(mutant.CleanEarly) {
		keep /= 2
	}
	return a.b.PutCleanup(cleanupKey(id, a.now+keep))
}
