package fsm

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/mutant"
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
		s.LastStatus, s.LastAt = rec.Status, a.now
		if !r.Serial && !r.Delayed && s.Overlap != store.OverlapAllow {
			s.BusyUntil = a.now
		}
		if err := a.judge(k, s, rec); err != nil {
			return 0, err
		}
	}
	return a.b.Append(rec, s)
}

// record begins the history record of an attempt of a run.
func (a *applier) record(k job.RunKey, r *store.Row, status job.RunStatus, reason job.Reason) *store.Record {
	a.scratch.record = store.Record{Job: k.Job, At: k.At, Origin: k.Origin, Status: status, Reason: reason, Recorded: a.now,
		Attempt: r.Attempt, Fence: r.Fence, ClaimedAt: r.ClaimedAt, Worker: r.Worker, Ready: r.Ready, Version: r.Version, Key: r.Key}
	return &a.scratch.record
}

// stop cancels one open run: at once if nobody has it in hand, otherwise by telling its worker.
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
		a.reply.Canceling = append(a.reply.Canceling, Canceling{Run: k, Fence: r.Fence, Worker: r.Worker, Incarnation: r.Incarnation})
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

// occurrenceClaim is what a claim says of an occurrence beside its key.
type occurrenceClaim struct {
	next   When
	late   Gap // what became due behind it while it waited, and does not run
	worker WorkerRef
	terms  terms
	key    string
	flags  byte
}

func (a *applier) claim(c *Claim) error {
	late := c.Late
	for i := range c.Jobs {
		key := store.DueKey{Lane: job.Lane(c.Lane[i]), Ready: c.Ready[i], Job: job.ID(c.Jobs[i]),
			Kind: store.Kind(c.Kind[i] >> 4), Origin: job.Origin(c.Kind[i] & 15), At: c.At[i]}
		var o Outcome
		var err error
		w := c.Workers[c.Worker[i]]
		terms := terms{c.Gen[i], c.Timeout[i], c.Version[i]}
		if w.Name == "" {
			a.outcome(Outcome{Code: CodeRefused, Text: "a claim is for somebody"})
			continue
		}
		if key.Kind == store.KindOccurrence {
			item := occurrenceClaim{next: When{c.Next[i], c.NextReady[i]}, worker: w, key: at(c.Keys, i), flags: at(c.Flags, i), terms: terms}
			for len(late) > 0 && int(late[0].Item) < i {
				late = late[1:]
			}
			if len(late) > 0 && int(late[0].Item) == i {
				item.late = late[0].Gap
			}
			o, err = a.claimOccurrence(key, &item)
		} else {
			o, err = a.claimOpen(key, w, terms)
		}
		if err != nil {
			return err
		}
		a.outcome(o)
	}
	return nil
}

// terms are what an attempt is started with, and the generation of the job that they were read from.
type terms struct {
	gen     uint32
	timeout int64 // ms
	version uint64
}

func (a *applier) claimOccurrence(key store.DueKey, c *occurrenceClaim) (Outcome, error) {
	id, next := key.Job, c.next
	s, p, ok, err := a.b.State(id)
	if err != nil {
		return Outcome{}, err
	}
	if !ok || p.Parked || p.Due(id) != key || s.Gen != c.terms.gen && !mutant.On(mutant.IgnoreGen) || key.At <= s.LastNominal || next.At != 0 && next.At <= key.At {
		return Outcome{Code: CodeStale}, nil
	}
	if s.Overlap != store.OverlapAllow && s.Overlap != store.OverlapQueue && next.At != 0 && next.Ready <= a.now && c.flags&ClaimDue == 0 && !mutant.On(mutant.JudgeBySlot) {
		return Outcome{Code: CodeStale}, nil // the claim disposes of all that is due
	}
	if why := wrong(next, c.late, key.At); why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	if why := a.noRoom(s.Class); why != "" {
		return Outcome{Code: CodeBusy, Text: why}, nil
	}
	v, late, delayed := refuse, c.late.interval(), a.behindSerial(id, &s)
	switch {
	case !canStart(&s) || !a.overlaps(&s, key.Ready):
		if v, err = a.overlap(id, &s, key.Ready); err != nil {
			return Outcome{}, err
		}
	case !late.Empty():
		return Outcome{Code: CodeStale}, nil // what is behind it may have become due when nothing was open any more
	}
	if c.flags&ClaimLast != 0 && (v == start || v == wait) && !mutant.On(mutant.InventNext) {
		next, late = When{}, store.Interval{} // it counts; what follows would be occurrences that do not exist
	}
	k := key.Run()
	o := Outcome{Run: k, Key: c.key}
	row := store.Row{AtMostOnce: s.AtMostOnce, Lane: s.Lane, Class: s.Class, Ready: key.Ready, Key: c.key}
	switch v {
	case start:
		o.Code = CodeClaimed
		a.give(&row, c.worker, c.terms, &o)
		s.Active++
		s.Runs++
		err = a.b.PutRun(k, nil, &row)
	case wait:
		o.Code = CodeQueued
		row.Status, row.Delayed = job.RunWaiting, delayed
		s.Waiting++
		s.Runs++
		err = a.b.PutRun(k, nil, &row)
	default:
		o.Code = CodeSkipped
		gap := store.Interval{First: key.At, Last: key.At, Count: 1}
		gap.Status, gap.Reason = v.reason()
		late.Status, late.Reason = gap.Status, gap.Reason
		gap.Add(late)
		late = store.Interval{}
		err = a.notRun(id, &s, gap)
	}
	if err != nil {
		return Outcome{}, err
	}
	if !late.Empty() {
		if err := a.flush(id, &s); err != nil {
			return Outcome{}, err
		}
		s.LastNominal = key.At
		if err := a.notRun(id, &s, late); err != nil {
			return Outcome{}, err
		}
		return o, a.moveOn(key, &s, next, false)
	}
	return o, a.moveOn(key, &s, next, o.Code != CodeSkipped)
}

// give makes a row a claim: a new fence, higher than any before it. The row keeps what the attempt is started with, so that the next
// leader holds it to that and not to what an edit made of the job since.
func (a *applier) give(row *store.Row, w WorkerRef, t terms, o *Outcome) {
	a.b.C.Fence++
	row.Status, row.Held = job.RunClaimed, job.RunNone
	row.Attempt++
	row.Fence = a.b.C.Fence
	row.ClaimedAt = a.now
	row.Worker, row.Incarnation, row.Owner = w.Name, w.Incarnation, w.Owner
	row.Timeout, row.Version = t.timeout, t.version
	o.Fence, o.Attempt = row.Fence, row.Attempt
}

// claimOpen claims a run that is open already: a retry, or a manual, backfill, redriven or released one. The job's own state
// does not change: the run was counted when it was opened. It is read all the same: an assignment that was made from an earlier
// definition must not be sent.
func (a *applier) claimOpen(key store.DueKey, w WorkerRef, t terms) (Outcome, error) {
	k := key.Run()
	row, ok, err := a.b.Run(k)
	if err != nil {
		return Outcome{}, err
	}
	due, has := row.Due(k)
	if !ok || !has || due != key {
		return Outcome{Code: CodeStale}, nil
	}
	s, _, ok, err := a.b.State(k.Job)
	if err != nil {
		return Outcome{}, err
	}
	if !ok || s.Gen != t.gen && !mutant.On(mutant.IgnoreGen) {
		return Outcome{Code: CodeStale}, nil
	}
	if why := a.noRoom(row.Class); why != "" {
		return Outcome{Code: CodeBusy, Text: why}, nil
	}
	o := Outcome{Code: CodeClaimed, Run: k, Key: row.Key}
	next := row
	a.give(&next, w, t, &o)
	return o, a.b.PutRun(k, &row, &next)
}

func (a *applier) complete(c *Complete) error {
	for i := range c.Jobs {
		k := job.RunKey{Job: job.ID(c.Jobs[i]), At: c.At[i], Origin: job.Origin(c.Origin[i])}
		row, s, p, err := a.held(k, c.Fence[i])
		if err != nil {
			return err
		}
		if row == nil {
			a.outcome(Outcome{Code: CodeStale, Run: k})
			continue
		}
		if res := Result(c.Result[i]); res < ResultSucceeded || res > ResultReturned {
			a.outcome(Outcome{Code: CodeRefused, Run: k, Text: "there is no such result"})
			continue
		}
		rec := a.record(k, row, job.RunSucceeded, job.Reason(c.Reason[i]))
		rec.StartedAt, rec.EndedAt = c.Started[i], c.Ended[i]
		rec.Error, rec.Output = at(c.Error, i), at(c.Output, i)
		if err := a.end(k, row, s, rec, Result(c.Result[i]), c.RetryAt[i]); err != nil {
			return err
		}
		if err := a.after(k.Job, s, p); err != nil {
			return err
		}
		a.outcome(Outcome{Code: CodeOK, Run: k})
	}
	return nil
}

// held finds the run that a worker has under a fence; a nil row means that it has not. s is nil if the job is gone.
func (a *applier) held(k job.RunKey, fence uint64) (*store.Row, *store.State, store.Place, error) {
	var p store.Place
	var ok bool
	var err error
	row, s := &a.scratch.row, &a.scratch.state
	*row, ok, err = a.b.Run(k)
	if err != nil || !ok || row.Fence != fence && !mutant.On(mutant.SkipFence) && !mutant.On(mutant.PullLate) || row.Status != job.RunClaimed && row.Status != job.RunCanceling {
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
func (a *applier) end(k job.RunKey, row *store.Row, s *store.State, rec *store.Record, res Result, retryAt int64) error {
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
	if row.AtMostOnce && res == ResultRetry {
		res = ResultDead
	}
	switch res {
	case ResultRetry:
		rec.Status = job.RunFailed
		if _, err := a.b.Append(rec, s); err != nil {
			return err
		}
		next := *row
		next.Failures++
		return a.again(k, row, next, s, job.RunRetrying, retryAt)
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

// again puts a run back into the due index, or holds it if its job is paused.
func (a *applier) again(k job.RunKey, old *store.Row, next store.Row, s *store.State, status job.RunStatus, ready int64) error {
	next.Status, next.Ready = status, min(max(ready, 0), maxTime)
	next.Worker, next.Incarnation, next.Owner = "", 0, 0
	next.Lane, next.Class, next.AtMostOnce = s.Lane, s.Class, s.AtMostOnce // an edit may have come since the claim
	if s.Paused || s.Quarantined {
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
	return a.b.PutDead(seq, &store.Dead{Run: k, Row: *row, Reason: rec.Reason, DiedAt: a.now, Error: rec.Error, Output: rec.Output})
}

func (a *applier) expire(c *Expire) error {
	for i := range c.Jobs {
		k := job.RunKey{Job: job.ID(c.Jobs[i]), At: c.At[i], Origin: job.Origin(c.Origin[i])}
		row, s, p, err := a.held(k, c.Fence[i])
		if err != nil {
			return err
		}
		if row == nil {
			a.outcome(Outcome{Code: CodeStale, Run: k})
			continue
		}
		if err := a.lose(k, row, s); err != nil {
			return err
		}
		if err := a.after(k.Job, s, p); err != nil {
			return err
		}
		a.outcome(Outcome{Code: CodeOK, Run: k})
	}
	return nil
}

// lose is the end of an attempt whose worker fell silent.
func (a *applier) lose(k job.RunKey, row *store.Row, s *store.State) error {
	rec := a.record(k, row, job.RunFailed, job.ReasonWorkerLost)
	rec.EndedAt = a.now
	rec.Error = "the worker " + row.Worker + " was lost"
	switch {
	case row.Status == job.RunCanceling:
		rec.Status, rec.Reason = job.RunCanceled, row.Cancel
	case s == nil:
		rec.Status, rec.Reason = job.RunCanceled, job.ReasonDeleted
	case row.AtMostOnce && !mutant.On(mutant.RepeatOnce):
		rec.Status = job.RunLost
	case row.Losses+1 >= maxLosses:
		return a.die(k, row, s, rec)
	default:
		if _, err := a.b.Append(rec, s); err != nil {
			return err
		}
		next := *row
		next.Losses++
		return a.again(k, row, next, s, job.RunRetrying, a.now)
	}
	_, err := a.closeRun(k, row, s, rec)
	return err
}
