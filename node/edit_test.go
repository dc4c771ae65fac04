package node

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// A job whose occurrences wait for a worker becomes a one-off in the past: all of them are in the history as dropped by
// the edit, and the one-off waits.
func TestEditOfABacklogIntoAPastOneOff(t *testing.T) {
	realTime(t)
	t.Parallel()
	n := start(t, t.TempDir())
	spec := unclaimedJob("a")
	spec["schedule"] = "* * * * * *"
	j := n.create(spec)
	first := j.NextRunAt
	n.eventually("three are due", func() bool { return time.Since(first.Time()) > 3*time.Second })
	spec["schedule"] = first.Time().Add(-time.Hour).UTC().Format(time.RFC3339)
	begin := time.Now()
	if a := n.call("PUT", "/api/v1/jobs/a", spec); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var dropped []job.Run
	for _, r := range n.runs("a") {
		if r.Reason == job.ReasonEdited {
			dropped = append(dropped, r)
		}
	}
	if len(dropped) != 1 || dropped[0].First != first || dropped[0].Count < 3 ||
		dropped[0].Count != int64(dropped[0].Last.Time().Sub(first.Time())/time.Second)+1 ||
		dropped[0].Last.Time().Before(begin.Add(-2*time.Second)) {
		t.Errorf("%+v", dropped)
	}
	if got := n.get("a"); got.NextRunAt.Time().After(first.Time()) || got.NextRunAt == 0 {
		t.Errorf("next at %s", got.NextRunAt)
	}
}

// A lower end_at or max_runs takes away occurrences that are due: the dry run says how many, and the history has each
// with the reason.
func TestLowerBoundsOfABacklog(t *testing.T) {
	realTime(t)
	t.Parallel()
	n := start(t, t.TempDir())
	var first job.Instant
	for _, name := range []string{"end_at", "max_runs"} {
		spec := unclaimedJob(name)
		spec["schedule"], spec["overlap"] = "* * * * * *", "allow"
		first = n.create(spec).NextRunAt
	}
	n.eventually("three are due", func() bool { return time.Since(first.Time()) > 3*time.Second })
	for name, patch := range map[string]any{
		"end_at":   map[string]any{"end_at": first.Time().Add(time.Second)},
		"max_runs": map[string]any{"max_runs": 1},
	} {
		const edit = "application/merge-patch+json"
		dry := ok[wire.EditPreview](n, "PATCH", "/api/v1/jobs/"+name+"?dry_run=true", patch, "Content-Type", edit)
		ok[job.Job](n, "PATCH", "/api/v1/jobs/"+name, patch, "Content-Type", edit)
		runs := n.runs(name)
		if len(runs) != 1 || runs[0].Status != job.RunSkipped || runs[0].Reason != job.ReasonEdited ||
			runs[0].First.Time().After(first.Time()) || runs[0].Count < dry.Dropped.Occurrences ||
			runs[0].Count != int64(runs[0].Last.Time().Sub(runs[0].First.Time())/time.Second)+1 ||
			dry.Dropped.Occurrences < 3 {
			t.Errorf("%s: the dry run says %+v, the history has %+v", name, dry.Dropped, runs)
		}
	}
}

// A change that was made is answered as made, also if the job has been removed by the time it is to be shown: the
// caller would otherwise believe that nothing happened.
func TestAChangeIsAnsweredAfterItsJobIsRemoved(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	j := n.create(unclaimedJob("doc"))
	spec := unclaimedJob("doc")
	spec["timeout"] = "77s"
	changes := []struct {
		method, path, key string
		body              any
	}{
		{"PUT", "/api/v1/jobs/doc", "update", spec},
		{"POST", "/api/v1/jobs/doc:pause", "pause", nil},
		{"POST", "/api/v1/jobs/doc:resume", "resume", nil},
	}
	send := func() {
		t.Helper()
		for _, c := range changes {
			got := ok[job.Job](n, c.method, c.path, c.body, "Idempotency-Key", c.key)
			if got.ID != j.ID || got.Name != "doc" || c.key == "update" && got.Version != 2 {
				t.Errorf("%s: job %s, name %q, version %d", c.key, got.ID, got.Name, got.Version)
			}
		}
	}
	send()
	if a := n.call("DELETE", "/api/v1/jobs/doc", nil); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	send()
}
