package node

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// A job whose occurrences wait for a worker becomes a one-off in the past: all of them are in the history as dropped by
// the edit, and the one-off waits.
func TestEditOfABacklogIntoAPastOneOff(t *testing.T) {
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
