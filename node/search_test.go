package node

import (
	"fmt"
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

// What is searched, grouped and counted is the same before and after the leader dies as by kill -9.
func TestSearchOverALeaderCrash(t *testing.T) {
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
	if a := old.call("POST", "/api/v1/jobs:bulk", lines.String(), "Content-Type", "application/x-ndjson"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
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
	old.crash()
	via[0].eventually("another one leads", func() bool { return via[0].call("GET", "/api/v1/jobs?limit=1", nil).status == 200 })
	look(via[0], "")
	look(via[1], "")
	// Ten first, then the rest.
	tg.set(200)
	g := groups(via[0], "").Groups[0]
	for _, step := range []struct{ max, want int }{{10, 10}, {0, broken - 10}} {
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
}
