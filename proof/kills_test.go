package proof

import (
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// killsOf is how many kills are asked for, over how long at least: CARILLON_KILLS, and CARILLON_KILLS_MINUTES, which is
// one for every sixteen kills unless it is given.
func killsOf(t *testing.T) (kills int, span time.Duration) {
	t.Helper()
	text := os.Getenv("CARILLON_KILLS")
	if text == "" {
		t.Skip("set CARILLON_KILLS, to 1000 for an hour, to run it; give -timeout as well")
	}
	kills, err := strconv.Atoi(text)
	if err != nil || kills < 1 {
		t.Fatalf("CARILLON_KILLS is %q, not a number of kills", text)
	}
	minutes := float64(kills) / 16
	if text := os.Getenv("CARILLON_KILLS_MINUTES"); text != "" {
		if minutes, err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatal(err)
		}
	}
	return kills, time.Duration(minutes * float64(time.Minute))
}

// TestKills kills leaders, followers and workers at random moments under a mixed load: jobs that fire every second,
// runs by hand, one-offs for nodes, workers and workers of queues. What is down comes back at once. Then the checker asks of
// every occurrence what became of it.
func TestKills(t *testing.T) {
	kills, span := killsOf(t)
	for _, tool := range []string{"curl", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	const lease, wave = 8 * time.Second, 20
	seed := harness.Seed(t)
	l := newClusterLoad(t, seed, 12, mixed, "--snapshot-threshold", "2000", "--snapshot-interval", "5s", "--lease",
		lease.String())
	l.lease, l.anyExcuse = lease, true
	l.target.Behave(func(harness.Seen) (time.Duration, int) { return rand.N(300 * time.Millisecond), http.StatusOK })
	var addrs []string
	for _, n := range l.cl.Nodes {
		addrs = append(addrs, n.Addr)
	}
	c := &crew{t: t, binary: harness.Build(t), addrs: strings.Join(addrs, ","), lease: lease, rng: l.rng}
	for _, kind := range []string{kindHTTP, kindPull, kindHTTP, kindPull, kindCommand} {
		c.add(kind, "", "")
	}
	stop := l.triggerForever(seed, manualJobs, 500*time.Millisecond)

	began := time.Now()
	said, sent := began, began
	byKind := map[string]int{}
	send := func() {
		b := l.mixedOneOffs(wave, time.Now().Add(2*time.Second))
		var err error
		for range 50 { // a leader may die over it; a file can be sent again
			if err = l.send(b); err == nil {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Errorf("bulk create: %v", err)
	}
	for i := range kills {
		time.Sleep(time.Until(began.Add(span * time.Duration(i) / time.Duration(kills))))
		time.Sleep(time.Duration(l.rng.Int64N(int64(time.Second))))
		if time.Since(sent) > 10*time.Second {
			sent = time.Now()
			send()
		}
		kind := []string{"leader", "follower", "worker"}[l.rng.IntN(3)]
		byKind[kind]++
		if kind == "worker" {
			c.kill()
		} else {
			n := l.cl.Leader()
			if kind == "follower" {
				others := l.cl.Others(n)
				n = others[l.rng.IntN(len(others))]
			}
			n.Kill(kind)
			time.Sleep(time.Duration(l.rng.Int64N(int64(time.Second))))
			n.Start()
		}
		if t.Failed() {
			t.FailNow()
		}
		if time.Since(said) > time.Minute || i+1 == kills {
			said = time.Now()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			t.Logf("%s: %d of %d kills %v, %d requests seen, %d MiB in use by the test", time.Since(began).Round(time.Second),
				i+1, kills, byKind, l.target.Arrived(), m.HeapAlloc>>20)
		}
	}
	stop()
	l.cl.Leader()
	end := l.endAll(10 * time.Second)
	l.drained(end, 3*time.Minute)
	for _, m := range c.members {
		c.stop(m)
	}
	l.digests = l.cl.Same(time.Minute)
	evidence := l.evidence()
	evidence.Faults = append(evidence.Faults, c.outages...)
	r := l.judge(evidence)
	outcomes := map[job.RunStatus]int{}
	for _, rec := range evidence.Final.History {
		if rec.RunID != "" {
			outcomes[rec.Status]++
		}
	}
	t.Logf("%d kills %v in %s: %v; %d runs repeated, %d attempts lost with their worker, %d occurrences not run", kills,
		byKind, time.Since(began).Round(time.Second), outcomes,
		r.Repeated, r.LostWorkers, r.NotRun)
	l.cl.StopAndCheck()
}
