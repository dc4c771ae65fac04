package fsm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// maxClasses bounds how many kinds of work there are: each has a line of its own in the leader's memory.
const maxClasses = 1 << 16

func (a *applier) create(c *Create) error {
	for i := range c.Items {
		it := &c.Items[i]
		if err := a.once(it.Request, func() (Outcome, error) { return a.createOne(it) }); err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) createOne(it *CreateItem) (Outcome, error) {
	id := job.ID(it.Job)
	def, err := store.DecodeDefinition(it.Def)
	if err != nil {
		return Outcome{}, err
	}
	if it.Job <= a.b.C.NextJob {
		return Outcome{Code: CodeStale, Text: "the number was given out before"}, nil
	}
	if why := wrong(it.Next, Gap{}, 0); why != "" {
		return Outcome{Code: CodeRefused, Text: why}, nil
	}
	if why := a.unfit(&def.Spec); why != "" {
		return Outcome{Code: CodeRefused, Text: why}, nil
	}
	if def.Spec.Name != "" {
		if other, taken := a.b.Named(def.Spec.Name); taken {
			return a.sameJob(other, &def.Spec)
		}
	}
	s := store.State{Gen: 1}
	if err := a.adopt(&s, &def.Spec); err != nil {
		return Outcome{}, err
	}
	a.b.C.NextJob = it.Job
	a.b.C.Jobs++
	if def.Spec.Name != "" {
		if err := a.b.PutName(def.Spec.Name, id); err != nil {
			return Outcome{}, err
		}
	}
	if err := a.b.PutDefinition(id, it.Def); err != nil {
		return Outcome{}, err
	}
	p := place(&s, it.Next)
	if err := a.settle(id, &s, p); err != nil { // a one-off that has no time to run at
		return Outcome{}, err
	}
	return Outcome{Code: CodeOK, Job: id, Version: def.Version}, a.b.PutState(id, &s, p)
}

// unfit says why a definition cannot be stored; "" if it can.
func (a *applier) unfit(spec *job.Spec) string {
	if len(spec.Name) > job.MaxName {
		return "the name is too long"
	}
	if a.b.ClassCount() >= maxClasses && !a.b.KnownClass(spec.Class()) {
		return "too many different worker selectors and queues"
	}
	return ""
}

// sameJob answers a create whose name is taken: it is a repetition if the two say the same.
func (a *applier) sameJob(other job.ID, spec *job.Spec) (Outcome, error) {
	def, ok, err := a.b.Definition(other)
	if err != nil || !ok {
		return Outcome{}, errors.Join(err, fmt.Errorf("fsm: the name of %s leads nowhere", other))
	}
	x, err := encodeSpec(&def.Spec)
	if err != nil {
		return Outcome{}, err
	}
	y, err := encodeSpec(spec)
	if err != nil {
		return Outcome{}, err
	}
	if bytes.Equal(x, y) {
		return Outcome{Code: CodeExists, Job: other, Version: def.Version}, nil
	}
	return Outcome{Code: CodeDuplicate, Job: other}, nil
}

func encodeSpec(s *job.Spec) ([]byte, error) {
	var b []byte
	err := codec.NewEncoderBytes(&b, handle).Encode(s)
	return b, err
}

// adopt takes over into the state what claim and complete need to know of a definition.
func (a *applier) adopt(s *store.State, spec *job.Spec) error {
	class, err := a.b.Class(spec.Class())
	if err != nil {
		return err
	}
	lane, _ := job.LaneOf(spec.Priority)
	s.Class = class
	s.Lane = lane
	s.Overlap = store.OverlapOf(spec.Overlap)
	s.Concurrency = uint16(min(spec.Concurrency, 1<<16-1))
	s.OneOff = spec.OneOff()
	s.Manual = spec.Manual()
	s.AtMostOnce = spec.Delivery == job.DeliverAtMostOnce
	s.Notify = store.NotifyOnOf(spec.Notify)
	s.Retention = uint32(min(int64(spec.Retention)/1e9, 1<<32-1))
	return nil
}

func (a *applier) update(c *Update) (Outcome, error) {
	id := job.ID(c.Job)
	old, ok, err := a.b.Definition(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if old.Version != c.Version {
		return Outcome{Code: CodeConflict, Job: id, Version: old.Version}, nil
	}
	def, err := store.DecodeDefinition(c.Def)
	if err != nil {
		return Outcome{}, err
	}
	s, p, ok, err := a.b.State(id)
	if err != nil {
		return Outcome{}, err
	}
	if !ok {
		return Outcome{}, fmt.Errorf("fsm: %s has no state", id)
	}
	// The proposer computed Next and Dropped from what it read. If a claim, a pause or another edit came in between, that is
	// no longer what the edit starts from: an occurrence would be lost or repeated.
	if !seen(&s, p, c.Seen) || def.Version != c.Version+1 || c.Next.At != 0 && c.Next.At <= s.LastNominal {
		return Outcome{Code: CodeMoved, Job: id}, nil
	}
	if why := wrong(c.Next, c.Dropped, s.LastNominal); why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	if why := wrongAfter(def.Spec.OneOff(), c.Next, c.After, s.LastNominal); why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	if def.Spec.Name != old.Spec.Name && def.Spec.Name != "" {
		if other, taken := a.b.Named(def.Spec.Name); taken {
			return Outcome{Code: CodeDuplicate, Job: other}, nil
		}
	}
	if why := a.unfit(&def.Spec); why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	if def.Spec.Name != old.Spec.Name {
		if old.Spec.Name != "" {
			if err := a.b.DeleteName(old.Spec.Name, id); err != nil {
				return Outcome{}, err
			}
		}
		if def.Spec.Name != "" {
			if err := a.b.PutName(def.Spec.Name, id); err != nil {
				return Outcome{}, err
			}
		}
	}
	if err := a.b.PutDefinition(id, c.Def); err != nil {
		return Outcome{}, err
	}
	s.Gen++
	before := s
	if err := a.adopt(&s, &def.Spec); err != nil {
		return Outcome{}, err
	}
	if err := a.forget(id, &s, &before); err != nil {
		return Outcome{}, err
	}
	if at := waiting(&s, p); !c.After.covers(at) {
		if err := a.account(id, &s, at, c.Next, c.Dropped, stopReason(&s)); err != nil {
			return Outcome{}, err
		}
	}
	if err := a.notRun(id, &s, c.Dropped.interval()); err != nil {
		return Outcome{}, err
	}
	if err := a.flush(id, &s); err != nil {
		return Outcome{}, err
	}
	if c.After.Count != 0 { // straight into the history: the last nominal time must not pass the next occurrence
		if _, err := a.b.Append(&store.Record{Job: id, Recorded: a.now, Interval: c.After.interval()}, &s); err != nil {
			return Outcome{}, err
		}
	}
	if s.Paused || s.Quarantined {
		s.ParkedAt, s.ParkedReady = c.Next.At, c.Next.Ready
	}
	a.b.Reclassed(before.Class, s.Class)
	if s.Lane != before.Lane || s.Class != before.Class || s.AtMostOnce != before.AtMostOnce {
		if err := a.follow(id, &s); err != nil {
			return Outcome{}, err
		}
	}
	next := place(&s, c.Next)
	if err := a.release(id, &s, next); err != nil { // a looser overlap or concurrency lets waiting runs start
		return Outcome{}, err
	}
	if err := a.settle(id, &s, next); err != nil {
		return Outcome{}, err
	}
	return Outcome{Code: CodeOK, Job: id, Version: def.Version}, a.b.PutState(id, &s, next)
}

// follow makes runs that nobody has in hand follow an edit: what they are given to a worker with is the definition of that moment,
// so lane, class and delivery must be of the same one.
func (a *applier) follow(id job.ID, s *store.State) error {
	for _, ref := range a.b.Open(id) {
		if ref.Status == job.RunClaimed || ref.Status == job.RunCanceling {
			continue
		}
		k := job.RunKey{Job: id, At: ref.At, Origin: ref.Origin}
		row, err := a.row(k)
		if err != nil {
			return err
		}
		next := row
		next.Lane, next.Class, next.AtMostOnce = s.Lane, s.Class, s.AtMostOnce
		if next == row {
			continue
		}
		if next.Class != row.Class {
			next.Ready++ // a claim on its way has picked a worker of the old class: its key must no longer be this one
		}
		if err := a.b.PutRun(k, &row, &next); err != nil {
			return err
		}
	}
	return nil
}

// delete removes the job and everything of it that has not started, in one step; what a worker has in hand is told to stop
// and is recorded when it does.
func (a *applier) delete(c *Delete) (Outcome, error) {
	id := job.ID(c.Job)
	def, ok, err := a.b.Definition(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if c.Version != 0 && c.Version != def.Version {
		return Outcome{Code: CodeConflict, Job: id, Version: def.Version}, nil
	}
	s, p, ok, err := a.b.State(id)
	if err != nil {
		return Outcome{}, err
	}
	if !ok {
		return Outcome{}, fmt.Errorf("fsm: %s has no state", id)
	}
	if err := a.stopAll(id, &s, job.ReasonDeleted); err != nil {
		return Outcome{}, err
	}
	if at := waiting(&s, p); at != 0 && at <= a.now {
		// Those after it that have passed as well are not known here, unless the proposer saw the same one: at least this one.
		due := store.Interval{First: at, Last: at, Count: 1, AtLeast: !s.OneOff}
		if g := c.NotRun; g.Count > 0 && g.First == at && g.Last >= at && g.Last <= a.now {
			due.Last, due.Count, due.AtLeast = g.Last, g.Count, g.AtLeast
		}
		due.Status, due.Reason = job.RunCanceled, job.ReasonDeleted
		if s.Paused || s.Quarantined {
			due.Status, due.Reason = job.RunSkipped, stopReason(&s)
		}
		if err := a.notRun(id, &s, due); err != nil {
			return Outcome{}, err
		}
	}
	if err := a.remove(id, &s, def.Spec.Name); err != nil {
		return Outcome{}, err
	}
	return Outcome{Code: CodeOK, Job: id}, nil
}

// remove takes the job out of the state; open runs that are canceling stay until they close.
func (a *applier) remove(id job.ID, s *store.State, name string) error {
	if err := a.flush(id, s); err != nil {
		return err
	}
	if name != "" {
		if err := a.b.DeleteName(name, id); err != nil {
			return err
		}
	}
	if err := a.b.DeleteDefinition(id); err != nil {
		return err
	}
	if s.Notify != 0 {
		if err := a.b.DropNotices(id); err != nil {
			return err
		}
	}
	a.b.C.Jobs--
	return a.b.DeleteState(id)
}

func (a *applier) pause(c *Pause) (Outcome, error) {
	id := job.ID(c.Job)
	s, p, ok, err := a.b.State(id)
	if err != nil || !ok {
		return Outcome{Code: CodeNotFound}, err
	}
	if s.Paused {
		return Outcome{Code: CodeOK, Job: id}, nil
	}
	s.Paused = true
	return Outcome{Code: CodeOK, Job: id}, a.park(id, &s, p)
}

// park stops a job: its occurrence waits in the parked entry and what is pending or retrying is held, so that nothing of it
// can be claimed. What a worker has in hand goes on.
func (a *applier) park(id job.ID, s *store.State, p store.Place) error {
	s.Gen++
	if !p.Parked {
		s.ParkedAt, s.ParkedReady = p.At, p.Ready
	}
	for _, ref := range a.b.Open(id) {
		if ref.Status != job.RunPending && ref.Status != job.RunRetrying {
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
	return a.b.PutState(id, s, store.Place{Parked: true})
}

func (a *applier) resume(c *Resume) (Outcome, error) {
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
	if err := a.account(id, &s, s.ParkedAt, c.Next, c.NotRun, stopReason(&s)); err != nil {
		return Outcome{}, err
	}
	s.Paused, s.Quarantined = false, false
	s.ParkedAt, s.ParkedReady = 0, 0
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

func (a *applier) quarantine(c *Quarantine) error {
	id := job.ID(c.Job)
	s, p, ok, err := a.b.State(id)
	if err != nil {
		return err
	}
	if !ok || s.Gen != c.Gen || s.Quarantined {
		a.outcome(Outcome{Code: CodeStale})
		return nil
	}
	s.Quarantined = true
	if err := a.b.PutNote(id, c.Why); err != nil {
		return err
	}
	// Nothing of it runs until somebody looks at it, which somebody must be told.
	if err := a.failed(&s, &store.Notice{Job: id, At: a.now, Reason: job.ReasonQuarantined, Error: head(c.Why)}); err != nil {
		return err
	}
	a.outcome(Outcome{Code: CodeOK, Job: id})
	return a.park(id, &s, p)
}

func (a *applier) cleanup(c *Cleanup) error {
	for i := range c.Jobs {
		o, err := a.cleanupOne(store.DueKey{Lane: job.Lane(c.Lane[i]), Ready: c.Ready[i], Job: job.ID(c.Jobs[i]), Kind: store.KindCleanup}, c.Later)
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
	return done, a.remove(k.Job, &s, def.Spec.Name)
}
