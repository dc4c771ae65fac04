package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
)

// Work that is due and that no worker takes shows as a pending run with the reason, in every listing of the job.
func TestDueRunIsListed(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	at := time.Now().Add(2 * time.Second).UTC().Truncate(time.Second)
	n.create(map[string]any{"name": "mail", "type": "queue", "schedule": at.Format(time.RFC3339),
		"payload": map[string]any{"queue": "emails"}})
	if got := n.runs("mail"); len(got) != 0 && time.Now().Before(at) {
		t.Fatalf("before its time: %+v", got)
	}
	n.eventually("it is due", func() bool { return len(n.runs("mail")) == 1 })
	r := n.runs("mail")[0]
	if r.Status != job.RunPending || r.RunID == "" || r.ScheduledAt == 0 || r.ReadyAt == 0 || r.Key == "" {
		t.Errorf("%+v", r)
	}
	n.eventually("the reason is known", func() bool {
		return strings.Contains(n.runs("mail")[0].WaitReason, "worker") && n.get("mail").WaitReason != ""
	})
	if d := ok[wire.RunDetail](n, "GET", "/api/v1/runs/"+r.RunID, nil); d.RunID != r.RunID ||
		d.Status != job.RunPending || len(d.Attempts) != 0 {
		t.Errorf("%+v", d)
	}
	if p := ok[wire.RunPage](n, "GET", "/api/v1/jobs/mail/runs?limit=1", nil); len(p.Runs) != 1 ||
		p.NextCursor == "" {
		t.Errorf("%+v", p)
	} else if p := ok[wire.RunPage](n, "GET", "/api/v1/jobs/mail/runs?limit=1&cursor="+p.NextCursor, nil); len(p.Runs) != 0 || p.NextCursor != "" {
		t.Errorf("%+v", p)
	}
	for status, want := range map[string]int{"pending": 1, "succeeded": 0} {
		if p := ok[wire.RunPage](n, "GET", "/api/v1/jobs/mail/runs?status="+status, nil); len(p.Runs) != want {
			t.Errorf("%s: %+v", status, p)
		}
	}
	ok[job.Job](n, "POST", "/api/v1/jobs/mail:pause", nil)
	if got := n.runs("mail"); len(got) != 0 && got[0].Status == job.RunPending {
		t.Errorf("paused: %+v", got)
	}
}

// Numbers that there is no dead letter of are named in the answer.
func TestUnknownDeadLetters(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	tg.set(500)
	n.create(tg.spec("d", "@manual", "retry", map[string]any{"max_retries": 0}))
	ok[job.Run](n, "POST", "/api/v1/jobs/d:run", nil)
	list := func() []job.DeadLetter { return ok[wire.DeadPage](n, "GET", "/api/v1/dead?job=d", nil).Dead }
	n.eventually("it is dead", func() bool { return len(list()) == 1 })
	seq := list()[0].Seq
	r := ok[wire.DeadResult](n, "POST", "/api/v1/dead:redrive", map[string]any{"ids": []uint64{seq, 4711, 4712}})
	if r.Count != 1 || len(r.Unknown) != 2 || r.Unknown[0] != 4711 {
		t.Errorf("%+v", r)
	}
	if a := n.call("POST", "/api/v1/dead:redrive", map[string]any{"ids": []uint64{4711}}); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The list over all jobs has what is due and not claimed at its place among the open runs, page by page.
func TestDueRunsOfAllJobsAreListed(t *testing.T) {
	realTime(t)
	t.Parallel()
	n := start(t, t.TempDir())
	spec := func(name, schedule, priority string) map[string]any {
		return map[string]any{"name": name, "type": "queue", "schedule": schedule, "priority": priority,
			"payload": map[string]any{"queue": "emails"}}
	}
	first := time.Now().Truncate(time.Second).Add(2 * time.Second).UTC()
	for i, priority := range []string{"low", "critical", "normal"} {
		n.create(spec("due"+priority, first.Add(time.Duration(i)*time.Second).Format(time.RFC3339), priority))
	}
	n.create(spec("later", first.Add(time.Hour).Format(time.RFC3339), "normal"))
	n.create(spec("by-hand", "@manual", "normal"))
	list := func(query string) (names []string, next string) {
		p := ok[wire.RunPage](n, "GET", "/api/v1/runs?"+query, nil)
		for _, r := range p.Runs {
			if r.Status != job.RunPending || r.RunID == "" || r.Key == "" || r.ReadyAt == 0 {
				t.Errorf("%+v", r)
			}
			names = append(names, r.JobName)
		}
		return names, p.NextCursor
	}
	n.eventually("two are due", func() bool { got, _ := list(""); return len(got) >= 2 })
	hand := ok[job.Run](n, "POST", "/api/v1/jobs/by-hand:run", nil)
	n.eventually("the third is due", func() bool { got, _ := list(""); return len(got) >= 4 })
	want := []string{"duenormal", "by-hand", "duecritical", "duelow"}
	if hand.ScheduledAt.Time().After(first.Add(2 * time.Second)) { // the machine was slow
		want[0], want[1] = want[1], want[0]
	}
	for _, limit := range []string{"1", "2", "3", "4", "100"} {
		var all []string
		for cursor := ""; ; {
			got, next := list("limit=" + limit + "&cursor=" + cursor)
			if all = append(all, got...); next == "" {
				break
			}
			cursor = next
		}
		if !slices.Equal(all, want) {
			t.Errorf("in pages of %s: %v, want %v", limit, all, want)
		}
	}
	if got, _ := list("status=pending,succeeded"); !slices.Equal(got, want) {
		t.Errorf("by status: %v", got)
	}
	if got, _ := list("status=running"); len(got) != 0 {
		t.Errorf("running: %v", got)
	}
	n.eventually("the reason is known", func() bool {
		p := ok[wire.RunPage](n, "GET", "/api/v1/runs?status=pending", nil)
		return strings.Contains(p.Runs[0].WaitReason, "worker") && strings.Contains(p.Runs[3].WaitReason, "worker")
	})
	ok[job.Job](n, "POST", "/api/v1/jobs/duelow:pause", nil)
	if got, _ := list(""); !slices.Equal(got, want[:3]) { // duelow is the oldest
		t.Errorf("one is paused: %v", got)
	}
}

// However much is due, a list looks at a bounded part of it, and that is the oldest.
func TestDueRunsAreBounded(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	at := time.Now().Add(time.Second).Truncate(time.Second).UTC()
	const many = view.MaxDue + 20
	var lines strings.Builder
	for i := range many {
		fmt.Fprintf(&lines, `{"name":"q%04d","type":"queue","schedule":%q,"payload":{"queue":"emails"}}`+"\n", i,
			at.Add(time.Duration(i)*time.Millisecond).Format(time.RFC3339Nano))
	}
	if a := n.call("POST", "/api/v1/jobs:bulk", lines.String()); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	n.eventually("all are due", func() bool { return len(n.runs(fmt.Sprintf("q%04d", many-1))) == 1 })
	seen := map[string]bool{}
	for cursor := ""; ; {
		p := ok[wire.RunPage](n, "GET", "/api/v1/runs?limit=300&cursor="+cursor, nil)
		for _, r := range p.Runs {
			seen[r.JobName] = true
		}
		if cursor = p.NextCursor; cursor == "" {
			break
		}
	}
	if len(seen) != view.MaxDue || !seen["q0000"] || seen[fmt.Sprintf("q%04d", many-1)] {
		t.Errorf("%d are listed", len(seen))
	}
}
