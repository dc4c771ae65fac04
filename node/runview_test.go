package node

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

func gaps(all []job.Run) (out []job.Run) {
	for _, r := range all {
		if r.Count > 0 {
			out = append(out, r)
		}
	}
	return out
}

// What does not run sits in the job's state until something of it runs; it must show all the same.
func TestWhatDoesNotRunShowsAtOnce(t *testing.T) {
	realTime(t)
	t.Parallel()
	n := start(t, t.TempDir())
	n.create(map[string]any{"name": "long", "type": "shell", "schedule": "@every 1s", "overlap": "skip",
		"payload": map[string]any{"command": "sleep 30"}})
	n.eventually("two are skipped", func() bool { g := gaps(n.runs("long")); return len(g) == 1 && g[0].Count >= 2 })
	first := n.runs("long")[0]
	if first.Status != job.RunSkipped || first.Reason != job.ReasonOverlap || first.Seq != 0 || first.RunID != "" ||
		first.JobName != "long" ||
		first.Last <= first.First {
		t.Errorf("%+v", first)
	}
	if p := ok[wire.RunPage](n, "GET", "/api/v1/runs?job=long&status=skipped,missed", nil); len(p.Runs) != 1 ||
		p.Runs[0].Count < first.Count {
		t.Errorf("%+v", p)
	}
	if p := ok[wire.RunPage](n, "GET", "/api/v1/jobs/long/runs?status=succeeded", nil); len(p.Runs) != 0 {
		t.Errorf("%+v", p)
	}
	id := n.get("long").ID
	lost := job.RunKey{Job: id, At: int64(first.First), Origin: job.OriginSchedule}
	if a := n.call("GET", "/api/v1/runs/"+lost.String(), nil); a.status != 404 ||
		!strings.Contains(string(a.body), "overlap") {
		t.Errorf("%d %s", a.status, a.body)
	}

	// Stopped: what passes meanwhile shows as well, before what was skipped earlier.
	ok[job.Job](n, "POST", "/api/v1/jobs/long:pause", nil)
	n.eventually("it counts", func() bool {
		g := gaps(n.runs("long"))
		return len(g) == 2 && g[0].Reason == job.ReasonPaused && g[0].Status == job.RunSkipped && g[0].Count >= 2 &&
			g[1].Reason == job.ReasonOverlap
	})
	var paged []job.Run
	for cursor := ""; ; {
		p := ok[wire.RunPage](n, "GET", "/api/v1/jobs/long/runs?limit=1&cursor="+cursor, nil)
		paged = append(paged, p.Runs...)
		if len(p.Runs) > 1 {
			t.Fatalf("%+v", p)
		}
		if cursor = p.NextCursor; cursor == "" || len(paged) > 5 {
			break
		}
	}
	if len(paged) != 3 || paged[0].Reason != job.ReasonPaused || paged[1].Reason != job.ReasonOverlap ||
		paged[2].Status != job.RunRunning {
		t.Errorf("one by one: %+v", paged)
	}

	// Deleted, all of it is in the history, which the id still leads to.
	before := gaps(n.runs("long"))
	if a := n.call("DELETE", "/api/v1/jobs/long", nil); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	n.eventually("the run is canceled", func() bool { return n.count(id.String(), job.RunCanceled) == 1 })
	after := gaps(n.runs(id.String()))
	if len(after) != 2 || after[0].Count < before[0].Count || after[0].CountAtLeast || after[0].Seq == 0 ||
		after[0].First != before[0].First ||
		after[1].First != before[1].First || after[1].Count != before[1].Count {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	if p := ok[wire.RunPage](n, "GET", "/api/v1/runs?status=canceled&job="+id.String(), nil); len(p.Runs) != 1 ||
		p.Runs[0].Key == "" {
		t.Errorf("%+v", p)
	}
	for _, ref := range []string{"long", "j_zz", "j_0"} {
		if a := n.call("GET", "/api/v1/jobs/"+ref+"/runs", nil); a.status != 404 {
			t.Errorf("%s: %d %s", ref, a.status, a.body)
		}
	}
}

func TestACalendarInUseIsKept(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	ok[schedule.Calendar](n, "PUT", "/api/v1/calendars/weekend", `{"weekdays":["sat","sun"]}`)
	ok[schedule.Calendar](n, "PUT", "/api/v1/calendars/week", `{"weekdays":["mon"]}`)
	del := func(name string) apiAnswer {
		return n.call("DELETE", "/api/v1/calendars/"+name, nil, "Idempotency-Key", "del-"+name+time.Now().String())
	}
	for _, name := range []string{"c1", "c2", "c3", "c4", "c5", "c6"} {
		n.create(tg.spec(name, "0 9 * * *", "calendars", []string{"weekend"}))
	}
	a := del("weekend")
	if p := a.problem(); a.status != 409 || p.Code != job.CodeState || !strings.Contains(p.Message, "6 jobs use") ||
		!strings.Contains(p.Message, "c1, c2, c3, c4, c5, …") || !strings.Contains(p.Remedy, "those jobs first") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := del("week"); a.status != 204 { // "weekend" contains its name
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, name := range []string{"c1", "c2", "c3", "c4", "c5"} {
		n.call("DELETE", "/api/v1/jobs/"+name, nil)
	}
	if a := del("weekend"); a.status != 409 || !strings.Contains(a.problem().Message, "1 job uses") {
		t.Errorf("%d %s", a.status, a.body)
	}
	ok[job.Job](n, "PATCH", "/api/v1/jobs/c6", `{"calendars":null}`)
	for i, want := range []int{204, 204, 404} { // the second is a repetition
		key := "same"
		if i == 2 {
			key = "other"
		}
		if a := n.call("DELETE", "/api/v1/calendars/weekend", nil, "Idempotency-Key", key); a.status != want {
			t.Errorf("%d: %d %s", i, a.status, a.body)
		}
	}
}

func TestDeadLettersThatDoNotExist(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	tg.set(500)
	n.create(tg.spec("d", "@manual", "overlap", "allow", "retry", map[string]any{"max_retries": 0}))
	ok[job.Run](n, "POST", "/api/v1/jobs/d:run", nil)
	list := func() []job.DeadLetter { return ok[wire.DeadPage](n, "GET", "/api/v1/dead", nil).Dead }
	n.eventually("it is dead", func() bool { return len(list()) == 1 })
	seq := list()[0].Seq
	for _, ids := range [][]uint64{{9999}, {9998, 9999}} {
		if a := n.call("POST", "/api/v1/dead:redrive", map[string]any{"ids": ids}); a.status != 404 ||
			a.problem().Code != job.CodeNotFound {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a := n.call("DELETE", "/api/v1/dead?ids=9999", nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for range 2 { // the second is an echo
		a := n.call("POST", "/api/v1/dead:redrive", map[string]any{"ids": []uint64{seq, 9999}}, "Idempotency-Key", "r")
		if a.status != 200 || !strings.Contains(string(a.body), `"count":1`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

func TestWhyRunsWaitBehindTheirOwn(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	sleep := map[string]any{"command": "sleep 30"}
	n.create(map[string]any{"name": "queue", "type": "shell", "schedule": "@manual", "overlap": "queue",
		"payload": sleep})
	n.create(map[string]any{"name": "allow", "type": "shell", "schedule": "@manual", "overlap": "allow",
		"concurrency": 2, "payload": sleep})
	for range 4 {
		ok[job.Run](n, "POST", "/api/v1/jobs/queue:run", nil)
		ok[job.Run](n, "POST", "/api/v1/jobs/allow:run", nil)
	}
	n.eventually("three run", func() bool { return n.worker.busy() == 3 })
	if w := n.get("queue").WaitReason; w != "3 runs wait for their turn: 1 run is active and overlap is queue" {
		t.Error(w)
	}
	if w := n.get("allow").WaitReason; w != "2 runs wait for their turn: concurrency 2 is reached" {
		t.Error(w)
	}
	for i := 4; ; i++ { // a full queue is another thing than an overlap
		a := n.call("POST", "/api/v1/jobs/queue:run", nil)
		if a.status/100 == 2 && i <= job.MaxWaiting {
			continue
		}
		if p := a.problem(); a.status != 409 || p.Code != job.CodeOverlap || strings.Contains(p.Remedy, "overlap") ||
			!strings.Contains(p.Remedy, "wait for some") {
			t.Errorf("%d: %d %s", i, a.status, a.body)
		}
		break
	}
	for _, name := range []string{"queue", "allow"} {
		n.call("POST", "/api/v1/jobs/"+name+":cancel", nil)
	}
	n.eventually("nothing waits", func() bool {
		return n.get("queue").WaitReason == "" &&
			n.get("allow").WaitReason == ""
	})
}

// The history of a deleted job is found among that of others, page by page.
func TestHistoryOfADeletedJobIsPaged(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	a, b := n.create(tg.spec("a", "@manual", "overlap", "allow")), n.create(tg.spec("b", "@manual", "overlap", "allow"))
	for range 7 {
		ok[job.Run](n, "POST", "/api/v1/jobs/a:run", nil)
		ok[job.Run](n, "POST", "/api/v1/jobs/b:run", nil)
	}
	n.eventually("all ran", func() bool {
		return n.count("a", job.RunSucceeded) == 7 &&
			n.count("b", job.RunSucceeded) == 7
	})
	// A finished manual run shows the key that its target saw.
	for _, r := range n.runs("a") {
		if tg.seen()[r.Key] != 1 {
			t.Errorf("the target did not see %q", r.Key)
		}
	}
	n.call("DELETE", "/api/v1/jobs/a", nil)
	total := 0
	for cursor := ""; ; {
		p := ok[wire.RunPage](n, "GET", "/api/v1/jobs/"+a.ID.String()+"/runs?limit=2&cursor="+cursor, nil)
		for _, r := range p.Runs {
			if r.JobID != a.ID {
				t.Errorf("%+v", r)
			}
		}
		total += len(p.Runs)
		if cursor = p.NextCursor; cursor == "" {
			break
		}
	}
	if total != 7 || n.count(b.ID.String(), job.RunSucceeded) != 7 {
		t.Errorf("%d runs", total)
	}
}

// The history of a job that was deleted goes on to say what it was called.
func TestHistoryNamesDeletedJobs(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	n.create(tg.spec("payroll", "@manual"))
	n.create(tg.spec("kept", "@manual"))
	for _, name := range []string{"payroll", "kept"} {
		ok[job.Run](n, "POST", "/api/v1/jobs/"+name+":run", nil)
		n.eventually(name+" ran", func() bool { return n.count(name, job.RunSucceeded) == 1 })
	}
	id := n.get("payroll").ID
	if a := n.call("DELETE", "/api/v1/jobs/payroll", nil); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	n.create(tg.spec("payroll", "@manual")) // another one
	runs := ok[wire.RunPage](n, "GET", "/api/v1/runs?status=succeeded", nil).Runs
	if len(runs) != 2 {
		t.Fatalf("%+v", runs)
	}
	for _, r := range runs {
		if want := r.JobID == id; r.JobDeleted != want || r.JobName != map[bool]string{true: "payroll", false: "kept"}[want] {
			t.Errorf("%s is called %q, deleted: %v", r.JobID, r.JobName, r.JobDeleted)
		}
	}
}
