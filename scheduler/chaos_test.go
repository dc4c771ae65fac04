package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// TestChaos lets leaders come and go, proposals fail in every way and workers die, go deaf or fall silent, for hours.
// Whatever happens: every occurrence is accounted for exactly once, no run has two attempts in hand at the same time
// unless its worker was lost, nothing stays open, and at_most_once is never repeated.
func TestChaos(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.opts.noGuard = seed%2 == 1 // nothing may depend on it
				chaos(t, w, rand.New(rand.NewPCG(uint64(seed), 1)))
			})
		})
	}
}

func chaos(t *testing.T, w *world, r *rand.Rand) {
	turns := 0
	w.opts.Metrics.Loop = func(time.Duration, int) { turns++ }
	w.lead()
	began := time.Now()
	var ids []job.ID
	exprs := []string{"* * * * *", "*/3 * * * *", "@every 45s", "7 * * * *", "2000-01-01T02:10:00Z"}
	for i := range 30 {
		ids = append(ids, w.create(exprs[i%len(exprs)], func(s *job.Spec) {
			s.Overlap = []string{job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace}[r.IntN(4)]
			s.Missed = job.Missed{Window: "1h", Max: 3,
				Policy: []string{job.MissedSkip, job.MissedRunOnce, job.MissedRunAll}[r.IntN(3)]}
			s.Priority = []string{"critical", "high", "normal", "low"}[r.IntN(4)]
			s.Retry = job.Retry{MaxRetries: ptr(2), Base: job.Duration(time.Second)}
			if r.IntN(3) == 0 {
				s.Delivery, s.Retry = job.DeliverAtMostOnce, job.Retry{}
			}
			if r.IntN(4) == 0 {
				s.Deadline = job.Duration(5 * time.Minute)
			}
		}))
	}
	var workers []*fakeWorker
	for i := range 4 {
		// Enough slots together: under overload the low lanes wait for hours, rightly.
		f := w.worker(fmt.Sprint("w", i), 6+r.IntN(6), func(f *fakeWorker) {
			f.handle = func(ctx context.Context, a job.Assignment) job.Result {
				// Not from r: attempts run in parallel.
				h := a.Fence * 0x9e3779b97f4a7c15
				sleepCtx(ctx, time.Duration(h>>32%40_000)*time.Millisecond)
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
		})
		f.mustJoin()
		workers = append(workers, f)
	}
	rejoin := func() {
		for _, f := range workers {
			f.leave()
			f.mustJoin()
		}
	}
	ambiguous := make(chan struct{}, 1)
	for range 60 {
		time.Sleep(time.Duration(r.IntN(120_000)) * time.Millisecond)
		f := workers[r.IntN(len(workers))]
		switch r.IntN(10) {
		case 0: // a failover
			w.lead()
			rejoin()
		case 1: // an outage
			w.stop()
			for _, f := range workers {
				f.leave()
			}
			time.Sleep(time.Duration(r.IntN(20)) * time.Minute)
			w.lead()
			rejoin()
		case 2: // a worker dies and comes back
			f.crash()
			time.Sleep(time.Duration(r.IntN(60)) * time.Second)
			if err := f.join(); err != nil {
				t.Fatal(err)
			}
		case 3: // a worker is cut off for a while; as it must, it stops its attempts before the lease ends
			f.leave()
			if r.IntN(2) == 0 {
				f.mu.Lock()
				for _, h := range f.set {
					h.stop()
				}
				f.mu.Unlock()
				time.Sleep(time.Duration(35+r.IntN(60)) * time.Second)
			} else {
				time.Sleep(time.Duration(r.IntN(19)) * time.Second)
			}
			f.mustJoin()
		case 4: // answers get lost
			f.mu.Lock()
			f.deaf = true
			f.mu.Unlock()
			time.Sleep(time.Duration(r.IntN(20)) * time.Second)
			f.mu.Lock()
			f.deaf = false
			f.mu.Unlock()
		case 5: // proposals are refused for a while
			w.setFault(notApplied)
			time.Sleep(time.Duration(r.IntN(10)) * time.Second)
			w.setFault(nil)
		case 6: // a proposal of unknown outcome ends the leadership, as it does in raft
			applied := r.IntN(2) == 0
			w.setFault(func(cmd fsm.Command) (error, bool) {
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
			w.lead()
			rejoin()
		case 7: // a run by hand, perhaps canceled
			id := ids[r.IntN(len(ids))]
			if o := w.do(&fsm.Trigger{Head: w.head(), Job: uint64(id)}).Items[0]; o.Code == fsm.CodeOK && r.IntN(2) == 0 {
				time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
				w.do(&fsm.Cancel{Head: w.head(), Job: uint64(id), At: o.Run.At, Origin: byte(o.Run.Origin)})
			}
		case 8: // polls arrive late, and more than once
			for range 20 {
				workers[r.IntN(len(workers))].late(r.IntN(100))
			}
		case 9: // the clock is set
			d := time.Duration(r.IntN(600)) * time.Second
			w.clock.jump(d)
			time.Sleep(15 * time.Second)
		}
	}
	time.Sleep(10 * time.Minute)
	checkAccounts(t, w, ids)
	checkAttempts(t, w, workers, ids)
	if err := w.s.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	w.stop()
	n := 0
	for _, f := range workers {
		n += len(f.ran())
	}
	t.Logf("%s, %d leaderships, %d turns, %d attempts, %d commands, %d expire, %d advance",
		time.Since(began).Round(time.Second), w.log.term, turns, n, len(w.log.seen), len(applied[fsm.Expire](w)),
		len(applied[fsm.Advance](w)))
}

// checkAccounts compares what the schedule says with what was run or recorded.
func checkAccounts(t *testing.T, w *world, ids []job.ID) {
	t.Helper()
	for _, id := range ids {
		s, _ := w.state(id)
		def := w.definition(id)
		if def.Version == 0 {
			continue // a one-off whose retention is over
		}
		sched, err := Compile(&def.Spec, id)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := sched.Count(time.UnixMilli(def.CreatedAt), time.UnixMilli(s.LastNominal), 1<<30)
		got := map[int64]bool{}
		var counted int64
		for _, rec := range w.history(id) {
			switch {
			case rec.Interval.Count > 0:
				counted += rec.Interval.Count
			case rec.Origin == job.OriginSchedule:
				got[rec.At] = true
			}
		}
		for k, row := range w.rows(id) {
			if k.Origin == job.OriginSchedule {
				got[k.At] = true
			}
			age := w.clock.Now().UnixMilli() - max(row.ClaimedAt, row.Ready, k.At)
			if row.Status != job.RunWaiting && row.Status != job.RunRetrying && age > 5*60_000 {
				t.Errorf("%s is %s for %d s", k, row.Status, age/1000)
			}
		}
		if int64(len(got))+counted != int64(want) {
			t.Errorf("%s (%s, %s, %s): %d occurrences, %d ran and %d did not: %v", id, def.Spec.Schedule, def.Spec.Overlap,
				def.Spec.Missed.Policy, want, len(got), counted, w.summary(id))
		}
		if n := len(w.rows(id)); n > 3+int(s.Waiting) {
			t.Errorf("%s has %d open runs", id, n)
		}
	}
}

// checkAttempts looks at what workers really did.
func checkAttempts(t *testing.T, w *world, workers []*fakeWorker, ids []job.ID) {
	t.Helper()
	byRun := map[job.RunKey][]start{}
	fences := map[uint64]int{}
	for _, f := range workers {
		for _, s := range f.ran() {
			byRun[s.Run] = append(byRun[s.Run], s)
			fences[s.Fence]++
		}
	}
	for f, n := range fences {
		if n > 1 {
			t.Errorf("fence %d was started %d times", f, n)
		}
	}
	once := map[job.ID]bool{}
	for _, id := range ids {
		once[id] = w.definition(id).Spec.Delivery == job.DeliverAtMostOnce
	}
	ended := map[uint64]store.Record{}
	for _, id := range ids {
		for _, rec := range w.history(id) {
			if rec.Fence != 0 {
				ended[rec.Fence] = rec
			}
		}
	}
	for k, starts := range byRun {
		slices.SortFunc(starts, func(a, b start) int { return a.at.Compare(b.at) })
		for i, s := range starts {
			if i == 0 {
				continue
			}
			prev := starts[i-1]
			rec, ok := ended[prev.Fence]
			// A returned attempt leaves no record; its number is given out again.
			if !ok && s.Attempt != prev.Attempt {
				t.Errorf("%s: attempt %d began, and %d has no end", k, s.Attempt, prev.Attempt)
			}
			if s.Fence <= prev.Fence {
				t.Errorf("%s: fence %d after %d", k, s.Fence, prev.Fence)
			}
			if once[k.Job] && ok {
				t.Errorf("%s was repeated after %s, in spite of at_most_once", k, rec.Status)
			}
		}
	}
}
