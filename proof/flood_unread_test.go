package proof

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/slowread/slowreadtest"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// Attack, for a minute each: a stranger, who asks for the page and with tokens that are none, and then a viewer of a
// namespace with large jobs, open a thousand connections from ten addresses, ask 64 times on each, and take no answer.
// The leader stays, its memory stays within 400 MiB of the usual, of which a node that is busy lets 192 MiB pile
// up as garbage, jobs run on, and another viewer is answered.
func TestAnswersNotTaken(t *testing.T) {
	if !harness.Long() {
		t.Skip("takes minutes: CARILLON_LONG=1, as .ci/deep long does")
	}
	const most = 400 << 20
	lags := newLagTarget(t)
	c := startFlooded(t)
	admin := c.admin()
	lags.feed(t, admin)
	for i := range 60 {
		spec := job.Spec{Name: fmt.Sprintf("large-%d", i), Namespace: "team-a", Type: job.TypeHTTP, Schedule: "@manual",
			Payload: []byte(`{"url":"http://127.0.0.1:1/","body":"` + strings.Repeat("x", 120<<10) + `"}`)}
		if _, err := admin.CreateJob(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	viewer := func(name string) string {
		made, err := admin.CreateToken(t.Context(), client.TokenRequest{Name: name, Role: job.RoleViewer, Namespace: "team-a"})
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
	for _, a := range []struct {
		what, token string
		paths       []string
	}{
		{"a stranger", "", []string{"/ui/", "/ui/app/main.js", "/healthz", "/api/v1/jobs"}},
		{"a viewer", greedy, []string{"/api/v1/jobs?limit=1000", "/api/v1/jobs/large-1", "/api/v1/whoami", "/api/v1/runs?limit=1000"}},
	} {
		attack := sendBodies(t, lead.addr, "unread:"+strings.Join(a.paths, ","), a.token)
		peak, answered, slowest := int64(0), 0, time.Duration(0)
		other := client.New(lead.addr, client.WithToken(honest))
		for stop := time.Now().Add(time.Minute); time.Now().Before(stop); {
			began := time.Now()
			if _, err := other.ListJobs(t.Context(), client.JobQuery{Limit: 5}); err == nil {
				answered++
				slowest = max(slowest, time.Since(began))
			}
			peak = max(peak, residentOf(t, lead)-memory)
		}
		during := lags.next(t, 500)
		counts := attack.end()
		after := c.status(t)
		if after.Term != before.Term || after.Leader != before.Leader {
			t.Errorf("%s: %s leads in term %d; before it was %s in term %d", a.what, after.Leader, after.Term, before.Leader, before.Term)
		}
		if peak > most {
			t.Errorf("%s: the leader has %d MiB more in memory", a.what, peak>>20)
		}
		if answered == 0 {
			t.Errorf("%s: another viewer is not answered", a.what)
		}
		t.Logf("%s: lag p50 %s, p99 %s before, %s, %s during; %d connections; another viewer %d, slowest %s; leader's memory %+d MiB of %d",
			a.what, at(usual, 50), at(usual, 99), at(during, 50), at(during, 99), counts[connected], answered, slowest, peak>>20, memory>>20)
	}
}

// connected is what leaveUnread counts.
const connected = 0

// leaveUnread asks over a thousand connections and takes no answer, until its input ends.
func leaveUnread(addr, token string, paths []string) int {
	end := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	counts := map[int]int{}
	for i := range 1000 {
		all.Go(func() { // one connection at a time, for ten seconds or until the node closes it
			for n := i; ; {
				if conn, err := slowreadtest.Dial(addr, fmt.Sprintf("127.0.0.%d", 20+i%10)); err == nil {
					for k := 0; k < 64 && err == nil; k++ {
						err = conn.Get(paths[n%len(paths)], token)
						n++
					}
					wait(end, 10*time.Second)
					mu.Lock()
					counts[connected]++
					mu.Unlock()
					conn.Close()
				}
				if wait(end, time.Second) {
					return
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(end)
	all.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(counts); err != nil {
		return 1
	}
	return 0
}

// wait says that c was closed within a time.
func wait(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(d):
		return false
	}
}
