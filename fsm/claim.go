package fsm

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// WorkerRef names the worker that a claim is for.
type WorkerRef struct {
	Name        string `codec:"n"`
	Incarnation uint64 `codec:"i"`
	Owner       uint64 `codec:"o,omitempty"` // store.Row.Owner
}

// Claim gives runs to workers. Columns: item i is (Lane[i], Ready[i], Jobs[i], Kind[i], At[i]), a key of the due index.
type Claim struct {
	Head      `codec:"h"`
	Workers   []WorkerRef `codec:"w"`
	Lane      []byte      `codec:"l"`
	Kind      []byte      `codec:"k"` // store.Kind<<4 | job.Origin
	Ready     Times       `codec:"r"`
	Jobs      Numbers     `codec:"j"`
	At        Times       `codec:"a"`
	Gen       Gens        `codec:"g"` // the generation that Next, Timeout and Version belong to
	Next      Times       `codec:"n"` // occurrences: the next nominal time; 0 = none
	NextReady Times       `codec:"x"`
	Worker    Indexes     `codec:"o"`           // index into Workers
	Timeout   Times       `codec:"t"`           // what the attempt is started with, ms: a later edit does not reach it
	Version   Numbers     `codec:"v"`           // of the definition that the assignment is made from
	Keys      []string    `codec:"e"`           // empty, or one a run: its idempotency key if not the default
	Flags     []byte      `codec:"f,omitempty"` // empty, or one a run
	Late      []Late      `codec:"s,omitempty"` // in the order of their items
}

// Late is what became due behind an occurrence while that waited for a slot, and does not run. Unless overlap is allow
// or queue, a claim disposes of all that is due.
type Late struct {
	Item uint16 `codec:"i"`
	Gap  Gap    `codec:"g"`
}

// What a claim may say of an occurrence.
const (
	// ClaimLast: the run is the last one by max_runs, if it becomes a run: then nothing follows. Next is for the case
	// that the overlap policy skips it, which only apply knows.
	ClaimLast = 1
	// ClaimDue: the next occurrence is due already, and is left to be looked at by itself: it is in a blackout, or fell
	// into an outage.
	ClaimDue = 2
)

func (c *Claim) items() int      { return len(c.Jobs) }
func (*Claim) stopsOnHold() bool { return true }

func (c *Claim) check() error {
	n := len(c.Jobs)
	if err := sameLength(n, len(c.Lane), len(c.Kind), len(c.Ready), len(c.At), len(c.Gen), len(c.Next),
		len(c.NextReady), len(c.Worker), len(c.Timeout), len(c.Version)); err != nil {
		return err
	}
	for _, w := range c.Worker {
		if int(w) >= len(c.Workers) {
			return fmt.Errorf("fsm: claim: worker %d of %d", w, len(c.Workers))
		}
	}
	return optional(n, len(c.Keys), len(c.Flags))
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

func (c *Claim) apply(a *applier) error {
	late := c.Late
	for i := range c.Jobs {
		key := store.DueKey{Lane: job.Lane(c.Lane[i]), Ready: c.Ready[i], Job: job.ID(c.Jobs[i]),
			Kind: store.Kind(c.Kind[i] >> 4), Origin: job.Origin(c.Kind[i] & 15), At: c.At[i]}
		var o Outcome
		var err error
		w := c.Workers[c.Worker[i]]
		terms := terms{c.Gen[i], c.Timeout[i], c.Version[i]}
		if w.Name == "" || a.b.C.Fence >= 1<<FenceBits-1 {
			a.outcome(Outcome{Code: CodeRefused,
				Text: "a claim names a worker and has a fence, of which none may be left"})
			continue
		}
		if key.Kind == store.KindOccurrence {
			item := occurrenceClaim{next: When{c.Next[i], c.NextReady[i]}, worker: w, key: at(c.Keys, i),
				flags: at(c.Flags, i), terms: terms}
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
	if !ok || p.Parked || p.Due(id) != key || s.Gen != c.terms.gen && !mutant.On(mutant.IgnoreGen) ||
		key.At <= s.LastNominal || next.At != 0 && next.At <= key.At {
		return Outcome{Code: CodeStale}, nil
	}
	if s.Overlap != store.OverlapAllow && s.Overlap != store.OverlapQueue && next.At != 0 && next.Ready <= a.now &&
		c.flags&ClaimDue == 0 && !mutant.On(mutant.JudgeBySlot) {
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
		if err := a.giveWay(id, &s); err != nil {
			return Outcome{}, err
		}
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

// FenceBits is how many bits a fence has: many readers of JSON lose digits of a number above 2^53. Fences order the
// claims of one group; the group is not in them.
const FenceBits = 53

// give makes a row a claim: a new fence, higher than any before it. The row keeps what the attempt is started with, so
// that the next leader holds it to that and not to what an edit made of the job since.
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

// claimOpen claims a run that is open already: a retry, or a manual, backfill, redriven or released one. The run was
// counted in the job's state when it was opened. That is read all the same: an assignment that was made from an earlier
// definition must not be sent, and a serial run may have waited too long for its slot.
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
	s, p, ok, err := a.b.State(k.Job)
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
	if row.Serial && row.Status == job.RunPending { // a retry goes on at once; what was redriven has attempts too
		if !a.fits(&s, p) { // it waited for a slot, and would be in the way of the next occurrence now
			passOver(&s)
			o.Code = CodeQueued
			if err := a.putOff(k, &row, &s); err != nil {
				return Outcome{}, err
			}
			return o, a.b.PutState(k.Job, &s, p)
		}
		if s.PassedOver != 0 {
			s.PassedOver = 0
			if err := a.b.PutState(k.Job, &s, p); err != nil {
				return Outcome{}, err
			}
		}
	}
	next := row
	a.give(&next, w, t, &o)
	return o, a.b.PutRun(k, &row, &next)
}
