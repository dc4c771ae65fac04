package fsm

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// What a trigger is refused with: what to do about it differs.
const (
	TextOverlap = "a run of this job is open or due, and its overlap policy is skip"
	TextFull    = "too many runs of this job are waiting already"
	TextHold    = "the cluster was restored from a backup and is on hold, so nothing runs"
)

// trigger makes a manual run. Two in one millisecond get different times, also after the first is long finished.
func (a *applier) trigger(c *Trigger) (Outcome, error) {
	id := job.ID(c.Job)
	s, p, ok, err := a.b.State(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if a.b.Info().Hold.On {
		return Outcome{Code: CodeRefused, Job: id, Text: TextHold}, nil
	}
	if s.Quarantined {
		// The scheduler cannot handle it; a run in the due index would bring it straight back to what it could not do.
		return Outcome{Code: CodeRefused, Job: id, Text: "the job is in quarantine; edit or resume it first"}, nil
	}
	delayed := a.behindSerial(id, &s)
	v, err := a.overlap(id, &s, maxTime)
	if err != nil {
		return Outcome{}, err
	}
	if v == start && a.isDue(&s, p) { // an occurrence that waits for a slot is open
		v = a.behindDue(id, &s)
	}
	switch v {
	case refuse:
		return Outcome{Code: CodeRefused, Job: id, Text: TextOverlap}, nil
	case refuseFull:
		return Outcome{Code: CodeRefused, Job: id, Text: TextFull}, nil
	}
	k := job.RunKey{Job: id, At: max(a.now, s.LastManual+1), Origin: job.OriginManual}
	s.LastManual = k.At
	s.ByHand++
	row := store.Row{Status: job.RunPending, Ready: a.now, AtMostOnce: s.AtMostOnce, Lane: s.Lane, Class: s.Class}
	if c.Key != "" {
		row.Key = job.IdempotencyKey(c.Key, c.Name, k)
	}
	o := Outcome{Code: CodeOK, Job: id, Run: k}
	if v == wait {
		row.Status, row.Delayed = job.RunWaiting, delayed
		s.Waiting++
		o.Code = CodeQueued
	} else {
		s.Active++
	}
	if err := a.b.PutRun(k, nil, &row); err != nil {
		return Outcome{}, err
	}
	return o, a.b.PutState(id, &s, p)
}

// behindDue is what becomes of a run by hand while an occurrence is due. Under replace the newer one starts, and the occurrence is recorded
// as replaced when it is looked at.
func (a *applier) behindDue(id job.ID, s *store.State) verdict {
	switch s.Overlap {
	case store.OverlapSkip:
		return refuse
	case store.OverlapQueue:
		if a.tally(id, s).waiting >= job.MaxWaiting {
			return refuseFull
		}
		return wait
	}
	return start
}

// backfill makes runs of past occurrences; they are serialised. What ran, is open or is about to run is left out, with a record.
func (a *applier) backfill(c *Backfill) (Outcome, error) {
	id := job.ID(c.Job)
	s, p, ok, err := a.b.State(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if a.b.Info().Hold.On {
		return Outcome{Code: CodeRefused, Job: id, Text: TextHold}, nil
	}
	if len(c.At)+len(c.Left) > job.MaxBackfill {
		return Outcome{Code: CodeRefused, Job: id, Text: "too many occurrences for one backfill"}, nil
	}
	all := c.all()
	for i := range all {
		if t := all[i].at; t <= 0 || t > a.now {
			return Outcome{Code: CodeRefused, Job: id, Text: "a backfill is of times that have passed"}, nil
		}
	}
	taken, err := a.taken(id, &s, c)
	if err != nil {
		return Outcome{}, err
	}
	next := waiting(&s, p)
	o := Outcome{Code: CodeOK, Job: id}
	var left store.Interval
	for i := range all {
		t := all[i].at
		if all[i].left || taken[t] || next != 0 && t >= next {
			o.Skipped = append(o.Skipped, t)
			left.Add(store.Interval{First: t, Last: t, Count: 1, Status: job.RunSkipped, Reason: job.ReasonAlreadyRan})
			continue
		}
		if err := a.leaveOut(id, &s, &left); err != nil { // an interval has nothing in it that runs
			return Outcome{}, err
		}
		taken[t] = true
		k := job.RunKey{Job: id, At: t, Origin: job.OriginBackfill}
		row := store.Row{Status: job.RunWaiting, Serial: true, AtMostOnce: s.AtMostOnce, Lane: s.Lane, Class: s.Class, Key: all[i].key}
		if err := a.b.PutRun(k, nil, &row); err != nil {
			return Outcome{}, err
		}
		s.Waiting++
		s.ByHand++
		o.Times = append(o.Times, t)
	}
	o.Count = len(o.Times)
	if err := a.leaveOut(id, &s, &left); err != nil {
		return Outcome{}, err
	}
	if err := a.release(id, &s, p); err != nil {
		return Outcome{}, err
	}
	return o, a.b.PutState(id, &s, p)
}

// filled is one occurrence of a backfill.
type filled struct {
	at   int64
	key  string
	left bool // the proposer leaves it out
}

// all are the occurrences of a backfill, in the order of their times if some are left out: a record of those must not span one that runs.
func (c *Backfill) all() []filled {
	out := make([]filled, 0, len(c.At)+len(c.Left))
	for i, t := range c.At {
		out = append(out, filled{at: t, key: at(c.Keys, i)})
	}
	if len(c.Left) == 0 {
		return out
	}
	for _, t := range c.Left {
		out = append(out, filled{at: t, left: true})
	}
	slices.SortStableFunc(out, func(a, b filled) int { return cmp.Compare(a.at, b.at) })
	return out
}

// taken are the times that a backfill leaves out: open ones, and, unless it is forced, those that ran since the proposer looked. The
// map is only ever looked up.
func (a *applier) taken(id job.ID, s *store.State, c *Backfill) (map[int64]bool, error) {
	taken := map[int64]bool{}
	for _, ref := range a.b.Open(id) {
		if ref.Origin != job.OriginManual {
			taken[ref.At] = true
		}
	}
	for seq := s.HistHead; seq > c.SeenHead && !c.Force; {
		rec, ok, err := a.b.Record(seq)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if rec.Attempt > 0 && rec.Origin != job.OriginManual {
			taken[rec.At] = true
		}
		seq = rec.Prev
	}
	return taken, nil
}

// leaveOut writes a record of its own: these occurrences are accounted for already, and the interval in the state is about those
// that are not.
func (a *applier) leaveOut(id job.ID, s *store.State, left *store.Interval) error {
	if left.Empty() {
		return nil
	}
	_, err := a.b.Append(&store.Record{Job: id, Recorded: a.now, Interval: *left}, s)
	*left = store.Interval{}
	return err
}

func (a *applier) cancel(c *Cancel) (Outcome, error) {
	id := job.ID(c.Job)
	st, p, ok, err := a.b.State(id)
	if err != nil {
		return Outcome{}, err
	}
	s := &st
	if !ok {
		s = nil
	}
	o := Outcome{Code: CodeOK, Job: id}
	if c.All {
		if s == nil {
			return Outcome{Code: CodeNotFound}, nil
		}
		o.Count = len(a.b.Open(id))
		if err = a.stopAll(id, s, job.ReasonCanceled); err == nil && s.OneOff {
			p, err = a.cancelOneOff(id, s, p, &o)
		}
	} else {
		k := job.RunKey{Job: id, At: c.At, Origin: job.Origin(c.Origin)}
		if _, ok, err := a.b.Run(k); err != nil || !ok {
			return Outcome{Code: CodeNotFound}, err
		}
		o.Run, o.Count = k, 1
		err = a.stop(k, s, job.ReasonCanceled)
	}
	if err != nil {
		return Outcome{}, err
	}
	return o, a.after(id, s, p)
}

// cancelOneOff takes the only occurrence that a one-off job has before it. That of a recurring job stays: what is canceled is what is
// there now, and the job goes on.
func (a *applier) cancelOneOff(id job.ID, s *store.State, p store.Place, o *Outcome) (store.Place, error) {
	at := waiting(s, p)
	if at == 0 {
		return p, nil
	}
	i := store.Interval{First: at, Last: at, Count: 1, Status: job.RunCanceled, Reason: job.ReasonCanceled}
	// The last nominal time must not go ahead: an edit could not give the job a time before it, and it would be silent until then.
	last := s.LastNominal
	if err := a.notRun(id, s, i); err != nil {
		return p, err
	}
	if at > a.now {
		s.LastNominal = last
	}
	o.Count++
	s.Gen++ // whoever computed something from that occurrence must look again
	s.ParkedAt, s.ParkedReady = 0, 0
	s.LastStatus, s.LastAt = job.RunCanceled, a.now
	return store.Place{Parked: true}, a.flush(id, s)
}

// redrive puts dead letters back to work: the same run, with its key and its count of attempts, and a fresh retry budget.
func (a *applier) redrive(c *Redrive) (Outcome, error) {
	if a.b.Info().Hold.On {
		return Outcome{Code: CodeRefused, Text: TextHold}, nil
	}
	o := Outcome{Code: CodeOK, Version: uint64(len(c.Seqs))}
	for _, seq := range c.Seqs {
		d, ok, err := a.b.Dead(seq)
		if err != nil {
			return Outcome{}, err
		}
		if !ok {
			continue
		}
		s, p, ok, err := a.b.State(d.Run.Job)
		if err != nil {
			return Outcome{}, err
		}
		_, open, err := a.b.Run(d.Run)
		if err != nil {
			return Outcome{}, err
		}
		if !ok || open {
			continue // the job is gone, or the same occurrence is being run again already
		}
		row := d.Row
		row.Status, row.Held, row.Cancel = job.RunWaiting, job.RunNone, job.ReasonNone
		row.Serial, row.Delayed = s.Overlap != store.OverlapAllow, false
		row.Failures, row.Losses = 0, 0
		row.Worker, row.Incarnation, row.Owner = "", 0, 0
		row.Lane, row.Class, row.AtMostOnce = s.Lane, s.Class, s.AtMostOnce
		if err := a.b.PutRun(d.Run, nil, &row); err != nil {
			return Outcome{}, err
		}
		s.Waiting++
		s.Dead -= min(s.Dead, 1)
		if err := a.b.DeleteDead(seq); err != nil {
			return Outcome{}, err
		}
		if err := a.after(d.Run.Job, &s, p); err != nil {
			return Outcome{}, err
		}
		o.Count++
	}
	return o, nil
}

func (a *applier) purge(c *Purge) (Outcome, error) {
	o := Outcome{Code: CodeOK, Version: uint64(len(c.Seqs))}
	for _, seq := range c.Seqs {
		d, ok, err := a.b.Dead(seq)
		if err != nil {
			return Outcome{}, err
		}
		if !ok {
			continue
		}
		if err := a.b.DeleteDead(seq); err != nil {
			return Outcome{}, err
		}
		o.Count++
		s, p, ok, err := a.b.State(d.Run.Job)
		if err != nil {
			return Outcome{}, err
		}
		if ok {
			s.Dead -= min(s.Dead, 1)
			if err := a.b.PutState(d.Run.Job, &s, p); err != nil {
				return Outcome{}, err
			}
		}
	}
	return o, nil
}
