package proof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// kindOf spreads the jobs over the kinds of workers: commands are few, because each is two processes.
func kindOf(i int) string {
	switch {
	case i%10 == 0:
		return kindCommand
	case i%2 == 0:
		return kindPull
	}
	return kindHTTP
}

// mixedOneOffs is a file of n one-offs for all kinds of workers. Every seventh is delivered at most once.
func (l *load) mixedOneOffs(n int, due time.Time) *batch {
	b := &batch{due: due.Truncate(time.Second), rerun: true}
	var file bytes.Buffer
	enc := json.NewEncoder(&file)
	for i := range n {
		kind, once := kindOf(i), i%7 == 3
		token := fmt.Sprintf("%s-%d-%d", kind, len(l.batches), i)
		b.tokens = append(b.tokens, token)
		spec := l.spec(token, token, b.due.UTC().Format(time.RFC3339), "")
		if kind == kindHTTP {
			spec.Workers = map[string]string{"crew": "away"} // not on the nodes
		} else {
			spec.Type = job.TypeQueue
			spec.Payload = fmt.Appendf(nil, `{"queue":%q,"data":{"url":%q}}`, kind, l.target.URL+"/"+token)
		}
		if once {
			spec.Delivery, spec.Retry = job.DeliverAtMostOnce, job.Retry{}
		}
		l.promise(token, spec)
		if err := enc.Encode(spec); err != nil {
			l.t.Fatal(err)
		}
	}
	b.file = file.Bytes()
	l.batches = append(l.batches, b)
	return b
}

// TestManyWorkers has many workers of all kinds come and go, most of them by kill -9, and leaders too, while they work;
// and then asks of every run what became of it: succeeded once in the history, seen by the target, and again only if
// its worker was killed while it had it.
func TestManyWorkers(t *testing.T) {
	heavy(t)
	t.Parallel() // most of it is waiting
	for _, tool := range []string{"curl", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	runs, most, events, leaders, wave := 1200, 10, 12, 1, 150
	if harness.Long() {
		runs, most, events, leaders, wave = 50_000, 20, 150, 3, 1000
	}
	const lease = 10 * time.Second
	seed := harness.Seed(t)
	binary := harness.Build(t)
	target := harness.NewTarget(t)
	target.Behave(func(harness.Seen) (time.Duration, int) { return rand.N(120 * time.Millisecond), http.StatusOK })
	cl := harness.NewCluster(t, binary, 3, "--executors", "http", "--lease", lease.String())
	rng := rand.New(rand.NewPCG(seed, 1))
	l := newLoad(t, cl.Nodes[1], target, rng)
	l.cl, l.lease = cl, lease
	c := &crew{t: t, binary: binary, lease: lease, rng: rng}
	var addrs []string
	for _, n := range cl.Nodes {
		addrs = append(addrs, n.Addr)
	}
	c.addrs = strings.Join(addrs, ",")
	kinds := []string{kindHTTP, kindPull, kindHTTP, kindPull, kindCommand}
	for i := range most * 4 / 5 {
		c.add(kinds[i%len(kinds)], "", "")
	}

	began := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		for sent := 0; sent < runs && !t.Failed(); sent += wave {
			// Always some work ahead, and never so much that all of it is claimed by the first worker.
			harness.Within(time.Minute, func() bool { return target.Done() >= sent-2*wave || t.Failed() })
			b := l.mixedOneOffs(wave, time.Now().Add(time.Second))
			var err error
			for range 30 { // a leader may die over it; a file can be sent again
				if err = l.send(b); err == nil {
					break
				}
				time.Sleep(200 * time.Millisecond)
			}
			if err != nil {
				t.Errorf("bulk create: %v", err)
			}
		}
	})
	for i := range events {
		want := runs * (i + 1) / (events + 2)
		if !harness.Within(2*time.Minute, func() bool { return target.Done() >= want || t.Failed() }) {
			t.Errorf("only %d of %d requests after two minutes more", target.Done(), want)
		}
		if t.Failed() {
			break
		}
		if (i+1)%(events/(leaders+1)) == 0 && leaders > 0 {
			leaders--
			n := cl.Leader()
			n.Kill("leading")
			c.kill() // without a report
			n.Start()
			continue
		}
		switch k := rng.IntN(8); {
		case k == 0:
			m := c.leave()
			c.stop(m)
			c.add(m.kind, "", "")
		case k == 1 && len(c.members) < most:
			c.add(kinds[rng.IntN(len(kinds))], "", "")
		default:
			c.kill()
		}
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	l.drained(time.Now(), 2*time.Minute)
	took := time.Since(began)
	for _, m := range c.members {
		c.stop(m)
	}
	l.digests = cl.Same(time.Minute)
	evidence := l.evidence()
	evidence.Faults = append(evidence.Faults, c.outages...)
	r := l.judge(evidence)

	byKind, givenUp := map[string]int{}, 0
	for _, rec := range evidence.Final.History {
		kind, _, _ := strings.Cut(rec.Worker, "-")
		byKind[kind]++
		if rec.Status == job.RunLost {
			givenUp++
		}
	}
	for _, kind := range kinds {
		if byKind[kind] == 0 {
			t.Errorf("no run was done by a worker of kind %s", kind)
		}
	}
	if n := byKind[kindHTTP] + byKind[kindPull] + byKind[kindCommand]; n != len(evidence.Final.History) {
		t.Errorf("%d of %d attempts were made by none of the crew: %v", len(evidence.Final.History)-n,
			len(evidence.Final.History),
			byKind)
	}
	if r.Runs != runs {
		t.Errorf("%d runs, of %d", r.Runs, runs)
	}
	if harness.Long() && r.LostWorkers == 0 {
		t.Error("no worker was killed while it had a run: this shows nothing")
	}
	t.Logf("%d runs in %s (%.0f/s); attempts %v; %d repeated, %d attempts lost with their worker, %d of those given up (at most once)", r.Runs, took.Round(time.Second),
		float64(r.Runs)/took.Seconds(), byKind, r.Repeated, r.LostWorkers, givenUp)
	t.Logf("%d workers added, %d killed (%d of them came back as themselves), %d stopped in good order; %d nodes killed",
		c.counts.added, c.counts.killed, c.counts.back, c.counts.stopped, len(cl.Outages()))
	cl.StopAndCheck()
}
