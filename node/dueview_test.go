package node

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// Work that is due and that no worker takes shows as a pending run with the reason, in every listing of the job.
func TestDueRunIsListed(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	n.create(map[string]any{"name": "mail", "type": "queue", "schedule": time.Now().Add(time.Second).UTC().Format(time.RFC3339), "payload": map[string]any{"queue": "emails"}})
	if got := n.runs("mail"); len(got) != 0 {
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
	if d := ok[client.RunDetail](n, "GET", "/api/v1/runs/"+r.RunID, nil); d.RunID != r.RunID || d.Status != job.RunPending || len(d.Attempts) != 0 {
		t.Errorf("%+v", d)
	}
	if p := ok[client.RunPage](n, "GET", "/api/v1/jobs/mail/runs?limit=1", nil); len(p.Runs) != 1 || p.NextCursor == "" {
		t.Errorf("%+v", p)
	} else if p := ok[client.RunPage](n, "GET", "/api/v1/jobs/mail/runs?limit=1&cursor="+p.NextCursor, nil); len(p.Runs) != 0 || p.NextCursor != "" {
		t.Errorf("%+v", p)
	}
	for status, want := range map[string]int{"pending": 1, "succeeded": 0} {
		if p := ok[client.RunPage](n, "GET", "/api/v1/jobs/mail/runs?status="+status, nil); len(p.Runs) != want {
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
	list := func() []job.DeadLetter { return ok[client.DeadPage](n, "GET", "/api/v1/dead?job=d", nil).Dead }
	n.eventually("it is dead", func() bool { return len(list()) == 1 })
	seq := list()[0].Seq
	r := ok[client.DeadResult](n, "POST", "/api/v1/dead:redrive", map[string]any{"ids": []uint64{seq, 4711, 4712}})
	if r.Count != 1 || len(r.Unknown) != 2 || r.Unknown[0] != 4711 {
		t.Errorf("%+v", r)
	}
	if a := n.call("POST", "/api/v1/dead:redrive", map[string]any{"ids": []uint64{4711}}); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
