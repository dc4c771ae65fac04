package fsm

import (
	"cmp"
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Advance moves occurrences on without running them (missed, blackout, expired), or closes a pending run that expired.
type Advance struct {
	Head      `codec:"h"`
	Lane      []byte  `codec:"l"`
	Kind      []byte  `codec:"k"`
	Ready     Times   `codec:"r"`
	Jobs      Numbers `codec:"j"`
	At        Times   `codec:"a"`
	Gen       Gens    `codec:"g"`
	Next      Times   `codec:"n"`
	NextReady Times   `codec:"x"`
	Gaps      []Gap   `codec:"p"` // what does not run; Count 0: nothing (the run at Next is the same occurrence moved)
	// Rows are the runs of run_all between the interval and the next occurrence, in the order of the items and of their
	// times. They wait for the gaps of the live schedule.
	Rows []CatchUp `codec:"c,omitempty"`
}

// CatchUp is one run of run_all.
type CatchUp struct {
	Item uint16 `codec:"i"`
	At   int64  `codec:"a"`
	Key  string `codec:"k,omitempty"` // its idempotency key where that is not the default
}

func (c *Advance) items() int { return len(c.Jobs) }

func (*Advance) stopsOnHold() bool { return true }

func (c *Advance) check() error {
	return sameLength(len(c.Jobs), len(c.Lane), len(c.Kind), len(c.Ready), len(c.At), len(c.Gen), len(c.Next),
		len(c.NextReady), len(c.Gaps))
}

func (c *Advance) apply(a *applier) error {
	row := 0
	for i := range c.Jobs {
		key := store.DueKey{Lane: job.Lane(c.Lane[i]), Ready: c.Ready[i], Job: job.ID(c.Jobs[i]),
			Kind: store.Kind(c.Kind[i] >> 4), Origin: job.Origin(c.Kind[i] & 15), At: c.At[i]}
		var o Outcome
		var err error
		first := row
		for row < len(c.Rows) && int(c.Rows[row].Item) == i {
			row++
		}
		if key.Kind == store.KindOccurrence {
			o, err = a.advanceOccurrence(key, c.Gen[i], When{c.Next[i], c.NextReady[i]}, c.Gaps[i], c.Rows[first:row])
		} else {
			o, err = a.expireOpen(key, c.Gaps[i])
		}
		if err != nil {
			return err
		}
		a.outcome(o)
	}
	return nil
}

func (a *applier) advanceOccurrence(key store.DueKey, gen uint32, next When, g Gap, rows []CatchUp) (Outcome, error) {
	id := key.Job
	s, p, ok, err := a.b.State(id)
	if err != nil {
		return Outcome{}, err
	}
	if !ok || p.Parked || p.Due(id) != key || s.Gen != gen || next.At != 0 && next.At <= s.LastNominal {
		return Outcome{Code: CodeStale}, nil
	}
	why := cmp.Or(wrongGap(&s, next, g), wrongRows(&s, next, g, rows))
	if why == "" && next.At != key.At && !g.covers(key.At) && (len(rows) == 0 || rows[0].At != key.At) &&
		(g.Count != 0 || next.At != 0 || len(rows) != 0) {
		why = "the occurrence would be dropped without a record"
	}
	if why == "" && g.Reason == job.ReasonReplaced && (next.At == 0 || next.Ready > a.now) {
		why = "nothing that is due takes the place of what is replaced"
	}
	if why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	gap := g.interval()
	if err := a.notRun(id, &s, gap); err != nil {
		return Outcome{}, err
	}
	if gap.Status == job.RunExpired {
		if err := a.judge(key.Run(), &s, &store.Record{Status: gap.Status, Reason: gap.Reason}); err != nil {
			return Outcome{}, err
		}
	}
	if err := a.catchUp(id, &s, rows); err != nil {
		return Outcome{}, err
	}
	to := place(&s, next)
	if to.Parked {
		if err := a.flush(id, &s); err != nil { // nothing follows that would write it out
			return Outcome{}, err
		}
		if !gap.Empty() {
			s.LastStatus, s.LastAt = gap.Status, a.now
		}
	}
	if err := a.release(id, &s, to); err != nil {
		return Outcome{}, err
	}
	keep := int64(s.Retention) * 1000
	if gap.Reason == job.ReasonRestored {
		keep = keepRestored(&s)
	}
	if err := a.settleIn(id, &s, to, keep); err != nil {
		return Outcome{}, err
	}
	return Outcome{Code: CodeOK, Job: id}, a.b.PutState(id, &s, to)
}

// catchUp puts up the runs of run_all: they wait for their turns, and the job's entry goes on with the live schedule.
func (a *applier) catchUp(id job.ID, s *store.State, rows []CatchUp) error {
	if len(rows) == 0 {
		return nil
	}
	if err := a.flush(id, s); err != nil {
		return err
	}
	for i := range rows {
		k := job.RunKey{Job: id, At: rows[i].At, Origin: job.OriginSchedule}
		row := store.Row{Status: job.RunWaiting, Serial: true, AtMostOnce: s.AtMostOnce, Lane: s.Lane, Class: s.Class,
			Key: rows[i].Key}
		if err := a.b.PutRun(k, nil, &row); err != nil {
			return err
		}
		s.Waiting++
		s.Runs++
		s.LastNominal = rows[i].At
	}
	return nil
}

// wrongRows says what is wrong with catch-up runs between the interval that does not run and the next occurrence; "" if
// nothing is.
func wrongRows(s *store.State, next When, g Gap, rows []CatchUp) string {
	last := s.LastNominal
	if g.Count != 0 {
		last = max(last, g.Last)
	}
	for i := range rows {
		at := rows[i].At
		if at <= last || at > maxTime || next.At != 0 && at >= next.At {
			return "the catch-up runs are not between what is accounted for and what is to come"
		}
		last = at
	}
	return ""
}

// expireOpen closes a pending run that may no longer start.
func (a *applier) expireOpen(key store.DueKey, gap Gap) (Outcome, error) {
	k := key.Run()
	row, ok, err := a.b.Run(k)
	if err != nil {
		return Outcome{}, err
	}
	due, has := row.Due(k)
	if !ok || !has || due != key {
		return Outcome{Code: CodeStale}, nil
	}
	if !notRun(gap.Status) {
		return Outcome{Code: CodeRefused, Run: k, Text: "that is not how a run ends that may no longer start"}, nil
	}
	s, p, ok, err := a.b.State(k.Job)
	if err != nil {
		return Outcome{}, err
	}
	if !ok {
		return Outcome{}, fmt.Errorf("fsm: %s is due and its job has no state", k)
	}
	if _, err := a.closeRun(k, &row, &s, a.record(k, &row, gap.Status, gap.Reason)); err != nil {
		return Outcome{}, err
	}
	return Outcome{Code: CodeOK, Run: k}, a.after(k.Job, &s, p)
}
