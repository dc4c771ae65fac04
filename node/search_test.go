package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// find reads all pages of a search.
func find(m *member, query string) (names []string, scanned int) {
	m.t.Helper()
	for cursor := ""; ; {
		p := ok[wire.JobPage](m.testNode, "GET", "/api/v1/jobs?"+query+"&cursor="+cursor, nil)
		for _, j := range p.Jobs {
			names = append(names, j.Name)
		}
		scanned += p.Scanned
		if cursor = p.NextCursor; cursor == "" {
			return names, scanned
		}
	}
}

// act sends an action and reads its lines, as far as they come.
func act(m *member, key string, a wire.JobAction, each func(wire.JobActionProgress)) (last wire.JobActionProgress, err error) {
	m.t.Helper()
	data, err := json.Marshal(a)
	if err != nil {
		m.t.Fatal(err)
	}
	rq, err := http.NewRequestWithContext(m.t.Context(), "POST", "http://"+m.Addr()+"/api/v1/jobs:act", strings.NewReader(string(data)))
	if err != nil {
		m.t.Fatal(err)
	}
	rq.Header.Set("Idempotency-Key", key)
	rq.Header.Set("Content-Type", "application/json")
	res, err := m.client.Do(rq)
	if err != nil {
		return last, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return last, fmt.Errorf("%d %s", res.StatusCode, text)
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		var p wire.JobActionProgress
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return last, err
		}
		last = p
		if each != nil {
			each(p)
		}
	}
	if last.Error != nil {
		return last, last.Error
	}
	return last, lines.Err()
}

// What is searched, grouped, counted and done to many at once is the same before and after the leader dies as by kill
// -9; an action that it interrupts goes on from its last line, and does nothing twice.
func TestSearchAndActOverALeaderCrash(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	c.awaitWorkers(3)
	tg := newTarget(t)
	tg.set(500)
	old := c.leader()
	var lines strings.Builder
	const many = 450 // more than two pages
	for i := range many {
		fmt.Fprintf(&lines, `{"name":"Invoice-%03d","type":"http","schedule":"@manual","payload":{"url":%q},"retry":{"max_retries":0},"tags":{"k":"v"}}`+"\n", i, tg.URL)
	}
	for i := range 30 {
		fmt.Fprintf(&lines, `{"name":"other-%d","type":"queue","schedule":"@manual","payload":{"queue":"q"}}`+"\n", i)
	}
	// By its key a line that an election cut off is done when all are sent again.
	old.succeeds("all jobs are created", func() error {
		a := old.call("POST", "/api/v1/jobs:bulk", lines.String(), "Content-Type", "application/x-ndjson", "Idempotency-Key", "all")
		if bytes.Count(a.body, []byte(`"job_id"`)) != many+30 {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	})
	old.create(tg.spec("nightly", "30 2 * * *"))
	ahead := func(m *member) (wire.UpcomingPage, wire.UpcomingLoad) {
		t.Helper()
		return ok[wire.UpcomingPage](m.testNode, "GET", "/api/v1/upcoming?from=2040-01-01T00:00:00Z&limit=5", nil),
			ok[wire.UpcomingLoad](m.testNode, "GET", "/api/v1/upcoming:load?from=2040-01-01T00:00:00Z&to=2040-01-05T00:00:00Z&step=1h&bucket=2040-01-02T02:00:00Z", nil)
	}
	next, load := ahead(old)
	if len(next.Occurrences) != 5 || next.Occurrences[4].ScheduledAt.String() != "2040-01-05T02:30:00Z" || len(load.Buckets) != 4 || load.Top[0].Schedules[0].Example != "nightly" {
		t.Fatalf("%+v %+v", next, load)
	}
	const broken = 12
	for i := range broken {
		ok[job.Run](old.testNode, "POST", fmt.Sprintf("/api/v1/jobs/Invoice-%03d:run", i), nil)
	}
	groups := func(m *member, query string) wire.DeadGroupPage {
		t.Helper()
		return ok[wire.DeadGroupPage](m.testNode, "GET", "/api/v1/dead:groups"+query, nil)
	}
	old.eventually("all died", func() bool { return groups(old, "").Scanned == broken })
	via := c.others(old)
	look := func(m *member, stale string) bool {
		t.Helper()
		all, scanned := find(m, "q=iNVOICE&limit=100"+stale)
		failing, _ := find(m, "failing=true"+stale)
		some, _ := find(m, "q=voice-00&failing=true&namespace=*&limit=3"+stale)
		none, _ := find(m, "q=other&failing=true"+stale)
		g := groups(m, "?limit=5"+stale)
		runs := ok[wire.RunPage](m.testNode, "GET", "/api/v1/runs?error=STATUS+500&limit=100"+stale, nil)
		before := ok[wire.RunPage](m.testNode, "GET", "/api/v1/runs?to=2020-01-01T00:00:00Z&status=dead"+stale, nil)
		sum := ok[wire.RunSummary](m.testNode, "GET", "/api/v1/runs:summary?"+strings.TrimPrefix(stale, "&"), nil)
		good := len(all) == many && slices.IsSorted(all) && scanned >= many && len(failing) == broken && len(some) == 10 && len(none) == 0 &&
			len(g.Groups) == 1 && g.Groups[0].Count == broken && g.Groups[0].Jobs == broken && len(g.Groups[0].JobNames) == 5 && g.Total == broken &&
			len(runs.Runs) == broken && runs.Scanned >= broken && len(before.Runs) == 0 && sum.ByStatus["dead"] == broken && len(sum.Longest) == 0
		if !good && stale == "" {
			t.Errorf("%s: %d %v, %d failing, %d, %d, %+v, %d runs, %+v", m.id(), len(all), scanned, len(failing), len(some), len(none), g, len(runs.Runs), sum)
		}
		return good
	}
	look(old, "")
	for _, m := range via {
		m.eventually("a follower has it", func() bool { return look(m, "&stale=true") })
	}
	// The leader dies after the first page of an action.
	pause := wire.JobAction{Filter: wire.JobFilter{Text: "invoice"}, Action: "run"}
	first, err := act(old, "once", wire.JobAction{Filter: pause.Filter, Action: "run", DryRun: true}, nil)
	if err != nil || !first.Finished || first.Matched != many || first.Done != 0 {
		t.Fatalf("%+v %v", first, err)
	}
	crashed := false
	var last wire.JobActionProgress
	via[0].eventually("it is begun", func() bool { // not while a leader that had to wait for a processor is replaced
		last, err = act(via[0], "once", pause, func(p wire.JobActionProgress) {
			if !crashed {
				crashed = true
				old.crash()
			}
		})
		return crashed
	})
	if !crashed || last.Finished && last.Done != many {
		t.Fatalf("%+v %v", last, err)
	}
	via[0].eventually("it goes on", func() bool {
		pause.Cursor = last.Cursor
		p, err := act(via[0], "once", pause, nil)
		if p.Cursor != "" || p.Finished {
			last = p
		}
		return err == nil && p.Finished
	})
	if n, l := ahead(via[1]); !reflect.DeepEqual(n, next) || !reflect.DeepEqual(l, load) {
		t.Errorf("%+v %+v, before the crash %+v %+v", n, l, next, load)
	}
	dry := ok[wire.EditPreview](via[1].testNode, "PATCH", "/api/v1/jobs/nightly?dry_run=true", map[string]any{"schedule": "0 4 * * *"})
	if len(dry.Changes) != 1 || len(dry.NextAfter) != 10 || dry.NextAfter[0].Time().Hour() != 4 || via[1].get("nightly").Version != 1 {
		t.Errorf("%+v", dry)
	}
	// Every job was run once by it, those that broke before once more.
	via[0].eventually("all ran", func() bool { return groups(via[0], "").Scanned == many+broken })
	if hits := tg.seen(); len(hits) != many+broken {
		t.Errorf("%d runs reached the target, want %d", len(hits), many+broken)
	}
	// Ten first, then the rest.
	tg.set(200)
	g := groups(via[0], "").Groups[0]
	for _, step := range []struct{ max, want int }{{10, 10}, {0, many + broken - 10}} {
		q := wire.DeadQuery{Group: g.Key, Max: step.max}
		for range 2 { // a repetition is the same request
			r := ok[wire.DeadResult](via[0].testNode, "POST", "/api/v1/dead:redrive", q, "Idempotency-Key", fmt.Sprint("redrive-", step.max))
			if r.Count != step.want {
				t.Errorf("%d redriven, want %d", r.Count, step.want)
			}
		}
	}
	if left := groups(via[0], ""); left.Scanned != 0 || len(left.Groups) != 0 {
		t.Errorf("%+v", left)
	}
	// Deleting needs the number.
	gone := wire.JobAction{Filter: wire.JobFilter{Prefix: "other-"}, Action: "delete"}
	tries := 0
	via[1].succeeds("they are deleted", func() error { // one that is cut off by an election leaves fewer
		dry := gone
		dry.DryRun = true
		tries++
		p, err := act(via[1], fmt.Sprint("count-", tries), dry, nil)
		if err != nil {
			return fmt.Errorf("counting them: %w", err)
		}
		gone.Expect = &p.Matched
		done, err := act(via[1], fmt.Sprint("delete-", tries), gone, nil)
		if err == nil && (!done.Finished || done.Done != p.Matched) {
			t.Errorf("%+v", done)
		}
		return err
	})
	if names, _ := find(via[1], "q=other"); len(names) != 0 {
		t.Errorf("%q are still there", names)
	}
}
