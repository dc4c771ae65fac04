package fsm

import (
	"cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Admit decides about occurrences that find a run of their job open when they are ready, without a slot. Apply knows
// what is open: by the overlap policy the occurrence becomes a run that waits, and Next follows, or what is in its
// interval does not run, and Past follows.
type Admit struct {
	Head      `codec:"h"`
	Lane      []byte  `codec:"l"`
	Ready     Times   `codec:"r"`
	Jobs      Numbers `codec:"j"`
	At        Times   `codec:"a"`
	Gen       Gens    `codec:"g"`
	Next      Times   `codec:"n"`
	NextReady Times   `codec:"x"`
	// Gaps are from the occurrence to the last one that the same run is in the way of, and why they do not run under
	// skip.
	Gaps      []Gap    `codec:"p"`
	Past      Times    `codec:"s"`
	PastReady Times    `codec:"y"`
	Keys      []string `codec:"e,omitempty"` // empty, or one an item
	Flags     []byte   `codec:"f,omitempty"` // empty, or one an item: ClaimLast
}

func (c *Admit) items() int { return len(c.Jobs) }

func (*Admit) stopsOnHold() bool { return true }

func (c *Admit) check() error {
	n := len(c.Jobs)
	return cmp.Or(sameLength(n, len(c.Lane), len(c.Ready), len(c.At), len(c.Gen), len(c.Next), len(c.NextReady),
		len(c.Gaps), len(c.Past), len(c.PastReady)), optional(n, len(c.Keys), len(c.Flags)))
}

// apply decides about occurrences that find a run of their job open when their time comes. That needs no slot: however
// busy the workers are, it is decided at the occurrence's own time.
func (c *Admit) apply(a *applier) error {
	for i := range c.Jobs {
		key := store.DueKey{Lane: job.Lane(c.Lane[i]), Ready: c.Ready[i], Job: job.ID(c.Jobs[i]),
			Kind: store.KindOccurrence, Origin: job.OriginSchedule, At: c.At[i]}
		o, err := a.admitOccurrence(key, c.Gen[i], &admission{
			next: When{c.Next[i], c.NextReady[i]}, past: When{c.Past[i], c.PastReady[i]}, gap: c.Gaps[i],
			key: at(c.Keys, i), last: at(c.Flags, i)&ClaimLast != 0,
		})
		if err != nil {
			return err
		}
		a.outcome(o)
	}
	return nil
}

// admission is what the proposer computed for either outcome.
type admission struct {
	next When // what follows if the occurrence becomes a run that waits
	past When // what follows if all that are in gap do not run
	gap  Gap
	key  string
	last bool
}

func (a *applier) admitOccurrence(key store.DueKey, gen uint32, d *admission) (Outcome, error) {
	id := key.Job
	s, p, ok, err := a.b.State(id)
	if err != nil {
		return Outcome{}, err
	}
	if !ok || p.Parked || p.Due(id) != key || s.Gen != gen || key.At <= s.LastNominal ||
		d.next.At != 0 && d.next.At <= key.At || s.Overlap == store.OverlapAllow {
		return Outcome{Code: CodeStale}, nil
	}
	why := wrong(d.next, Gap{}, s.LastNominal)
	why = cmp.Or(why, wrongGap(&s, d.past, d.gap))
	if why == "" && (d.gap.Count == 0 || d.gap.First != key.At) {
		why = "the interval that does not run does not begin with the occurrence"
	}
	if why != "" {
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	lastReady := key.Ready + d.gap.Last - key.At
	if lastReady > a.now {
		why = "the interval that does not run has occurrences that are still to come"
		return Outcome{Code: CodeRefused, Job: id, Text: why}, nil
	}
	k := key.Run()
	o := Outcome{Run: k, Key: d.key}
	v, delayed := refuse, a.behindSerial(id, &s)
	if canStart(&s) {
		if !a.overlaps(&s, key.Ready) || lastReady > s.BusyUntil {
			return Outcome{Code: CodeStale}, nil // nothing is in its way any more: it is claimed, with a slot
		}
	} else if err = a.giveWay(id, &s); err != nil {
		return Outcome{}, err
	} else if v, err = a.overlap(id, &s, key.Ready); err != nil {
		return Outcome{}, err
	}
	next := d.next
	switch v {
	case refuse, refuseFull, displaced:
		o.Code = CodeSkipped
		gap := d.gap.interval()
		if v != refuse {
			gap.Status, gap.Reason = v.reason()
		} else if gap.Reason == job.ReasonOverlap {
			waited, err := a.startedAfter(id, lastReady)
			if err != nil {
				return Outcome{}, err
			}
			if waited {
				gap.Reason = job.ReasonWaiting
			}
		}
		if v == displaced {
			gap.Last, gap.Count, gap.AtLeast = key.At, 1, false
		} else {
			next = d.past
		}
		err = a.notRun(id, &s, gap)
	default:
		o.Code = CodeQueued
		row := store.Row{Status: job.RunWaiting, Delayed: delayed && v == wait, AtMostOnce: s.AtMostOnce, Lane: s.Lane,
			Class: s.Class, Ready: key.Ready, Key: d.key}
		s.Runs++
		if v == start { // what was in its way had not been started, and is dropped
			row.Status, row.Ready = job.RunPending, a.now
			s.Active++
		} else {
			s.Waiting++
		}
		if d.last {
			next = When{}
		}
		err = a.b.PutRun(k, nil, &row)
	}
	if err != nil {
		return Outcome{}, err
	}
	return o, a.moveOn(key, &s, next, o.Code != CodeSkipped)
}

// startedAfter says that what is open of the live schedule are earlier occurrences that had not been started at a time:
// they were due and waited for a slot, or for a leader.
func (a *applier) startedAfter(id job.ID, at int64) (bool, error) {
	found := false
	for _, ref := range a.b.Open(id) {
		if ref.Serial || ref.Status == job.RunWaiting {
			continue
		}
		if ref.Status != job.RunClaimed || ref.Origin != job.OriginSchedule {
			return false, nil
		}
		r, err := a.row(job.RunKey{Job: id, At: ref.At, Origin: ref.Origin})
		if err != nil || r.Attempt != 1 || r.ClaimedAt <= at {
			return false, err
		}
		found = true
	}
	return found, nil
}
