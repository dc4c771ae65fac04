package checker

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// model is a scheduler of one page that makes right histories: one job, one clock, nothing in parallel. What it does is
// what the design says in the plainest way.
type model struct {
	*scene
	rng    *rand.Rand
	sched  *oracle
	busy   int64 // until when a run is open
	paused [][2]int64
	kills  [][2]int64 // of the worker n1
	not    *job.Run   // the interval that grows
	end    int64
	lost   bool
}

// clear moves a time out of an outage: nothing is committed in one.
func (m *model) clear(t int64) int64 {
	for _, w := range m.in.Outages {
		if t > int64(w.From) && t <= int64(w.To) {
			return int64(w.To) + 1
		}
	}
	return t
}

func inside(all [][2]int64, t int64) (to int64, ok bool) {
	for _, p := range all {
		if p[0] <= t && t < p[1] {
			return p[1], true
		}
	}
	return 0, false
}

func (m *model) flush(at int64) {
	if m.not == nil {
		return
	}
	m.seq++
	m.not.Seq, m.not.FinishedAt = m.seq, job.Instant(at)
	m.in.Final.History = append(m.in.Final.History, *m.not)
	m.not = nil
}

func (m *model) skip(t int64, st job.RunStatus, why job.Reason, at int64) {
	if m.not != nil && m.not.Reason != why {
		m.flush(at)
	}
	if m.not == nil {
		m.not = &job.Run{JobID: jobA, First: job.Instant(t), Status: st, Reason: why}
	}
	m.not.Last, m.not.Count = job.Instant(t), m.not.Count+1
}

// run carries out a run that is claimed at a time, with its retries, and says when it was closed.
func (m *model) carry(k job.RunKey, at int64) {
	m.flush(at)
	limit := m.spec.Retry.Limit()
	for n, failures := 1, 0; ; n++ {
		if to, dead := inside(m.kills, at); dead {
			at = m.clear(to + 50)
		}
		took := 100 + m.rng.Int64N(20_000)
		if m.rng.IntN(6) == 0 {
			took += 60_000
		}
		end := at + took
		for _, d := range m.kills {
			if d[0] > at && d[0] <= end { // its worker dies in the middle
				rec := m.clear(d[1]+20) - at
				if m.spec.Delivery == job.DeliverAtMostOnce {
					m.attempt(k, n, worker, at, rec, Cut, job.RunLost, job.ReasonWorkerLost)
					m.busy = at + rec + 2
				} else {
					m.attempt(k, n, worker, at, rec, Cut, job.RunFailed, job.ReasonWorkerLost)
				}
				m.in.Effects[len(m.in.Effects)-1].End = job.Instant(d[0])
				m.lost = true
				if m.spec.Delivery == job.DeliverAtMostOnce {
					return
				}
				at = m.clear(at + rec + 10)
				took = -1
				break
			}
		}
		if took < 0 {
			continue
		}
		committed := m.clear(end+2) - at - 2
		fix := func() { // the worker's end is earlier than the commit in an outage
			h := &m.in.Final.History[len(m.in.Final.History)-1]
			h.FinishedAt = job.Instant(end)
			m.in.Effects[len(m.in.Effects)-1].End = job.Instant(end)
		}
		if m.rng.IntN(4) > 0 {
			m.attempt(k, n, worker, at, committed, Succeeded, job.RunSucceeded, 0)
			fix()
			m.busy = at + committed + 2
			return
		}
		if failures++; failures > limit {
			m.attempt(k, n, worker, at, committed, Failed, job.RunDead, job.ReasonExhausted)
			fix()
			m.in.Final.Dead[len(m.in.Final.Dead)-1].Run = m.in.Final.History[len(m.in.Final.History)-1]
			m.busy = at + committed + 2
			return
		}
		m.attempt(k, n, worker, at, committed, Failed, job.RunFailed, 0)
		fix()
		_, wait := backoff(m.spec.Retry, failures-1, 0)
		at = m.clear(at + committed + 2 + wait.Milliseconds() + 1)
		if to, p := inside(m.paused, at); p {
			at = m.clear(to + 1)
		}
	}
}

// random makes a right history.
func random(seed uint64) *model {
	rng := rand.New(rand.NewPCG(seed, 9))
	m := &model{rng: rng}
	m.scene = newScene(func(s *job.Spec) {
		s.Schedule = []string{"* * * * *", "*/3 * * * *", "*/20 * * * * *", "@every 47s"}[rng.IntN(4)]
		s.Overlap = []string{job.OverlapSkip, job.OverlapQueue}[rng.IntN(2)]
		s.Missed = job.Missed{Policy: []string{job.MissedSkip, job.MissedRunOnce, job.MissedRunAll}[rng.IntN(3)],
			Window: "20m", Max: 1 + rng.IntN(5), Grace: job.Duration(30 * time.Second)}
		n := rng.IntN(3)
		if rng.IntN(4) == 0 {
			s.Delivery, n = job.DeliverAtMostOnce, 0
		}
		s.Retry = job.Retry{MaxRetries: &n, Base: job.Duration(time.Second)}
		if rng.IntN(4) == 0 {
			s.Jitter = job.Duration(10 * time.Second)
		}
	})
	m.end = t0 + 40*60_000
	m.sched, _ = newOracle(&m.spec, jobA)
	for at := t0 + 120_000; at < m.end-10*60_000; at += 60_000 + rng.Int64N(10*60_000) {
		switch rng.IntN(3) {
		case 0:
			to := at + 5000 + rng.Int64N(5*60_000)
			m.outage(at, to)
			at = to
		case 1:
			to := at + 5000 + rng.Int64N(60_000)
			m.fault(FaultKill, worker, at, to)
			m.kills = append(m.kills, [2]int64{at, to})
			at = to
		case 2:
			to := at + 5000 + rng.Int64N(3*60_000)
			m.call(Call{Kind: CallPause}, at).At = job.Instant(at)
			m.call(Call{Kind: CallResume}, to).At = job.Instant(to)
			m.paused = append(m.paused, [2]int64{at, to})
			at = to
		}
	}
	m.walk()
	return m
}

func (m *model) walk() {
	delay := m.sched.delay
	var group struct{ from, last, runFrom int64 }
	t := m.sched.next(t0)
	for ; t != 0 && t+delay < m.end; t = m.sched.next(t) {
		ready := t + delay
		at := m.clear(ready)
		if w := m.outageAt(ready); w != nil && t > group.last {
			if int64(w.To)-ready > ms(m.spec.Missed.Grace) {
				group.from, group.last = t, m.sched.last(t, int64(w.To)-delay)
				all := m.sched.between(t, group.last)
				group.runFrom = group.last + 1
				switch m.spec.Missed.Policy {
				case job.MissedSkip: // what is within the grace runs
					group.last = m.sched.last(t, int64(w.To)-delay-ms(m.spec.Missed.Grace)-1)
					group.runFrom = group.last + 1
				case job.MissedRunOnce:
					group.runFrom = group.last
				case job.MissedRunAll:
					group.runFrom = all[max(0, len(all)-m.spec.Missed.Max)]
				}
			}
		}
		if t <= group.last && t >= group.from && t < group.runFrom {
			m.skip(t, job.RunMissed, job.ReasonOutage, at)
			continue
		}
		if to, p := inside(m.paused, at); p {
			if ready <= to {
				m.skip(t, job.RunSkipped, job.ReasonPaused, to)
				if next := m.sched.next(t); next+delay > to {
					m.flush(to)
				}
				continue
			}
			at = to + 1
		}
		at = max(at, m.clear(at))
		catchup := t <= group.last && t >= group.from && m.spec.Missed.Policy == job.MissedRunAll
		if ready < m.busy && m.spec.Overlap == job.OverlapSkip && !catchup {
			m.skip(t, job.RunSkipped, job.ReasonOverlap, at)
			continue
		}
		at = m.clear(max(at, m.busy))
		if to, p := inside(m.paused, at); p {
			at = m.clear(to + 1)
		}
		m.carry(sched(t), at)
	}
	last := max(m.end, m.busy)
	m.flush(last)
	m.in.Final.At = job.Instant(m.end + 1)
	if m.busy > m.end { // the last run ended later: look then, and say that we were in full run
		m.in.Final.Slack = time.Duration(m.busy-m.end+2) * time.Millisecond
		m.in.Final.At = job.Instant(m.busy + 1)
	}
	m.job().NextRunAt = job.Instant(t + delay)
}

func (m *model) outageAt(ready int64) *Outage {
	for i := range m.in.Outages {
		if w := &m.in.Outages[i]; int64(w.From) < ready && ready <= int64(w.To) {
			return w
		}
	}
	return nil
}

// corruptions are ways to make a right history wrong. Each says false if this history has nothing of the kind.
var corruptions = map[string]func(m *model) bool{
	"drop a run": func(m *model) bool {
		k, ok := m.anyRun()
		if ok {
			m.drop(func(h *job.Run) bool { return h.RunID == k.String() })
			m.in.Effects = slices.DeleteFunc(m.in.Effects, func(e Effect) bool { return e.Run == k })
			m.in.Handed, m.in.Final.Dead = nil,
				slices.DeleteFunc(m.in.Final.Dead, func(d job.DeadLetter) bool { return d.RunID == k.String() })
		}
		return ok
	},
	"drop the last record of a run": func(m *model) bool {
		k, ok := m.anyRun()
		if !ok {
			return false
		}
		last := uint64(0)
		for _, h := range m.in.Final.History {
			if h.RunID == k.String() {
				last = h.Seq
			}
		}
		m.drop(func(h *job.Run) bool { return h.Seq == last })
		return true
	},
	"move a run": func(m *model) bool {
		k, ok := m.anyRun()
		if !ok {
			return false
		}
		n := k
		n.At += 1000
		for i := range m.in.Final.History {
			if h := &m.in.Final.History[i]; h.RunID == k.String() {
				h.RunID, h.ScheduledAt = n.String(), job.Instant(n.At)
			}
		}
		for i := range m.in.Effects {
			if m.in.Effects[i].Run == k {
				m.in.Effects[i].Run = n
			}
		}
		m.in.Handed = nil
		return true
	},
	"an effect of a claim that is not committed": func(m *model) bool {
		e, ok := m.anyEffect()
		if ok {
			x := *e
			x.Fence += 1000
			m.in.Effects = append(m.in.Effects, x)
		}
		return ok
	},
	"a claim started twice": func(m *model) bool {
		e, ok := m.anyEffect()
		if ok {
			m.in.Effects = append(m.in.Effects, *e)
		}
		return ok
	},
	"another key": func(m *model) bool {
		e, ok := m.anyEffect()
		if ok {
			e.Key += "0"
			m.in.Handed = nil
		}
		return ok
	},
	"a success that was none": func(m *model) bool {
		for i := range m.in.Effects {
			if e := &m.in.Effects[i]; e.Outcome == Succeeded {
				e.Outcome = Failed
				return true
			}
		}
		return false
	},
	"start before the claim": func(m *model) bool {
		e, ok := m.anyEffect()
		if ok {
			e.Start -= 20_000
		}
		return ok
	},
	"drop an interval": func(m *model) bool {
		g := m.anyGap()
		return g != nil && m.drop(func(h *job.Run) bool { return h.Seq == g.Seq })
	},
	"count too many":       func(m *model) bool { g := m.anyGap(); return g != nil && inc(&g.Count, 1) },
	"count too few":        func(m *model) bool { g := m.anyGap(); return g != nil && inc(&g.Count, -1) },
	"an interval too long": func(m *model) bool { g := m.anyGap(); return g != nil && inc((*int64)(&g.Last), 7) },
	"another reason": func(m *model) bool {
		g := m.anyGap()
		if g != nil {
			g.Status, g.Reason = job.RunSkipped, job.ReasonBlackout
		}
		return g != nil
	},
	"overlap becomes missed": func(m *model) bool {
		for i := range m.in.Final.History {
			if h := &m.in.Final.History[i]; h.Reason == job.ReasonOverlap && m.outageAt(int64(h.First)+m.sched.delay) == nil {
				h.Status, h.Reason = job.RunMissed, job.ReasonOutage
				return true
			}
		}
		return false
	},
	"no outage": func(m *model) bool {
		missed := slices.ContainsFunc(m.in.Final.History, func(h job.Run) bool { return h.Reason == job.ReasonOutage })
		m.in.Outages = nil
		return missed
	},
	"no excuse": func(m *model) bool {
		m.in.Faults = slices.DeleteFunc(m.in.Faults, func(f Fault) bool { return f.Node == worker })
		long := slices.ContainsFunc(m.in.Outages, func(w Outage) bool { return w.To-w.From > 10_000 })
		return m.lost && !long
	},
	"no pause": func(m *model) bool {
		m.in.Calls = slices.DeleteFunc(m.in.Calls, func(c Call) bool { return c.Kind == CallPause })
		return slices.ContainsFunc(m.in.Final.History, func(h job.Run) bool { return h.Reason == job.ReasonPaused })
	},
	"a fence that goes back": func(m *model) bool {
		if len(m.in.Effects) < 2 {
			return false
		}
		a, b := m.in.Effects[0].Fence, m.in.Effects[1].Fence
		swap := map[uint64]uint64{a: b, b: a}
		for i := range m.in.Effects {
			if f, ok := swap[m.in.Effects[i].Fence]; ok {
				m.in.Effects[i].Fence = f
			}
		}
		for i := range m.in.Final.History {
			if f, ok := swap[m.in.Final.History[i].Fence]; ok {
				m.in.Final.History[i].Fence = f
			}
		}
		m.in.Handed = nil
		return true
	},
	"a dead letter is gone": func(m *model) bool {
		if len(m.in.Final.Dead) == 0 {
			return false
		}
		m.in.Final.Dead = m.in.Final.Dead[1:]
		return true
	},
	"another next run":     func(m *model) bool { return inc((*int64)(&m.job().NextRunAt), 60_000) },
	"a replica differs":    func(m *model) bool { m.in.Final.Digests["n3"] = "z"; return true },
	"it was never created": func(m *model) bool { m.in.Calls = m.in.Calls[1:]; return true },
	"a run out of nowhere": func(m *model) bool {
		k := job.RunKey{Job: jobA, At: m.end, Origin: job.OriginManual}
		m.attempt(k, 1, worker, m.end, 1, Succeeded, job.RunSucceeded, 0)
		return true
	},
}

func inc(p *int64, n int64) bool { *p += n; return true }

func (m *model) anyRun() (job.RunKey, bool) {
	e, ok := m.anyEffect()
	if !ok {
		return job.RunKey{}, false
	}
	return e.Run, true
}

func (m *model) anyEffect() (*Effect, bool) {
	if len(m.in.Effects) == 0 {
		return nil, false
	}
	return &m.in.Effects[m.rng.IntN(len(m.in.Effects))], true
}

func (m *model) anyGap() *job.Run {
	var all []*job.Run
	for i := range m.in.Final.History {
		if m.in.Final.History[i].RunID == "" {
			all = append(all, &m.in.Final.History[i])
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[m.rng.IntN(len(all))]
}

func (m *model) drop(which func(*job.Run) bool) bool {
	m.in.Final.History = slices.DeleteFunc(m.in.Final.History, func(h job.Run) bool { return which(&h) })
	return true
}

// TestRandomHistories makes right histories by the model, which the checker must accept, and spoils each in every way
// that it offers, which the checker must find.
func TestRandomHistories(t *testing.T) {
	n := uint64(16)
	if os.Getenv("CARILLON_LONG") != "" {
		n = 200
	}
	tried := map[string]int{}
	occurrences := 0
	for seed := range n {
		if r := Check(random(seed).in); r.Err() != nil {
			t.Fatalf("seed %d: a right history is refused: %v", seed, r.Err())
		} else {
			occurrences += r.Occurrences
		}
		for name, spoil := range corruptions {
			m := random(seed)
			if !spoil(m) {
				continue
			}
			tried[name]++
			if r := Check(m.in); r.Err() == nil {
				t.Errorf("seed %d: %q was not found", seed, name)
			}
		}
	}
	var never []string
	for name := range corruptions {
		if tried[name] == 0 {
			never = append(never, name)
		}
	}
	if len(never) > 0 {
		t.Errorf("never tried: %s", strings.Join(never, ", "))
	}
	t.Logf("%d histories with %d occurrences accepted, and spoiled: %v", n, occurrences, tried)
}
