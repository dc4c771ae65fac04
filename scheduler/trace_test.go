package scheduler

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/traceid"
	"github.com/carillon-scheduler/carillon/job"
)

// All attempts of a run are of one trace, over leaders too, and each target is a child of its own attempt.
func TestTraceparentOverAttemptsAndLeaders(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.opts.Traces = traceid.NewSampler(1)
		w.lead()
		id := w.queueJob(nil)
		w.trigger(id)
		var trace string
		parents := map[string]bool{}
		for attempt := 1; attempt <= 3; attempt++ {
			r, _ := w.pullOne(job.Poll{Worker: "w", Wait: job.Duration(time.Minute)})
			want := traceid.Of(w.st.Info().ClusterID, r.Run).Parent(r.Fence, true)
			if r.Attempt != attempt || r.Traceparent != want {
				t.Errorf("attempt %d has traceparent %q, want %q", r.Attempt, r.Traceparent, want)
			}
			if trace == "" {
				trace = r.Traceparent[:36]
			}
			if r.Traceparent[:36] != trace || parents[r.Traceparent] {
				t.Errorf("attempt %d has traceparent %q after %v", attempt, r.Traceparent, parents)
			}
			parents[r.Traceparent] = true
			wantAnswer(t, w.fail(r, nil), job.StatusOK, "")
			w.lead()
		}
	})
}
