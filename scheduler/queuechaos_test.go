package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// TestQueueChaos changes limits, pauses and resumes queues while leaders come and go, proposals fail in every way and
// workers are lost. After every single command the committed claims are counted anew: a queue never has more in hand
// than its limit, unless it had before the limit was lowered, and nothing of a paused one is claimed. In the end
// everything has run.
func TestQueueChaos(t *testing.T) {
	seeds := many(40, 4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, func(t *testing.T, w *world) { queueChaos(t, w, rand.New(rand.NewPCG(uint64(seed), 7))) })
		})
	}
}

// limitWatch counts from the rows of open runs, not from what the store counted.
type limitWatch struct {
	st     *store.Store
	inHand map[string]int
	claims int
	full   int // commands after which a queue was exactly at its limit
	bad    []string
}

func (m *limitWatch) after(cmd fsm.Command) {
	count := map[string]int{}
	rows := map[string]store.QueueUse{}
	err := m.st.View(func(v *store.View) error {
		v.EachQueue(func(q store.QueueUse) bool { rows[q.Name] = q; return true })
		return v.EachRun(job.RunKey{}, func(_ job.RunKey, r store.Row) bool {
			c := job.ParseClass(v.Class(r.Class))
			if c.Type == job.TypeQueue && (r.Status == job.RunClaimed || r.Status == job.RunCanceling) {
				count[c.Queue]++
			}
			return true
		})
	})
	if err != nil {
		m.bad = append(m.bad, err.Error())
	}
	for name, n := range count {
		q := rows[name]
		if q.Claimed != n {
			m.bad = append(m.bad, fmt.Sprintf("%d runs of %s are in hand, the store counts %d", n, name, q.Claimed))
		}
		if n > m.inHand[name] && (q.Paused || q.Concurrency > 0 && n > q.Concurrency) {
			m.bad = append(m.bad, fmt.Sprintf("%T: %s went from %d to %d in hand: %+v", cmd, name, m.inHand[name], n, q))
		}
		if n == q.Concurrency {
			m.full++
		}
		m.claims += max(0, n-m.inHand[name])
	}
	m.inHand = count
}

func queueChaos(t *testing.T, w *world, r *rand.Rand) {
	busy := 0
	w.opts.Metrics.Claims = func(outcome string, n int) {
		if outcome == "busy" {
			busy += n
		}
	}
	w.lead()
	watch := &limitWatch{st: w.st}
	w.log.mu.Lock()
	w.log.after = watch.after
	w.log.mu.Unlock()
	queues := []string{"a", "b", "c", "d"}
	var ids []job.ID
	for i := range 16 {
		ids = append(ids, w.create([]string{"@manual", "@every 20s", "@every 45s"}[i%3], func(s *job.Spec) {
			inQueue(queues[r.IntN(len(queues))])(s)
			s.Priority = []string{"critical", "high", "normal", "low"}[r.IntN(4)]
			s.Retry = job.Retry{MaxRetries: ptr(3), Base: job.Duration(time.Second)}
			s.Concurrency = r.IntN(4)
			if r.IntN(4) == 0 {
				s.Workers = map[string]string{"zone": "x"}
			}
		}))
	}
	var workers []*fakeWorker
	for i := range 4 {
		workers = append(workers, w.worker(fmt.Sprint("w", i), 3+r.IntN(8), func(f *fakeWorker) {
			queueWorker(f)
			f.is.Tags = map[string]string{"zone": []string{"x", "y"}[i%2]}
			if i == 3 {
				f.is.Tags["queue"] = "a,b"
			}
			f.handle = func(ctx context.Context, a job.Assignment) job.Result {
				h := a.Fence * 0x9e3779b97f4a7c15
				sleepCtx(ctx, time.Duration(h>>32%8_000)*time.Millisecond)
				switch {
				case ctx.Err() != nil:
					return job.Result{Outcome: job.OutcomeCanceled}
				case h%10 == 0:
					return job.Result{Outcome: job.OutcomeFailed, Error: "no"}
				case h%10 == 1:
					return job.Result{Outcome: job.OutcomeReturned}
				}
				return job.Result{Outcome: job.OutcomeSucceeded}
			}
		}).mustJoin())
	}
	rejoin := func() {
		w.lead()
		for _, f := range workers {
			f.leave()
			f.mustJoin()
		}
	}
	made := map[job.RunKey]bool{}
	ambiguous := make(chan struct{}, 1)
	for range 120 {
		time.Sleep(time.Duration(r.IntN(8_000)) * time.Millisecond)
		f, q := workers[r.IntN(len(workers))], queues[r.IntN(len(queues))]
		switch r.IntN(12) {
		case 0, 1:
			w.limit(q, r.IntN(5))
		case 2:
			w.pauseQueue(q, true)
		case 3:
			w.pauseQueue(q, false)
		case 4:
			w.do(&fsm.DeleteQueue{Head: w.head(), Name: q})
		case 5, 6: // work
			for range 10 {
				if o := w.trigger(ids[r.IntN(len(ids))]); o.Code == fsm.CodeOK || o.Code == fsm.CodeQueued {
					made[o.Run] = true
				}
			}
		case 7:
			rejoin()
		case 8: // a worker dies and comes back
			f.crash()
			time.Sleep(time.Duration(r.IntN(50)) * time.Second)
			f.mustJoin()
		case 9: // proposals are refused for a while
			w.setFault(notApplied)
			time.Sleep(time.Duration(r.IntN(5)) * time.Second)
			w.setFault(nil)
		case 10: // a proposal of unknown outcome ends the leadership
			applied := r.IntN(2) == 0
			w.setFault(func(fsm.Command) (error, bool) {
				select {
				case ambiguous <- struct{}{}:
				default:
				}
				return errAmbiguous, applied
			})
			<-ambiguous
			w.stop()
			w.setFault(nil)
			select {
			case <-ambiguous:
			default:
			}
			rejoin()
		case 11: // a job moves to another queue
			id := ids[r.IntN(len(ids))]
			def := w.definition(id)
			def.Version++
			def.Spec.Payload = fmt.Appendf(nil, `{"queue":%q}`, q)
			w.update(id, def)
		}
	}
	for _, q := range queues {
		w.setQueue(fsm.PutQueue{Name: q, Set: fsm.QueuePaused | fsm.QueueConcurrency, Concurrency: 1 + r.IntN(3)})
	}
	for _, id := range ids {
		w.do(&fsm.Pause{Head: w.head(), Job: uint64(id)}) // no new occurrences, and everything that is open gets through
		s, p := w.state(id)
		w.do(&fsm.Resume{Head: w.head(), Job: uint64(id), Seen: fsm.Seen{Gen: s.Gen, Parked: p.Parked}})
	}
	time.Sleep(3 * time.Hour)
	if n := w.st.OpenRunCount(); n != 0 {
		t.Errorf("%d runs are still open", n)
	}
	ended := map[job.RunKey]bool{}
	for _, id := range ids {
		for _, rec := range w.history(id) {
			ended[rec.Run()] = true
		}
	}
	for k := range made {
		if !ended[k] {
			t.Errorf("%s never ran", k)
		}
	}
	if err := w.s.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	w.stop()
	for i, b := range watch.bad {
		if i < 10 {
			t.Error(b)
		}
	}
	if busy > watch.claims/10 {
		t.Errorf("%d claims were refused in apply: the leader asks for what there is no room for", busy)
	}
	if problems, _, err := w.st.Check(); err != nil || len(problems) > 0 {
		t.Errorf("%q %v", problems, err)
	}
	t.Logf("%d claims, %d triggered, %d times at a limit, %d claims refused in apply, %d leaderships",
		watch.claims, len(made), watch.full, busy, w.log.term)
}
