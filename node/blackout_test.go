package node

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// A one-off for a time that its calendar forbids would never run: that is said by create, bulk and edit alike.
func TestAOneOffInsideABlackoutIsRefused(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	ok[any](n, "PUT", "/api/v1/calendars/closed",
		map[string]any{"windows": []map[string]any{{"from": at.Add(-time.Minute), "to": at.Add(time.Minute)}}})
	inside, outside := at.Format(time.RFC3339), at.Add(time.Hour).Format(time.RFC3339)
	a := n.call("POST", "/api/v1/jobs", tg.spec("once", inside, "calendars", []string{"closed"}))
	if a.status != 400 || a.problem().Field != "schedule" || !strings.Contains(string(a.body), "closed") {
		t.Errorf("%d %s", a.status, a.body)
	}
	n.create(tg.spec("once", outside, "calendars", []string{"closed"}))
	if a := n.call("PUT", "/api/v1/jobs/once", tg.spec("once", inside, "calendars",
		[]string{"closed"})); a.status != 400 || a.problem().Field != "schedule" {
		t.Errorf("%d %s", a.status, a.body)
	}
	n.create(tg.spec("often", "* * * * *", "calendars", []string{"closed"}))
}

// A one-off that expired has failed, and one that was made too late says so without an outage to blame.
func TestAOneOffThatDidNotRunHasFailed(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	past := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	n.create(tg.spec("expired", past, "deadline", "1m"))
	n.create(tg.spec("past", past, "missed", map[string]any{"policy": "skip"}))
	for name, want := range map[string]job.Reason{"expired": job.ReasonDeadline, "past": job.ReasonPast} {
		n.eventually(name+" is decided", func() bool { return len(gaps(n.runs(name))) == 1 })
		if g := gaps(n.runs(name))[0]; g.Reason != want {
			t.Errorf("%s: %+v", name, g)
		}
		if j := n.get(name); j.Status != job.StatusFailed {
			t.Errorf("%s is %s", name, j.Status)
		}
	}
}
