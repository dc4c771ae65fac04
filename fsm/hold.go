package fsm

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Release ends the hold of a restored cluster. Occurrences up to the stamp do not run any more.
type Release struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	At      int64   `codec:"a,omitempty"` // when the control group of the cluster was released
}

func (c *Release) apply(a *applier) error { return a.once(c.Request, c.do) }

// do begins the end of a hold. The stamp decides, once and for all, which occurrences the cluster that the backup was
// taken from may have run. They are not touched here, because they may be millions: the leader that gets to one finds
// that it is too old (Info.Released).
func (c *Release) do(a *applier) (Outcome, error) {
	info := a.b.Info()
	if !info.Hold.On || info.Hold.Releasing {
		return Outcome{Code: CodeOK}, nil
	}
	if err := a.disownNotices(info.Hold.Since); err != nil {
		return Outcome{}, err
	}
	info.Hold.Releasing = true
	info.Released = max(info.Released, a.b.C.Mark, c.At) // no stamp was higher, in the backup either
	a.b.SetInfo(info)
	return Outcome{Code: CodeOK, Count: 1}, nil
}

// CloseRestored closes up to Limit open runs that came with the backup of a cluster that is being released. When none
// is left the hold is over.
type CloseRestored struct {
	Head  `codec:"h"`
	Limit int `codec:"l"`
}

// minRestored is how long a one-off job stays at least that did not run, or was lost, because of a restore. An operator
// has to look at it, and its own retention was meant for one that ran.
const minRestored = 30 * 24 * 3600 * 1000

func keepRestored(s *store.State) int64 { return max(int64(s.Retention)*1000, minRestored) }

// maxCloseRestored bounds what one command closes, whatever it says.
const maxCloseRestored = 4096

// apply closes open runs of a backup. Each of them may have gone on, and ended, in the cluster that the backup was
// taken from, so none goes on here, in whatever state it was:
//   - claimed: its worker reported to the other cluster, if it did;
//   - pending, retrying, waiting, held: the other cluster may have given it to a worker since;
//   - canceling: it was to end, and ends.
//
// The hold lasts until none is left. So no run is opened meanwhile, the first ones are always those of the backup, and
// the next leader simply goes on.
func (c *CloseRestored) apply(a *applier) error {
	info := a.b.Info()
	if !info.Hold.Releasing {
		a.outcome(Outcome{Code: CodeStale})
		return nil
	}
	left := min(max(c.Limit, 1), maxCloseRestored)
	first, err := a.b.FirstRuns(left)
	if err != nil {
		return err
	}
	n := 0
	for _, k := range first {
		if left-n <= 0 {
			break
		}
		closed, err := a.closeRestoredOf(k.Job, left-n)
		if err != nil {
			return err
		}
		n += closed
	}
	if rest, err := a.b.FirstRuns(1); err != nil {
		return err
	} else if len(rest) == 0 {
		info.Hold = store.Hold{}
		a.b.SetInfo(info)
	}
	a.outcome(Outcome{Code: CodeOK, Count: n})
	return nil
}

// closeRestoredOf closes up to limit open runs of a job: first those that wait behind others, so that none ever waits
// behind nothing.
func (a *applier) closeRestoredOf(id job.ID, limit int) (int, error) {
	refs := slices.Clone(a.b.Open(id))
	if len(refs) == 0 {
		return 0, nil // closed together with an earlier one
	}
	active := func(r store.OpenRef) int {
		if r.Status != job.RunWaiting || r.Held {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(refs, func(x, y store.OpenRef) int { return active(x) - active(y) })
	st, p, ok, err := a.b.State(id)
	if err != nil {
		return 0, err
	}
	s := &st
	if !ok {
		s = nil
	}
	refs = refs[:min(limit, len(refs))]
	for _, ref := range refs {
		if err := a.loseOne(job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}, s); err != nil {
			return 0, err
		}
	}
	if s == nil {
		return len(refs), nil
	}
	if err := a.settleIn(id, s, p, keepRestored(s)); err != nil {
		return 0, err
	}
	return len(refs), a.b.PutState(id, s, p)
}

func (a *applier) loseOne(k job.RunKey, s *store.State) error {
	r, err := a.row(k)
	if err != nil {
		return err
	}
	rec := a.record(k, &r, job.RunLost, job.ReasonRestored)
	rec.Error = "the run was open when the backup was taken; its outcome is not known here"
	if r.Status == job.RunClaimed || r.Status == job.RunCanceling {
		rec.EndedAt = a.now
		// Should its worker be here after all, it is told to stop.
		a.reply.Canceling = append(a.reply.Canceling,
			Canceling{Run: k, Fence: r.Fence, Worker: r.Worker, Incarnation: r.Incarnation})
	}
	switch {
	case s == nil:
		rec.Status, rec.Reason = job.RunCanceled, job.ReasonDeleted
	case r.Status == job.RunCanceling:
		rec.Status, rec.Reason = job.RunCanceled, r.Cancel
	}
	if s != nil {
		// It was in the way of no occurrence after the release: what it did, it did in another cluster.
		defer func(until int64) { s.BusyUntil = until }(s.BusyUntil)
	}
	_, err = a.closeRun(k, &r, s, rec)
	return err
}
