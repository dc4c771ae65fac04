package fsm

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Backfill makes runs of past occurrences. History newer than SeenHead is looked through again in apply; what is older
// was looked through by the proposer. Left are the occurrences that it left out for what it found there: they belong to
// the answer, which a repeated request gets again, and to the record.
type Backfill struct {
	Head     `codec:"h"`
	Request  Request  `codec:"q"`
	Job      uint64   `codec:"j"`
	At       []int64  `codec:"a"`
	Keys     []string `codec:"k,omitempty"` // empty: default keys
	SeenHead uint64   `codec:"s"`
	Force    bool     `codec:"f,omitempty"`
	Left     []int64  `codec:"l,omitempty"`
}

func (c *Backfill) check() error { return optional(len(c.At), len(c.Keys)) }

func (c *Backfill) apply(a *applier) error { return a.once(c.Request, c.do) }

// do makes runs of past occurrences; they are serialised. What ran, is open or is about to run is left out, with a
// record.
func (c *Backfill) do(a *applier) (Outcome, error) {
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
		if err := a.apart(id, &s, left); err != nil { // an interval has nothing in it that runs
			return Outcome{}, err
		}
		left = store.Interval{}
		taken[t] = true
		k := job.RunKey{Job: id, At: t, Origin: job.OriginBackfill}
		row := store.Row{Status: job.RunWaiting, Serial: true, AtMostOnce: s.AtMostOnce, Lane: s.Lane, Class: s.Class,
			Key: all[i].key}
		if err := a.b.PutRun(k, nil, &row); err != nil {
			return Outcome{}, err
		}
		s.Waiting++
		s.ByHand++
		o.Times = append(o.Times, t)
	}
	o.Count = len(o.Times)
	if err := a.apart(id, &s, left); err != nil { // they are accounted for already
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

// all are the occurrences of a backfill, in the order of their times if some are left out: a record of those must not
// span one that runs.
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

// taken are the times that a backfill leaves out: open ones, and, unless it is forced, those that ran since the
// proposer looked. The map is only ever looked up.
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
