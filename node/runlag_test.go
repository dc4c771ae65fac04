package node

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// Lag is how late a run started after it was ready: jitter, the delay of a retry and a time before the job was made are
// not lag.
func TestLagCountsFromWhenTheRunWasReady(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	tg.set(500)
	n.create(tg.spec("retried", "@manual", "retry", map[string]any{"max_retries": 1, "backoff": "linear",
		"base": "1500ms", "jitter": 0}))
	ok[job.Run](n, "POST", "/api/v1/jobs/retried:run", nil)
	n.create(tg.spec("past", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "retry",
		map[string]any{"max_retries": 0}))
	n.eventually("both failed", func() bool {
		return n.count("retried", job.RunDead) == 1 &&
			n.count("past", job.RunDead) == 1
	})
	last, first := n.runs("retried")[0], n.runs("retried")[1]
	if first.LagMS == nil || last.LagMS == nil || last.ReadyAt < first.FinishedAt+1000 ||
		*last.LagMS != int64(last.StartedAt-last.ReadyAt) {
		t.Errorf("first %+v\nsecond %+v", first, last)
	}
	if r := n.runs("past")[0]; r.LagMS == nil || *r.LagMS > int64(30*time.Minute/time.Millisecond) {
		t.Errorf("%+v", r)
	}
	if r := n.runs("past")[0]; r.JobVersion != 1 {
		t.Errorf("%+v", r)
	}
}

// A forced backfill has the id of the occurrence's first one; every listing tells the two runs apart, and shows the key
// that each was sent with.
func TestAForcedBackfillIsARunOfItsOwn(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	n.create(tg.spec("report", "0 * * * *"))
	body := map[string]any{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:30:00Z"}
	for i := range 3 {
		body["force"] = i > 0
		if r := ok[wire.BackfillResult](n, "POST", "/api/v1/jobs/report:backfill", body); len(r.Times) != 1 {
			t.Fatalf("%+v", r)
		}
		n.eventually("it ran", func() bool { return n.count("report", job.RunSucceeded) == i+1 })
	}
	runs := n.runs("report")
	keys := map[string]bool{}
	for i, r := range runs {
		keys[r.Key] = true
		if r.Forced != (i < 2) || tg.seen()[r.Key] != 1 {
			t.Errorf("%+v", r)
		}
	}
	if len(runs) != 3 || len(keys) != 3 {
		t.Errorf("%d runs with %d keys", len(runs), len(keys))
	}
	d := ok[wire.RunDetail](n, "GET", "/api/v1/runs/"+runs[0].RunID, nil)
	if len(d.Attempts) != 1 || d.Key != runs[0].Key || !d.Forced {
		t.Errorf("%+v", d)
	}
	if j := n.get("report"); j.RunsStarted != 3 {
		t.Errorf("%d runs started", j.RunsStarted)
	}
}

// Runs by hand are runs: they are counted, though they do not use up max_runs.
func TestRunsByHandAreCounted(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	n.create(tg.spec("hand", "@manual", "overlap", "allow"))
	for range 2 {
		ok[job.Run](n, "POST", "/api/v1/jobs/hand:run", nil)
	}
	if j := n.get("hand"); j.RunsStarted != 2 {
		t.Errorf("%d runs started", j.RunsStarted)
	}
}
