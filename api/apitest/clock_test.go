package apitest_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// TestResultsOfAClockThatWasBehind: a leader whose clock was set back holds, and records results all the same. What is
// older in the job's history is still known afterwards: a backfill does not run it again, and it can be looked at.
func TestResultsOfAClockThatWasBehind(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t)
	tags := map[string]string{"pool": "test"}
	w := n.Register(t, job.Poll{Worker: "w", Secret: "s", Types: []job.Type{job.TypeHTTP}, Tags: tags, Slots: 2})
	_, _, err := n.Backend.CreateJob(t.Context(), job.Spec{Name: "report", Type: job.TypeHTTP, Schedule: "*/5 * * * * *",
		Payload: []byte(`{"url":"http://127.0.0.1:1/"}`), Overlap: job.OverlapAllow, Workers: tags}, api.Request{})
	if err != nil {
		t.Fatal(err)
	}
	done := job.Result{Outcome: job.OutcomeSucceeded}
	n.Clock.Advance(5 * time.Second)
	first := w.Take(t)
	w.Report(t, first, done)
	n.Clock.Advance(5 * time.Second)
	second := w.Take(t)
	n.Clock.Set(-10 * time.Minute)
	w.Report(t, second, done)
	n.Clock.Set(10 * time.Minute)

	q := wire.BackfillRequest{From: job.Instant(first.Run.At), To: job.Instant(first.Run.At)}
	var r wire.BackfillResult
	eventually(t, "the clock was steady for a while", func() bool {
		n.Clock.Advance(time.Second)
		r, err = n.Backend.Backfill(t.Context(), "report", q, api.Request{})
		return job.CodeOf(err) != job.CodeNotReady
	})
	if err != nil || len(r.Times) != 0 || len(r.Skipped) != 1 {
		t.Errorf("a backfill of what ran: %+v, %v", r, err)
	}
	if d, err := n.Backend.GetRun(t.Context(), first.Run.String(), api.Read{}); err != nil || len(d.Attempts) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}
