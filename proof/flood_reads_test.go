package proof

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// A viewer of one namespace asks two hundred times at once, for a minute, for what costs the leader most: all occurrences
// of a job that runs every second, and other reads over long times. The leader stays, its memory too, jobs run on, and
// another viewer is answered. How late runs start is reported, and not judged: the questions come from the same machine.
func TestViewerFlood(t *testing.T) {
	if !harness.Long() {
		t.Skip("long: CARILLON_LONG=1")
	}
	lags := newLagTarget(t)
	c := startFlooded(t)
	admin := c.admin()
	lags.feed(t, admin)
	viewer := func(name string) string {
		made, err := admin.CreateToken(t.Context(), client.TokenRequest{Name: name, Role: job.RoleViewer, Namespace: job.DefaultNamespace})
		if err != nil {
			t.Fatal(err)
		}
		return made.Text
	}
	greedy, honest := viewer("greedy"), viewer("honest")
	lags.next(t, 200)
	usual := lags.next(t, 500)
	before := c.status(t)
	lead := c.byID(before.Leader)
	memory := residentOf(t, lead)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	paths := []string{
		"/jobs/tick-0/occurrences?to=9999-01-01T00:00:00Z", "/jobs/tick-1/occurrences?to=9999-01-01T00:00:00Z&cells=5000",
		"/upcoming?limit=1000", "/upcoming:load?step=1m", "/runs:summary", "/jobs?q=nothing", "/runs?error=nothing", "/jobs/tick-2/stats",
	}
	var mu sync.Mutex
	counts := map[int]int{}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			web := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer web.CloseIdleConnections()
			for ctx.Err() == nil {
				path := paths[0]
				if i%4 == 0 {
					path = paths[i/4%len(paths)]
				}
				rq, err := http.NewRequestWithContext(ctx, "GET", "https://"+lead.addr+"/api/v1"+path, nil)
				if err != nil {
					panic(err)
				}
				status, _ := ask(web, rq, greedy)
				mu.Lock()
				counts[status]++
				mu.Unlock()
			}
		})
	}
	most, answered, slowest := int64(0), 0, time.Duration(0)
	other := client.New(lead.addr, client.WithToken(honest))
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := other.Occurrences(ctx, "tick-3", client.OccurrenceQuery{}); err == nil {
			answered++
			slowest = max(slowest, time.Since(began))
		} else if ctx.Err() == nil {
			t.Errorf("another viewer: %v", err)
		}
		most = max(most, residentOf(t, lead)-memory)
	}
	during := lags.next(t, 500)
	all.Wait()
	after := c.status(t)
	if after.Term != before.Term || after.Leader != before.Leader {
		t.Errorf("%s leads in term %d; before it was %s in term %d", after.Leader, after.Term, before.Leader, before.Term)
	}
	if most > 300<<20 {
		t.Errorf("the leader had %d MiB more in memory", most>>20)
	}
	if answered == 0 {
		t.Error("another viewer was never answered")
	}
	t.Logf("lag p50 %s, p99 %s before, %s, %s during; answers %v; another viewer %d, slowest %s; leader's memory %+d MiB",
		at(usual, 50), at(usual, 99), at(during, 50), at(during, 99), counts, answered, slowest, most>>20)
}
