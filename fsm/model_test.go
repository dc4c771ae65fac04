package fsm

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// model is told commands and outcomes and knows nothing of how they come about.
type model struct {
	w        *world
	fence    uint64
	live     map[job.RunKey]uint64     // the fence of the one live claim of a run
	runs     map[job.RunKey]bool       // every run of a schedule that was made
	passed   map[job.ID][]int64        // occurrences that were due and are no longer before their job
	before   map[job.ID]int64          // the occurrence that each job has before it
	policies map[job.ID]store.State    // policy of jobs that were never edited
	inHand   map[job.QueueKey]int      // runs that workers have, by queue
	serial   map[job.RunKey]bool       // catch-up runs that were started
	told     map[uint64]store.Notice   // every notification that there ever was, by number
	toldLast map[job.ID]store.NotifyOn // of jobs that tell both: the newest
	ended    map[string]int64          // what the replies count, by kind
}

func newModel(w *world) *model {
	return &model{w: w, live: map[job.RunKey]uint64{}, runs: map[job.RunKey]bool{}, passed: map[job.ID][]int64{}, before: map[job.ID]int64{}, policies: map[job.ID]store.State{},
		told: map[uint64]store.Notice{}, toldLast: map[job.ID]store.NotifyOn{}, ended: map[string]int64{}}
}

// saw holds the outcomes of one command against the promises.
func (m *model) saw(cmd Command, r *Reply) {
	m.w.Helper()
	for _, e := range r.Ends.All {
		if e.Attempt {
			m.ended["attempt"] += int64(e.Count)
		} else {
			m.ended["run "+e.Status.String()] += int64(e.Count)
		}
	}
	for _, n := range r.Ends.NotRun {
		m.ended["not run "+n.Reason.String()] += n.Count
	}
	switch c := cmd.(type) {
	case *Claim:
		for i, o := range r.Items {
			m.claimed(store.Kind(c.Kind[i]>>4), o)
		}
	case *Complete, *Expire:
		for _, o := range r.Items {
			if o.Code == CodeOK {
				delete(m.live, o.Run)
			}
		}
	case *Update:
		delete(m.policies, job.ID(c.Job))
		delete(m.toldLast, job.ID(c.Job))
	case *SettleNotices:
		m.settled(c, r)
	}
	m.look(cmd)
}

func (m *model) claimed(kind store.Kind, o Outcome) {
	m.w.Helper()
	if kind == store.KindOccurrence && (o.Code == CodeClaimed || o.Code == CodeQueued || o.Code == CodeSkipped) {
		if m.runs[o.Run] {
			m.w.Fatalf("%s was decided twice", o.Run)
		}
		m.runs[o.Run] = o.Code != CodeSkipped
	}
	if o.Code != CodeClaimed {
		return
	}
	if old, ok := m.live[o.Run]; ok {
		m.w.Fatalf("%s has two live claims, %d and %d", o.Run, old, o.Fence)
	}
	if o.Fence <= m.fence {
		m.w.Fatalf("the fence %d was given out after %d", o.Fence, m.fence)
	}
	m.fence, m.live[o.Run] = o.Fence, o.Fence
}

// look goes over the whole state after a command.
func (m *model) look(cmd Command) {
	m.w.Helper()
	l := m.w.look()
	active, serial := map[job.ID]int{}, map[job.ID]int{}
	live := map[job.ID]int{}
	started := map[job.RunKey]bool{}
	queues := map[job.QueueKey]int{}
	for k, row := range l.rows {
		inHand := row.Status == job.RunClaimed || row.Status == job.RunCanceling
		if fence, ok := m.live[k]; inHand != ok || ok && fence != row.Fence {
			m.w.Fatalf("%s is in hand: %v (fence %d); claims say %v (fence %d)", k, inHand, row.Fence, ok, fence)
		}
		if q := l.queue[row.Class]; inHand && q.Name != "" {
			queues[q]++
		}
		if row.Status != job.RunWaiting || row.Held != job.RunNone {
			active[k.Job]++
			if row.Serial {
				serial[k.Job]++
				started[k] = true
			}
		}
		if !row.Serial {
			live[k.Job]++
		}
	}
	for k := range started {
		p, ok := m.policies[k.Job]
		if h := cmd.head(); ok && p.Overlap != store.OverlapAllow && !m.serial[k] && (live[k.Job] > 0 || !l.places[k.Job].Parked && l.places[k.Job].Ready <= h.Now) {
			m.w.Fatalf("the catch-up run %s was started before %d live ones, with the next at %+v", k, live[k.Job], l.places[k.Job])
		}
	}
	m.serial = started
	for k := range m.live {
		if _, ok := l.rows[k]; !ok {
			m.w.Fatalf("%s was claimed and is gone without an end", k)
		}
	}
	for _, id := range l.jobs {
		if _, known := m.before[id]; !known {
			m.policies[id] = l.states[id]
		}
		if p, ok := m.policies[id]; ok {
			limit := 1
			if p.Overlap == store.OverlapAllow {
				if limit = int(p.Concurrency); limit == 0 {
					limit = 1 << 20
				}
			}
			if active[id] > limit {
				m.w.Fatalf("%s has %d active runs, its policy allows %d", id, active[id], limit)
			}
		}
		if serial[id] > 1 {
			m.w.Fatalf("%s has %d catch-up or backfill runs at once", id, serial[id])
		}
	}
	for name, n := range queues {
		q := l.queues[name]
		if q.Claimed != n {
			m.w.Fatalf("queue %s has %d runs in hand, the index says %d", name, n, q.Claimed)
		}
		// A limit that was lowered takes nothing from anybody; but nothing is added.
		if n > m.inHand[name] && (q.Paused || q.Concurrency != 0 && n > q.Concurrency) {
			m.w.Fatalf("queue %s went from %d to %d runs in hand: %+v", name, m.inHand[name], n, q)
		}
	}
	m.inHand = queues
	m.notices(l)
	m.follow(l, cmd)
}

// notices: each change is told once, failure and recovery take turns, and what was sent or may have been is never claimed again.
func (m *model) notices(l look) {
	m.w.Helper()
	for _, n := range l.notices {
		old, known := m.told[n.Seq]
		if !known {
			if n.Attempts != 0 {
				m.w.Fatalf("notification %d was claimed before it was there: %+v", n.Seq, n)
			}
			if s := l.states[n.Job]; s.Notify == store.NotifyFailure|store.NotifyRecovery {
				if m.toldLast[n.Job] == n.Kind || m.toldLast[n.Job] == 0 && n.Kind == store.NotifyRecovery && !edited(m, n.Job) {
					m.w.Fatalf("%s tells %d after %d", n.Job, n.Kind, m.toldLast[n.Job])
				}
				m.toldLast[n.Job] = n.Kind
			}
		}
		if n.Trying&(old.Sent|old.Unknown|old.Failed) != 0 || old.Settled()&^n.Settled() != 0 {
			m.w.Fatalf("notification %d is sent again: %+v, before %+v", n.Seq, n, old)
		}
		m.told[n.Seq] = n
	}
}

// edited says that a job may have been failing already when its notify came to say what it says.
func edited(m *model, id job.ID) bool { _, never := m.policies[id]; return !never }

// settled: nothing can be settled that was not claimed.
func (m *model) settled(c *SettleNotices, r *Reply) {
	m.w.Helper()
	for i, o := range r.Items {
		if n := m.told[c.Seqs[i]]; o.Code == CodeOK && (n.Trying == 0 || n.Attempts != c.Attempt[i]) {
			m.w.Fatalf("notification %d was settled and not claimed: %+v", c.Seqs[i], n)
		}
	}
}

// follow notes which occurrences are no longer before their jobs. One that was still to come was a plan, and may be changed.
func (m *model) follow(l look, cmd Command) {
	for id, at := range m.before {
		s, p := l.states[id], l.places[id]
		if now := waiting(&s, p); now != at || len(l.defs) == 0 {
			_, past := m.runs[scheduled(id, at)]
			if h := cmd.head(); at != 0 && (at <= h.Now || past) && !beyondMaxRuns(cmd) {
				m.passed[id] = append(m.passed[id], at)
			}
		}
		delete(m.before, id)
	}
	for _, id := range l.jobs {
		s, p := l.states[id], l.places[id]
		m.before[id] = waiting(&s, p)
	}
}

// beyondMaxRuns says that a command ends a job whose last run was claimed when it could still have been skipped.
func beyondMaxRuns(cmd Command) bool {
	a, ok := cmd.(*Advance)
	return ok && len(a.Jobs) == 1 && a.Gaps[0].Count == 0 && a.Next[0] == 0
}

// account holds every occurrence that passed against history and open runs: it became one run, or is in one interval, and not both.
func (m *model) account() {
	m.w.Helper()
	type interval struct{ first, last int64 }
	type attempt struct {
		run    job.RunKey
		key    string
		number uint16
	}
	ended, attempts := map[string]int64{}, map[attempt]bool{}
	intervals := map[job.ID][]interval{}
	ran := map[job.RunKey]bool{}
	err := m.w.st.View(func(v *store.View) error {
		return v.EachRecord(0, func(_ uint64, r store.Record) bool {
			if !r.Interval.Empty() {
				ended["not run "+r.Reason.String()] += r.Interval.Count
			} else if r.Status != job.RunFailed {
				ended["run "+r.Status.String()]++
			}
			if a := (attempt{r.Run(), r.Key, r.Attempt}); a.number > 0 && !attempts[a] {
				attempts[a] = true
				ended["attempt"]++
			}
			if r.Interval.Empty() {
				ran[r.Run()] = true
			} else if r.Reason != job.ReasonAlreadyRan {
				intervals[r.Job] = append(intervals[r.Job], interval{r.Interval.First, r.Interval.Last})
			}
			return true
		})
	})
	if err != nil {
		m.w.Fatal(err)
	}
	l := m.w.look()
	for id, s := range l.states {
		if !s.NotRun.Empty() {
			intervals[id] = append(intervals[id], interval{s.NotRun.First, s.NotRun.Last})
			ended["not run "+s.NotRun.Reason.String()] += s.NotRun.Count
		}
	}
	if !maps.Equal(ended, m.ended) {
		m.w.Fatalf("the history has %v, the replies count %v", ended, m.ended)
	}
	for id, times := range m.passed {
		for _, at := range times {
			n := 0
			if _, open := l.rows[scheduled(id, at)]; open || ran[scheduled(id, at)] {
				n++
			}
			for _, i := range intervals[id] {
				if i.first <= at && at <= i.last {
					n++
				}
			}
			if n != 1 {
				m.w.Fatalf("the occurrence %d of %s is accounted for %d times", at, id, n)
			}
		}
	}
}

// Random commands, nonsense among them, keep every promise and every invariant (world.do checks those after each batch).
func TestModel(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		w := newWorldAt(rt, filepath.Join(dir, fmt.Sprint(n)))
		defer w.st.Close()
		m := newModel(w)
		g := &gen{w: w, noTrim: true, n: func(k int) int { return rapid.IntRange(0, k-1).Draw(rt, "d") }}
		for range rapid.IntRange(25, 150).Draw(rt, "steps") {
			cmd := g.next()
			r := w.do(cmd)[0]
			rt.Logf("%T %+v: %+v", cmd, cmd, r)
			m.saw(cmd, r)
		}
		m.account()
	})
}
