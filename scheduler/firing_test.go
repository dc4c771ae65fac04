package scheduler

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestFiresOnTime(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.opts.noGuard = true // the wheel does it alone
		w.lead()
		f := w.worker("w1", 4, nil).mustJoin()
		id := w.create("* * * * *", nil)
		time.Sleep(10 * time.Minute)
		runs := f.ran()
		if len(runs) != 10 {
			t.Fatalf("%d runs in ten minutes", len(runs))
		}
		for i, r := range runs {
			at := time.UnixMilli(r.Run.At)
			if lag := r.at.Sub(at); lag < 0 || lag > 50*time.Millisecond {
				t.Errorf("run %d began %s after its time", i, lag)
			}
			if r.Key == "" || r.Traceparent == "" || r.Attempt != 1 || r.Fence == 0 {
				t.Errorf("assignment %+v", r.Assignment)
			}
		}
		if n := len(w.history(id)); n != 10 {
			t.Errorf("%d records", n)
		}
	})
}

func TestFiresWithAllEventsDropped(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.opts.noEvents = true
		w.lead()
		f := w.worker("w1", 4, func(f *fakeWorker) {
			f.handle = fails
		}).mustJoin()
		id := w.create("* * * * *", func(s *job.Spec) { s.Retry = job.Retry{MaxRetries: ptr(1), Base: job.Duration(5 * time.Second)} })
		man := w.create("@manual", func(s *job.Spec) { s.Retry = job.Retry{MaxRetries: ptr(0)} })
		time.Sleep(10 * time.Minute)
		w.trigger(man)
		time.Sleep(2 * time.Second)
		if n := len(f.ranOf(id)); n != 20 {
			t.Errorf("%d attempts of 10 runs with one retry each", n)
		}
		if n := len(f.ranOf(man)); n != 1 {
			t.Errorf("%d manual runs", n)
		}
		for _, r := range f.ran() {
			if lag := r.at.Sub(time.UnixMilli(int64(r.ClaimedAt))); lag > 2*time.Second {
				t.Errorf("late by %s", lag)
			}
		}
	})
}

// What lands behind everything that was read before, without a word, is found by the guard, also behind a crowd that no
// worker takes.
func TestUnannouncedEntriesInThePastAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	for _, crowd := range []int{0, 3000} {
		run(t, func(t *testing.T, w *world) {
			w.opts.noEvents = true
			w.lead()
			f := w.worker("w1", 4, nil).mustJoin()
			for range crowd {
				w.create("1999-12-31T12:00:00Z", func(s *job.Spec) { s.Workers = map[string]string{"no": "such"} })
			}
			id := w.create("1999-12-31T12:00:00Z", nil)
			time.Sleep(time.Duration(2+crowd/1000) * time.Second)
			if n := len(f.ranOf(id)); n != 1 {
				t.Errorf("behind %d others: %d runs", crowd, n)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

// A one-off for a time in the past is late only from when it was created, and under skip it is missed.
func TestOneOffsInThePast(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		var lags []time.Duration
		w.opts.Metrics.Lag = func(_ job.RunKey, d time.Duration) { lags = append(lags, d) }
		w.lead()
		f := w.worker("w1", 4, nil).mustJoin()
		past := time.Now().Add(-30 * time.Minute).UTC().Format(time.RFC3339)
		runs := w.create(past, nil)
		skips := w.create(past, func(s *job.Spec) { s.Missed.Policy = job.MissedSkip })
		time.Sleep(5 * time.Second)
		if len(f.ranOf(runs)) != 1 || len(f.ranOf(skips)) != 0 {
			t.Errorf("%d and %d runs", len(f.ranOf(runs)), len(f.ranOf(skips)))
		}
		if h := w.history(skips); len(h) != 1 || h[0].Interval.Status != job.RunMissed || h[0].Interval.Count != 1 {
			t.Errorf("%+v", h)
		}
		if len(lags) != 1 || lags[0] > 2*time.Second {
			t.Errorf("lags %v", lags)
		}
	})
}
