package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

func TestOverlapEndToEnd(t *testing.T) {
	tests := []struct {
		overlap string
		want    string // history after five minutes of runs that take 150 s, due every minute
		most    int    // at the same time
	}{
		{job.OverlapSkip, "succeeded skipped(overlap)x2 skipped(overlap)x1", 1},
		{job.OverlapQueue, "succeeded", 1},
		{job.OverlapAllow, "succeeded succeeded succeeded", 3},
		{job.OverlapReplace, "canceled(replaced) canceled(replaced) canceled(replaced) canceled(replaced)", 1},
	}
	for _, tt := range tests {
		t.Run(tt.overlap, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				now, most := 0, 0
				f := w.worker("w1", 8, func(f *fakeWorker) {
					f.handle = func(ctx context.Context, a job.Assignment) job.Result {
						f.mu.Lock()
						now++
						most = max(most, now)
						f.mu.Unlock()
						r := takes(150*time.Second)(ctx, a)
						f.mu.Lock()
						now--
						f.mu.Unlock()
						return r
					}
				}).mustJoin()
				id := w.create("* * * * *", func(s *job.Spec) { s.Overlap = tt.overlap })
				time.Sleep(6*time.Minute - 30*time.Second)
				got := strings.Join(w.summary(id), " ")
				if got != tt.want {
					t.Errorf("history %q, want %q", got, tt.want)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if most != tt.most {
					t.Errorf("%d at the same time, want %d", most, tt.most)
				}
			})
		})
	}
}

func TestTwoRetriesOfOneJobInOneBatch(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 8, func(f *fakeWorker) {
			f.handle = func(_ context.Context, a job.Assignment) job.Result {
				if a.Attempt == 1 {
					return job.Result{Outcome: job.OutcomeFailed, Error: "first"}
				}
				return job.Result{Outcome: job.OutcomeSucceeded}
			}
		}).mustJoin()
		id := w.create("@manual", func(s *job.Spec) {
			s.Overlap = job.OverlapAllow
			s.Retry = job.Retry{Base: job.Duration(10 * time.Second), Jitter: ptr(0.0)}
		})
		h := w.head()
		a := w.s.o.Proposer.Propose(&fsm.Trigger{Head: h, Job: uint64(id)})
		b := w.s.o.Proposer.Propose(&fsm.Trigger{Head: h, Job: uint64(id)})
		a.Wait()
		b.Wait()
		time.Sleep(2 * time.Second)
		w.setFault(func(cmd fsm.Command) (error, bool) { // so that both are ready when claims are possible again
			if _, ok := cmd.(*fsm.Claim); ok {
				return notApplied(cmd)
			}
			return nil, true
		})
		time.Sleep(20 * time.Second)
		w.setFault(nil)
		time.Sleep(10 * time.Second)
		if n := len(f.ran()); n != 4 {
			t.Errorf("%d attempts", n)
		}
		batches := applied[fsm.Claim](w)
		if last := batches[len(batches)-1]; len(last.Jobs) != 2 {
			t.Errorf("the last batch has %d items", len(last.Jobs))
		}
		if rows := w.rows(id); len(rows) != 0 {
			t.Errorf("open: %v", rows)
		}
		if s, _ := w.state(id); s.Active != 0 || s.Waiting != 0 {
			t.Errorf("state %+v", s)
		}
	})
}

func TestRetriesThenDead(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 8, func(f *fakeWorker) { f.handle = fails }).mustJoin()
		id := w.create("@manual", func(s *job.Spec) {
			s.Retry = job.Retry{MaxRetries: ptr(3), Base: job.Duration(10 * time.Second), Jitter: ptr(0.0)}
			s.IdempotencyKey = "pay-{scheduled_at_unix_ms}"
		})
		perm := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(5 * time.Minute)
		w.wantHistory(id, "failed", "failed", "failed", "dead(retries_exhausted)")
		runs := f.ran()
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
			if d := runs[i+1].at.Sub(runs[i].at); d < want || d > want+100*time.Millisecond {
				t.Errorf("retry %d after %s, want %s", i+1, d, want)
			}
			if runs[i+1].Key != runs[0].Key || runs[i+1].Fence <= runs[i].Fence {
				t.Errorf("attempt %+v after %+v", runs[i+1], runs[i])
			}
		}
		f.mu.Lock()
		f.handle = func(context.Context, job.Assignment) job.Result {
			return job.Result{Outcome: job.OutcomeFailed, Permanent: true,
				Error: strings.Repeat("é", 5000), Output: "\xff" + strings.Repeat("ü", 5000)}
		}
		f.mu.Unlock()
		w.trigger(perm)
		time.Sleep(time.Minute)
		w.wantHistory(perm, "dead(permanent_failure)")
		r := w.history(perm)[0]
		if len(r.Error) > job.MaxErrorBytes || len(r.Output) > job.MaxOutputBytes ||
			!strings.HasPrefix(r.Error, "éé") || !strings.HasSuffix(r.Output, "üü") {
			t.Errorf("%d bytes of error, %d of output", len(r.Error), len(r.Output))
		}
	})
}

func TestReturnedRunsDoNotUseUpAnAttempt(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		n := 0
		f := w.worker("w1", 1, func(f *fakeWorker) {
			f.handle = func(_ context.Context, a job.Assignment) job.Result {
				if n++; n <= 3 {
					return job.Result{Outcome: job.OutcomeReturned}
				}
				return job.Result{Outcome: job.OutcomeSucceeded}
			}
		}).mustJoin()
		id := w.create("* * * * *", func(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce })
		time.Sleep(65 * time.Second)
		w.wantHistory(id, "succeeded")
		if runs := f.ran(); len(runs) != 4 || runs[3].Attempt != 1 {
			t.Errorf("%+v", runs)
		}
	})
}

// A worker that says "canceled" of a run that was not canceled does not make it disappear.
func TestAnAttemptStoppedUnaskedIsAFailure(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.worker("w1", 1, func(f *fakeWorker) {
			f.handle = func(_ context.Context, a job.Assignment) job.Result {
				if a.Attempt == 1 {
					return job.Result{Outcome: job.OutcomeCanceled}
				}
				return job.Result{Outcome: job.OutcomeSucceeded}
			}
		}).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(10 * time.Second)
		w.wantHistory(id, "failed", "succeeded")
	})
}

func TestCancelStopsARunningRun(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", nil)
		o := w.trigger(id)
		time.Sleep(time.Second)
		w.do(&fsm.Cancel{Head: w.head(), Job: uint64(id), At: o.Run.At, Origin: byte(o.Run.Origin)})
		time.Sleep(time.Second)
		w.wantHistory(id, "canceled(canceled)")
		if n := len(f.ran()); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

// A claim whose worker was not told yet is canceled without telling it.
func TestCancelBeforeDelivery(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 2)
		h.offer(2)
		id := w.create("@manual", func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		a, b := w.trigger(id), w.trigger(id)
		time.Sleep(time.Second)
		w.do(&fsm.Cancel{Head: w.head(), Job: uint64(id), At: a.Run.At, Origin: byte(a.Run.Origin)})
		time.Sleep(time.Second)
		if r := h.offer(1).Runs; len(r) != 1 || r[0].Run != b.Run {
			t.Errorf("%+v", r)
		}
		w.wantHistory(id, "canceled(canceled)")
	})
}

// A cancel may be heard of before the claim that it cancels.
func TestCancelThatOvertakesItsClaim(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 2, nil).mustJoin()
		id := w.create("@manual", nil)
		w.log.mu.Lock()
		w.log.hear = func(cmd fsm.Command) time.Duration {
			if _, ok := cmd.(*fsm.Claim); ok {
				return time.Second
			}
			return 0
		}
		w.log.mu.Unlock()
		o := w.trigger(id)
		time.Sleep(500 * time.Millisecond) // claimed, but the leader has not heard of it
		w.do(&fsm.Cancel{Head: w.head(), Job: uint64(id), At: o.Run.At, Origin: byte(o.Run.Origin)})
		time.Sleep(2 * time.Second)
		w.wantHistory(id, "canceled(canceled)")
		if n := len(f.ran()); n != 0 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestOneBadJobIsQuarantined(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, nil).mustJoin()
		good := w.create("* * * * *", nil)
		bad := w.create("* * * * *", nil)
		// A definition that an older, laxer binary might have let through.
		def := w.definition(bad)
		def.Spec.Schedule = "61 * * * *"
		def.Version++
		w.update(bad, def)
		time.Sleep(3 * time.Minute)
		if s, p := w.state(bad); !s.Quarantined || !p.Parked {
			t.Errorf("%+v %+v", s, p)
		}
		if n := len(f.ranOf(good)); n != 3 {
			t.Errorf("the good job ran %d times", n)
		}
		if n := len(applied[fsm.Quarantine](w)); n != 1 {
			t.Errorf("%d quarantine commands", n)
		}
	})
}
