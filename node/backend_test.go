package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// account holds what a job's history says against its schedule: every occurrence from the first to the last is there,
// once.
func account(t *testing.T, n *testNode, j job.Job, tg *target) {
	t.Helper()
	ran := map[int64]int{}
	var gaps []job.Run
	for _, r := range n.runs(j.ID.String()) {
		switch {
		case r.Count > 0:
			gaps = append(gaps, r)
		case r.Status == job.RunSucceeded:
			ran[int64(r.ScheduledAt)]++
		case !r.Status.Open():
			t.Errorf("unexpected: %+v", r)
		}
	}
	var times []int64
	for at, times2 := range ran {
		times = append(times, at)
		if times2 != 1 {
			t.Errorf("%s ran %d times", job.Instant(at), times2)
		}
	}
	if len(times) == 0 {
		t.Fatal("nothing ran")
	}
	slices.Sort(times)
	sched, err := schedule.Parse(j.Schedule, schedule.Options{Zone: j.Timezone, Seed: uint64(j.ID)})
	if err != nil {
		t.Fatal(err)
	}
	covered := func(at int64) bool {
		for _, g := range gaps {
			if int64(g.First) <= at && at <= int64(g.Last) {
				return true
			}
		}
		return false
	}
	for at := time.UnixMilli(int64(j.CreatedAt)); ; {
		at, _ = sched.Next(at)
		if at.UnixMilli() > times[len(times)-1] {
			break
		}
		if ran[at.UnixMilli()] == 0 && !covered(at.UnixMilli()) {
			t.Errorf("nothing is known of %s", at)
		}
		delete(ran, at.UnixMilli())
	}
	for at := range ran {
		t.Errorf("%s is not in the schedule", job.Instant(at))
	}
	for key, times := range tg.seen() {
		if times != 1 {
			t.Errorf("the target saw %q %d times", key, times)
		}
	}
}

// Edits and claims race for the same due entry: whatever the order, no occurrence is lost and none runs twice.
func TestEditRacingWithClaims(t *testing.T) {
	t.Parallel()
	// A lease that ends while the machine stands still would rightly repeat a run.
	n, tg := start(t, t.TempDir(), func(c *Config) { c.TTL = time.Minute }), newTarget(t)
	j := n.create(tg.spec("busy", "@every 1s", "overlap", "allow"))
	var wg sync.WaitGroup
	end := time.Now().Add(5 * time.Second)
	for k := range 4 {
		wg.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				var patch map[string]any
				switch i % 4 {
				case 0:
					patch = map[string]any{"priority": []string{"high", "low", "critical"}[i%3]}
				case 1: // a schedule field that changes no time
					patch = map[string]any{"max_runs": 100_000 + i*4 + k}
				case 2:
					patch = map[string]any{"timeout": fmt.Sprintf("%ds", 10+i%20)}
				case 3:
					patch = map[string]any{"end_at": time.Now().Add(time.Hour + time.Duration(i)*time.Second).UTC().Format(time.RFC3339)}
				}
				a, err := n.try("PATCH", "/api/v1/jobs/busy", patch)
				if err != nil || a.status != 200 && a.problem().Code != job.CodeVersionConflict &&
					a.problem().Code != job.CodeUnavailable {
					t.Errorf("%v %d %s", err, a.status, a.body)
					return
				}
			}
		})
	}
	wg.Wait()
	n.call("POST", "/api/v1/jobs/busy:pause", nil)
	n.eventually("idle", func() bool { return n.get("busy").OpenRuns == 0 })
	account(t, n, j, tg)
	if v := n.get("busy").Version; v < 20 {
		t.Errorf("only %d edits got through", v)
	}
	if got := n.count("busy", job.RunSucceeded); got < 4 {
		t.Errorf("only %d runs", got)
	}
}

func TestOptimisticConcurrency(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	j := n.create(tg.spec("doc", "@manual"))
	j.Timeout = job.Duration(time.Minute)
	second := ok[job.Job](n, "PUT", "/api/v1/jobs/doc", j)
	if second.Version != 2 || second.Timeout != job.Duration(time.Minute) {
		t.Errorf("updated: %+v", second)
	}
	if a := n.call("PUT", "/api/v1/jobs/doc", j); a.status != 409 || a.problem().Code != job.CodeVersionConflict {
		t.Errorf("an old version: %d %s", a.status, a.body)
	}
	if a := n.call("PATCH", "/api/v1/jobs/doc", `{"timeout":"2m"}`, "If-Match", `"1"`); a.status != 412 {
		t.Errorf("an old If-Match: %d %s", a.status, a.body)
	}
	if a := n.call("DELETE", "/api/v1/jobs/doc", nil, "If-Match", `"1"`); a.status != 412 {
		t.Errorf("an old If-Match: %d %s", a.status, a.body)
	}
	// A repeated request is answered with its first outcome although the version is old by then.
	put := func() apiAnswer { return n.call("PUT", "/api/v1/jobs/doc", second, "Idempotency-Key", "once") }
	if a := put(); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := put(); a.status != 200 || a.header.Get("Idempotent-Replay") != "true" {
		t.Errorf("repeated: %d %s", a.status, a.body)
	}
	n.create(tg.spec("taken", "@manual"))
	if a := n.call("PATCH", "/api/v1/jobs/doc", `{"name":"taken"}`); a.problem().Code != job.CodeDuplicateName {
		t.Errorf("a name that is taken: %d %s", a.status, a.body)
	}
	for range 2 { // the same definition or another one: a name is taken
		if a := n.call("POST", "/api/v1/jobs", tg.spec("taken", "@manual")); a.status != 409 ||
			a.problem().Code != job.CodeDuplicateName {
			t.Errorf("created again: %d %s", a.status, a.body)
		}
	}
	ok[job.Job](n, "PATCH", "/api/v1/jobs/doc", `{"name":"renamed"}`)
	if a := n.call("GET", "/api/v1/jobs/doc", nil); a.status != 404 {
		t.Errorf("the old name: %d", a.status)
	}
	if n.get("renamed").ID != j.ID {
		t.Error("the new name leads elsewhere")
	}
}

func TestPauseResume(t *testing.T) {
	realTime(t)
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	j := n.create(tg.spec("p", "@every 1s"))
	n.eventually("it ran", func() bool { return n.count("p", job.RunSucceeded) >= 1 })
	if p := ok[job.Job](n, "POST", "/api/v1/jobs/p:pause", nil); p.Status != job.StatusPaused || p.NextRunAt != 0 {
		t.Errorf("paused: %+v", p)
	}
	n.eventually("idle", func() bool { return n.get("p").OpenRuns == 0 })
	before := len(tg.seen())
	time.Sleep(2200 * time.Millisecond)
	if len(tg.seen()) != before {
		t.Error("it ran while it was paused")
	}
	if p := ok[job.Job](n, "POST", "/api/v1/jobs/p:resume", nil); p.Status != job.StatusScheduled || p.NextRunAt == 0 {
		t.Errorf("resumed: %+v", p)
	}
	n.eventually("it runs again", func() bool { return len(tg.seen()) > before })
	n.eventually("recorded", func() bool { return n.count("p", job.RunSucceeded) > before })
	records := 0
	for _, r := range n.runs("p") {
		if r.Status == job.RunSkipped &&
			r.Reason == job.ReasonPaused { // a busy machine may skip one because of overlap as well
			records++
		}
	}
	if records != 1 {
		t.Errorf("%d records of what did not run: %+v", records, n.runs("p"))
	}
	account(t, n, j, tg)
}

func TestBackfill(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	n.create(tg.spec("report", "0 * * * *"))
	body := map[string]any{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T05:30:00Z"}
	do := func(more ...any) wire.BackfillResult {
		t.Helper()
		b := map[string]any{}
		for k, v := range body {
			b[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			b[more[i].(string)] = more[i+1]
		}
		return ok[wire.BackfillResult](n, "POST", "/api/v1/jobs/report:backfill", b)
	}
	if r := do("dry_run", true); len(r.Times) != 6 || len(r.Skipped) != 0 || !r.DryRun {
		t.Errorf("dry run: %+v", r)
	}
	if len(tg.seen()) != 0 || len(n.runs("report")) != 0 {
		t.Error("a dry run did something")
	}
	if r := do("to", "2026-01-01T01:30:00Z"); len(r.Times) != 2 {
		t.Errorf("two: %+v", r)
	}
	n.eventually("two ran", func() bool { return n.count("report", job.RunSucceeded) == 2 })
	// A repeat after a lost answer is told the same, what was left out included.
	for range 2 {
		a := n.call("POST", "/api/v1/jobs/report:backfill", body, "Idempotency-Key", "rest")
		var r wire.BackfillResult
		if err := json.Unmarshal(a.body, &r); err != nil || a.status != 200 || len(r.Times) != 4 ||
			len(r.Skipped) != 2 {
			t.Errorf("the rest: %d %s", a.status, a.body)
		}
	}
	n.eventually("six ran", func() bool { return n.count("report", job.RunSucceeded) == 6 })
	// A repeat after a lost answer is told the same, with what was left out before the log was asked.
	longer := map[string]any{"from": body["from"], "to": "2026-01-01T07:30:00Z"}
	for i := range 2 {
		r := ok[wire.BackfillResult](n, "POST", "/api/v1/jobs/report:backfill", longer, "Idempotency-Key", "again")
		if len(r.Times) != 2 || len(r.Skipped) != 6 || r.Skipped[5] >= r.Times[0] {
			t.Errorf("time %d under one key: %+v", i+1, r)
		}
	}
	n.eventually("eight ran", func() bool { return n.count("report", job.RunSucceeded) == 8 })
	if r := do("dry_run", true); len(r.Times) != 0 || len(r.Skipped) != 6 {
		t.Errorf("nothing is left: %+v", r)
	}
	if r := do("force", true); len(r.Times) != 6 {
		t.Errorf("forced: %+v", r)
	}
	n.eventually("fourteen ran", func() bool { return n.count("report", job.RunSucceeded) == 14 })
	if keys := tg.seen(); len(keys) != 14 {
		t.Errorf("%d keys for 14 runs: %v", len(keys), keys)
	}
	for name, more := range map[string][]any{
		"to":  {"to", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
		"max": {"max", 3},
	} {
		b := map[string]any{"from": body["from"], "to": body["to"], more[0].(string): more[1]}
		if a := n.call("POST", "/api/v1/jobs/report:backfill", b); a.status != 400 || a.problem().Field != name {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	tg.set(500)
	n.create(tg.spec("d", "@manual", "overlap", "allow", "retry",
		map[string]any{"max_retries": 1, "backoff": "immediate"}))
	for range 3 {
		ok[job.Run](n, "POST", "/api/v1/jobs/d:run", nil)
	}
	list := func() []job.DeadLetter { return ok[wire.DeadPage](n, "GET", "/api/v1/dead?job=d", nil).Dead }
	n.eventually("three are dead", func() bool { return len(list()) == 3 })
	l := list()[0]
	if l.Attempt != 2 || l.Status != job.RunDead || l.Reason != job.ReasonExhausted ||
		!strings.Contains(l.Error, "500") || l.JobName != "d" || l.Run.Key == "" {
		t.Errorf("dead letter: %+v", l)
	}
	if n.count("d", job.RunFailed) != 3 || n.count("d", job.RunDead) != 3 {
		t.Errorf("runs: %+v", n.runs("d"))
	}
	tg.set(200)
	redrive := func() apiAnswer {
		return n.call("POST", "/api/v1/dead:redrive", map[string]any{"ids": []uint64{l.Seq}}, "Idempotency-Key", "r1")
	}
	for range 2 { // the second is an echo
		if a := redrive(); a.status != 200 || !strings.Contains(string(a.body), `"count":1`) {
			t.Errorf("redrive: %d %s", a.status, a.body)
		}
	}
	n.eventually("it succeeded", func() bool { return n.count("d", job.RunSucceeded) == 1 })
	d := ok[wire.RunDetail](n, "GET", "/api/v1/runs/"+l.RunID, nil)
	if d.Status != job.RunSucceeded || d.Attempt != 3 || len(d.Attempts) != 3 || d.Fence <= l.Fence ||
		tg.seen()[l.Run.Key] != 3 {
		t.Errorf("redriven: %+v", d)
	}
	// What died says that it went on, in the lists of one job and of all; so does the sum.
	for _, path := range []string{"/api/v1/jobs/d/runs?status=dead,failed", "/api/v1/runs?status=dead,failed"} {
		later := map[string]int{}
		for _, r := range ok[wire.RunPage](n, "GET", path, nil).Runs {
			later[r.Status.String()+" then "+r.LaterStatus.String()]++
		}
		want := map[string]int{"dead then succeeded": 1, "failed then succeeded": 1, "dead then ": 2, "failed then dead": 2}
		if !maps.Equal(later, want) {
			t.Errorf("%s: %v", path, later)
		}
	}
	if s := ok[wire.JobStats](n, "GET", "/api/v1/jobs/d/stats", nil); s.Redriven != 1 || s.Succeeded != 1 || s.Failed != 2 {
		t.Errorf("the last runs: %+v", s)
	}
	if r := ok[wire.DeadResult](n, "DELETE", "/api/v1/dead?all=true", nil); r.Count != 2 || len(list()) != 0 {
		t.Errorf("purged %+v, %d are left", r, len(list()))
	}
}

func TestRetryAndCancel(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	n.create(map[string]any{"name": "long", "type": "shell", "schedule": "@manual",
		"payload": map[string]any{"command": "sleep 30"}})
	r := ok[job.Run](n, "POST", "/api/v1/jobs/long:run", nil)
	n.eventually("it runs", func() bool { return n.worker.busy() == 1 })
	if a := n.call("POST", "/api/v1/jobs/long:run", nil); a.status != 409 || a.problem().Code != job.CodeOverlap {
		t.Errorf("a second run: %d %s", a.status, a.body)
	}
	open := ok[wire.RunPage](n, "GET", "/api/v1/runs", nil).Runs
	if len(open) != 1 || open[0].RunID != r.RunID || open[0].Worker != "n1" {
		t.Errorf("open: %+v", open)
	}
	ok[job.Run](n, "POST", "/api/v1/runs/"+r.RunID+":cancel", nil)
	n.eventually("it is canceled", func() bool { return n.count("long", job.RunCanceled) == 1 })
	if a := n.call("POST", "/api/v1/runs/"+r.RunID+":cancel", nil); a.status != 409 {
		t.Errorf("canceled again: %d %s", a.status, a.body)
	}
	if a := n.call("GET", "/api/v1/runs/r_zz.1.m", nil); a.status != 404 {
		t.Errorf("unknown run: %d", a.status)
	}
}

func TestBulkIsSafeToRerun(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	var lines strings.Builder
	for i := range 700 {
		name := ""
		if i%2 == 0 {
			name = fmt.Sprintf(`"name":"bulk-%03d",`, i)
		}
		fmt.Fprintf(&lines, `{%s"type":"queue","schedule":"H * * * *","payload":{"queue":"q"},"tags":{"n":"%d"}}`+"\n",
			name, i%7)
	}
	lines.WriteString(`{"name":"bad","type":"queue","schedule":"0 0 31 2 *","payload":{"queue":"q"}}` + "\n")
	send := func() map[string]int {
		a := n.call("POST", "/api/v1/jobs:bulk", lines.String(), "Content-Type", "application/x-ndjson")
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		count := map[string]int{}
		for i, line := range strings.Split(strings.TrimSpace(string(a.body)), "\n") {
			var r wire.BulkResult
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Line != i+1 {
				t.Fatalf("line %d: %v %s", i+1, err, line)
			}
			count[r.Status]++
			if r.Status == "error" && (r.Error == nil || r.Error.Field != "schedule") {
				t.Errorf("%s", line)
			}
		}
		return count
	}
	if c := send(); c["created"] != 700 || c["error"] != 1 {
		t.Errorf("first: %v", c)
	}
	if c := send(); c["exists"] != 700 || c["error"] != 1 {
		t.Errorf("again: %v", c)
	}
	if s := ok[wire.Status](n, "GET", "/api/v1/status", nil); s.Jobs != 700 {
		t.Errorf("%d jobs", s.Jobs)
	}
	// Listing: paging, prefix, tag and status.
	for query, want := range map[string]int{
		"": 700, "prefix=bulk-0": 50, "tag=" + url.QueryEscape("n=3"): 100, "status=paused": 0, "type=queue&status=scheduled": 700, "type=http": 0, "prefix=zzz": 0,
	} {
		total, cursor := 0, ""
		for {
			p := ok[wire.JobPage](n, "GET", "/api/v1/jobs?limit=33&"+query+"&cursor="+url.QueryEscape(cursor), nil)
			total += len(p.Jobs)
			if cursor = p.NextCursor; cursor == "" {
				break
			}
		}
		if total != want {
			t.Errorf("%q: %d jobs, want %d", query, total, want)
		}
	}
	if a := n.call("GET", "/api/v1/jobs?cursor=nonsense", nil); a.status != 400 || a.problem().Field != "cursor" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestCalendarsAndPreview(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	if a := n.call("POST", "/api/v1/jobs", tg.spec("w", "0 9 * * *", "calendars",
		[]string{"weekend"})); a.problem().Field != "calendars" {
		t.Errorf("an unknown calendar: %d %s", a.status, a.body)
	}
	ok[schedule.Calendar](n, "PUT", "/api/v1/calendars/weekend", `{"weekdays":["sat","sun"]}`)
	if j := n.create(tg.spec("w", "0 9 * * *", "calendars",
		[]string{"weekend"})); j.NextRunAt.Time().Weekday() == time.Saturday ||
		j.NextRunAt.Time().Weekday() == time.Sunday {
		t.Errorf("next run on a %s", j.NextRunAt.Time().Weekday())
	}
	p := ok[wire.PreviewResult](n, "POST", "/api/v1/schedule:preview",
		`{"schedule":"0 9 * * *","timezone":"Europe/London","count":7,"calendars":["weekend"]}`)
	fires := 0
	for _, f := range p.Times {
		if f.Fires {
			fires++
		}
	}
	if len(p.Times) != 7 || fires != 5 || p.Description == "" || p.Timezone != "Europe/London" {
		t.Errorf("preview: %+v", p)
	}
	if a := n.call("POST", "/api/v1/schedule:preview", `{"schedule":"0 0 31 2 *"}`); a.problem().Field != "schedule" {
		t.Errorf("%d %s", a.status, a.body)
	}
	// A zone in the expression is the job's zone, not a contradiction of the default.
	if j := n.create(tg.spec("tz", "TZ=America/New_York 0 9 * * *")); j.Timezone != "America/New_York" {
		t.Errorf("zone %q", j.Timezone)
	}
	n.call("DELETE", "/api/v1/jobs/w", nil)
	if a := n.call("DELETE", "/api/v1/calendars/weekend", nil); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := n.call("DELETE", "/api/v1/calendars/weekend", nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestWaitReason(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	n.create(map[string]any{"name": "q", "type": "queue", "schedule": "2020-01-01T00:00:00Z",
		"payload": map[string]any{"queue": "emails"}})
	n.eventually("the reason shows", func() bool { return strings.Contains(n.get("q").WaitReason, "no worker") })
	if s := ok[wire.Status](n, "GET", "/api/v1/status", nil); s.Backlog != 1 {
		t.Errorf("backlog %d", s.Backlog)
	}
}

func TestExportAndClockReset(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	n.create(tg.spec("e", "@manual", "overlap", "allow"))
	for range 5 {
		ok[job.Run](n, "POST", "/api/v1/jobs/e:run", nil)
	}
	n.eventually("all ran", func() bool { return n.count("e", job.RunSucceeded) == 5 })
	a := n.call("GET", "/api/v1/runs:export?after=2", nil)
	if got := strings.Count(string(a.body), "\n"); a.status != 200 || got != 3 {
		t.Errorf("%d lines: %s", got, a.body)
	}
	if p := ok[wire.RunPage](n, "GET", "/api/v1/runs?status=succeeded&limit=2", nil); len(p.Runs) != 2 ||
		p.NextCursor == "" || p.Runs[0].Seq < p.Runs[1].Seq {
		t.Errorf("%+v", p)
	}
	if a := n.call("POST", "/api/v1/cluster:clock-reset", nil); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := n.call("GET", "/healthz", nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := n.call("GET", "/readyz", nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
