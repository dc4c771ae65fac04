package scheduler

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestFiresOnTime(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
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

func ptr[T any](v T) *T { return &v }
