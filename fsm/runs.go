package fsm

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// maxLosses is how often a run may lose its worker before it is taken to be the cause.
const maxLosses = 5

// row reads an open run that the index says is there.
func (a *applier) row(k job.RunKey) (store.Row, error) {
	r, ok, err := a.b.Run(k)
	if err == nil && !ok {
		err = fmt.Errorf("fsm: the index knows the open run %s, the state does not", k)
	}
	return r, err
}

// closeRun ends an open run with a record. s is nil if the job is gone. The caller writes the state.
func (a *applier) closeRun(k job.RunKey, r *store.Row, s *store.State, rec *store.Record) (uint64, error) {
	if err := a.b.DeleteRun(k, r); err != nil {
		return 0, err
	}
	if s != nil {
		if r.Status == job.RunWaiting && r.Held == job.RunNone {
			s.Waiting--
		} else {
			s.Active--
		}
		// While a leader holds, stamps stand still and a run may end after the last one: retention counts from its end.
		s.Ended(rec.Status, max(a.now, min(rec.EndedAt, maxTime)))
		if !r.Serial && s.Overlap != store.OverlapAllow && (r.Attempt > 0 || !r.Delayed) {
			s.BusyUntil = a.latest() - r.Late
		}
		if err := a.judge(k, s, rec); err != nil {
			return 0, err
		}
	} else {
		rec.Namespace = a.b.Namespace(r.Class)
	}
	a.reply.Ends.Closed(r, rec)
	return a.b.Append(rec, s)
}

// record begins the history record of an attempt of a run.
func (a *applier) record(k job.RunKey, r *store.Row, status job.RunStatus, reason job.Reason) *store.Record {
	a.scratch.record = store.Record{Job: k.Job, At: k.At, Origin: k.Origin, Status: status, Reason: reason,
		Recorded: a.now, Attempt: r.Attempt, Fence: r.Fence, ClaimedAt: r.ClaimedAt, Worker: r.Worker, Ready: r.Ready,
		Version: r.Version, Key: r.Key}
	return &a.scratch.record
}

// stop cancels one open run: at once if no worker has it in hand, otherwise by telling its worker.
func (a *applier) stop(k job.RunKey, s *store.State, reason job.Reason) error {
	r, err := a.row(k)
	if err != nil {
		return err
	}
	switch r.Status {
	case job.RunCanceling:
		return nil
	case job.RunClaimed:
		next := r
		next.Status, next.Cancel = job.RunCanceling, reason
		a.reply.Canceling = append(a.reply.Canceling,
			Canceling{Run: k, Fence: r.Fence, Worker: r.Worker, Incarnation: r.Incarnation})
		return a.b.PutRun(k, &r, &next)
	}
	_, err = a.closeRun(k, &r, s, a.record(k, &r, job.RunCanceled, reason))
	return err
}

func (a *applier) stopAll(id job.ID, s *store.State, reason job.Reason) error {
	for _, ref := range slices.Clone(a.b.Open(id)) {
		if err := a.stop(job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}, s, reason); err != nil {
			return err
		}
	}
	return nil
}

// claimedRow finds the run that a worker has under a fence; a nil row means that it has not. s is nil if the job is
// gone.
func (a *applier) claimedRow(k job.RunKey, fence uint64) (*store.Row, *store.State, store.Place, error) {
	var p store.Place
	var ok bool
	var err error
	row, s := &a.scratch.row, &a.scratch.state
	*row, ok, err = a.b.Run(k)
	if err != nil || !ok || row.Fence != fence && !mutant.On(mutant.SkipFence) ||
		row.Status != job.RunClaimed && row.Status != job.RunCanceling {
		return nil, nil, p, err
	}
	*s, p, ok, err = a.b.State(k.Job)
	if err != nil || !ok {
		s = nil
	}
	return row, s, p, err
}

// after writes a job's state once one of its runs moved on.
func (a *applier) after(id job.ID, s *store.State, p store.Place) error {
	if s == nil {
		return nil
	}
	if err := a.release(id, s, p); err != nil {
		return err
	}
	if err := a.settle(id, s, p); err != nil {
		return err
	}
	return a.b.PutState(id, s, p)
}

// end does what the end of an attempt means for its run.
func (a *applier) end(k job.RunKey, row *store.Row, s *store.State, rec *store.Record, res Result, retry int64) error {
	if row.Status == job.RunCanceling && res != ResultSucceeded { // a late success counts as success
		rec.Status, rec.Reason = job.RunCanceled, row.Cancel
		_, err := a.closeRun(k, row, s, rec)
		return err
	}
	if s == nil && res != ResultSucceeded {
		rec.Status, rec.Reason = job.RunCanceled, job.ReasonDeleted
		_, err := a.closeRun(k, row, s, rec)
		return err
	}
	if res == ResultRetry && once(row, s) {
		res = ResultDead
	}
	switch res {
	case ResultRetry:
		rec.Status = job.RunFailed
		a.reply.Ends.Attempt(row, rec)
		if _, err := a.b.Append(rec, s); err != nil {
			return err
		}
		next := *row
		next.Failures++
		return a.again(k, row, next, s, job.RunRetrying, retry)
	case ResultReturned:
		next := *row
		next.Attempt--
		status := job.RunPending
		if row.Failures > 0 || row.Losses > 0 {
			status = job.RunRetrying
		}
		return a.again(k, row, next, s, status, a.now)
	case ResultDead:
		return a.die(k, row, s, rec)
	case ResultCanceled:
		rec.Status = job.RunCanceled
		if rec.Reason == job.ReasonNone {
			rec.Reason = job.ReasonCanceled
		}
	}
	_, err := a.closeRun(k, row, s, rec)
	return err
}

// once says that an attempt is the only one. What it was claimed with counts, because its worker was told that: an edit
// since then does not reach it.
func once(row *store.Row, s *store.State) bool {
	if mutant.On(mutant.EditedDelivery) {
		return s.AtMostOnce
	}
	return row.AtMostOnce
}

// again puts a run back into the due index, or holds it if its job is paused.
func (a *applier) again(k job.RunKey, old *store.Row, next store.Row, s *store.State, status job.RunStatus,
	ready int64) error {
	next.Status, next.Ready = status, min(max(ready, 0), maxTime)
	next.Worker, next.Incarnation, next.Owner = "", 0, 0
	next.Lane, next.Class, next.AtMostOnce = s.Lane, s.Class, s.AtMostOnce // an edit may have come since the claim
	if holds(s, k.Origin, next.Serial, status) {
		next.Held, next.Status = status, job.RunWaiting
	}
	return a.b.PutRun(k, old, &next)
}

// die ends a run in the dead letters.
func (a *applier) die(k job.RunKey, row *store.Row, s *store.State, rec *store.Record) error {
	rec.Status = job.RunDead
	seq, err := a.closeRun(k, row, s, rec)
	if err != nil {
		return err
	}
	s.Dead++
	return a.b.PutDead(seq, &store.Dead{Run: k, Row: *row, Reason: rec.Reason, DiedAt: rec.Recorded, Error: rec.Error,
		Output: rec.Output})
}

// workerLost is the end of an attempt whose worker fell silent. When it started is known from its heartbeats, or not.
func (a *applier) workerLost(k job.RunKey, row *store.Row, s *store.State, started int64) error {
	rec := a.record(k, row, job.RunFailed, job.ReasonWorkerLost)
	rec.StartedAt, rec.EndedAt = started, a.now
	rec.Error = "the worker " + row.Worker + " was lost"
	switch {
	case row.Status == job.RunCanceling:
		rec.Status, rec.Reason = job.RunCanceled, row.Cancel
	case s == nil:
		rec.Status, rec.Reason = job.RunCanceled, job.ReasonDeleted
	case once(row, s) && !mutant.On(mutant.RepeatOnce):
		rec.Status = job.RunLost
	case row.Losses+1 >= maxLosses:
		return a.die(k, row, s, rec)
	default:
		a.reply.Ends.Attempt(row, rec)
		if _, err := a.b.Append(rec, s); err != nil {
			return err
		}
		next := *row
		next.Losses++
		if mutant.On(mutant.LostWaits) {
			return a.again(k, row, next, s, job.RunRetrying, a.now+2000)
		}
		return a.again(k, row, next, s, job.RunRetrying, a.now)
	}
	_, err := a.closeRun(k, row, s, rec)
	return err
}
