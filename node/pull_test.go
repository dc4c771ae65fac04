package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func queueSpec(name string, more ...any) map[string]any {
	m := map[string]any{"name": name, "type": "queue", "schedule": "@manual",
		"payload": map[string]any{"queue": "q", "data": name}}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// poll polls, and again if that fails, as the documentation says: on a busy machine leaders come and go.
func (n *testNode) poll(q job.Poll) (r job.PollReply) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		p, err := n.try("POST", "/api/v1/workers:poll?queue=q", q)
		if err == nil && p.status == http.StatusOK && json.Unmarshal(p.body, &r) == nil {
			return r
		}
		if err != nil || p.status != http.StatusServiceUnavailable {
			n.t.Errorf("poll: %d %s, %v", p.status, p.body, err)
			return r
		}
	}
	n.t.Error("no poll is answered")
	return r
}

func (n *testNode) complete(r job.Assignment) job.Answer {
	n.t.Helper()
	return ok[job.ReportReply](n, "POST", "/api/v1/workers:report?queue=q", job.Report{
		Results: []job.Result{{Ref: job.Ref{Claim: r.Claim}, Outcome: job.OutcomeSucceeded}}}).Results[0]
}

// pullers counts the sessions that workers of a queue with a name have.
func (c *cluster) pullers(name string) (n int) {
	for _, m := range c.members {
		if e := m.tracker.Epoch(); e != nil {
			for _, w := range e.Scheduler.Workers() {
				if w.Worker == name {
					n++
				}
			}
		}
	}
	return n
}

// Every node takes the calls of workers of queues; a poll that waits at one is given up when its client hangs up.
func TestPullThroughAnyNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	leader := c.leader()
	a, b := c.others(leader)[0], c.others(leader)[1]
	a.create(queueSpec("one"))

	answers := make(chan job.PollReply, 1)
	go func() { answers <- a.poll(job.Poll{Worker: "w", Free: 2, Wait: job.Duration(30 * time.Second)}) }()
	time.Sleep(50 * time.Millisecond)
	ok[job.Run](b.testNode, "POST", "/api/v1/jobs/one:run", nil)
	r := <-answers
	if len(r.Runs) != 1 || r.Runs[0].JobName != "one" {
		t.Fatalf("%+v", r)
	}
	beat := job.Heartbeat{Runs: []job.Ref{{Claim: r.Runs[0].Claim}}}
	if x := ok[job.HeartbeatReply](leader.testNode, "POST", "/api/v1/workers:heartbeat?queue=q",
		beat); x.Runs[0].Status != job.StatusOK {
		t.Errorf("%+v", x)
	}
	if d := ok[wire.RunDetail](b.testNode, "GET", "/api/v1/runs/"+r.Runs[0].Run.String(),
		nil); d.Status != job.RunRunning || d.Worker != "w" {
		t.Errorf("%+v", d.Run)
	}
	if x := b.complete(r.Runs[0]); x.Status != job.StatusOK || x.Repeated {
		t.Errorf("%+v", x)
	}
	if x := a.complete(r.Runs[0]); x.Status != job.StatusOK || !x.Repeated {
		t.Errorf("%+v", x)
	}
	if p := a.call("POST", "/api/v1/workers:poll?queue=nope", "{}"); p.status != 404 ||
		p.problem().Code != job.CodeUnknownQueue {
		t.Errorf("%d %s", p.status, p.body)
	}

	// The client of a follower hangs up. The leader must hear of it: what is claimed afterwards is not for that poll.
	polls := func() int { return c.pullers("hangs-up") }
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		rq, err := http.NewRequestWithContext(ctx, "POST", "http://"+a.Addr()+"/api/v1/workers:poll?queue=q",
			bytes.NewReader([]byte(`{"worker":"hangs-up","wait":"50s"}`)))
		if err != nil {
			t.Error(err)
			return
		}
		if res, err := a.client.Do(rq); err == nil {
			res.Body.Close()
			t.Error("answered")
		}
	}()
	leader.eventually("it polls", func() bool { return polls() == 1 })
	hangUp()
	<-gone
	leader.eventually("its poll is over", func() bool { return polls() == 0 })
	run := ok[job.Run](b.testNode, "POST", "/api/v1/jobs/one:run", nil)
	if r := a.poll(job.Poll{Free: 1, Wait: job.Duration(20 * time.Second)}); len(r.Runs) != 1 ||
		r.Runs[0].Run.String() != run.RunID || r.Runs[0].Attempt != 1 {
		t.Errorf("%+v", r)
	} else {
		a.complete(r.Runs[0])
	}
}

// The answer to a poll is lost between two nodes. It is not sent again, the client is told, and its next poll gets the
// run.
func TestPullAnswerLostBetweenNodes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, func(cfg *Config) { cfg.Executors, cfg.TTL = nil, time.Minute })
	leader := c.leader()
	via := c.others(leader)[0]
	via.create(queueSpec("one"))
	session, lost := "", false
	for try := 0; try < 20 && !lost; try++ {
		// The session was written before anything was delivered, or after all of it: the session has no claims, and it
		// still tells.
		session = via.poll(job.Poll{Worker: "w", Session: session, Free: 0}).Session
		run := ok[job.Run](via.testNode, "POST", "/api/v1/jobs/one:run", nil)
		leader.link.lose.Store(1) // of the next answer; another request may be the one that loses it
		p := via.call("POST", "/api/v1/workers:poll?queue=q", job.Poll{Session: session, Free: 1,
			Wait: job.Duration(5 * time.Second)})
		leader.link.lose.Store(0)
		var r job.PollReply
		if lost = p.status == 503 && p.problem().Code == job.CodeOutcomeUnknown; lost {
			r = via.poll(job.Poll{Session: session, Free: 1, Wait: job.Duration(20 * time.Second)})
		} else if json.Unmarshal(p.body, &r) != nil {
			t.Fatalf("%d %s", p.status, p.body)
		}
		if len(r.Runs) != 1 || r.Runs[0].Run.String() != run.RunID || r.Runs[0].Attempt != 1 {
			t.Fatalf("%+v", r)
		}
		if x := via.complete(r.Runs[0]); x.Status != job.StatusOK {
			t.Errorf("%+v", x)
		}
		session = r.Session
	}
	if !lost {
		t.Error("no answer was lost")
	}
	for _, r := range via.runs("one") {
		if r.Status != job.RunSucceeded || r.Attempt != 1 {
			t.Errorf("%+v", r)
		}
	}
}

// A node that stops tells those whose polls wait there, instead of breaking their connections off.
func TestPullThroughANodeThatStops(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	for _, m := range []*member{c.others(c.leader())[0], c.leader()} {
		if m.call("GET", "/api/v1/jobs/one", nil).status == 404 {
			m.create(queueSpec("one"))
		}
		answer := make(chan apiAnswer)
		go func() {
			for { // it waits for a third of the lease at most
				p, err := m.try("POST", "/api/v1/workers:poll?queue=q", `{"worker":"waits","wait":"50s"}`)
				if err != nil {
					t.Errorf("broken off: %v", err)
				}
				if p.status != 200 {
					answer <- p
					return
				}
			}
		}()
		m.eventually("it polls", func() bool { return c.pullers("waits") > 0 })
		go m.cancel()
		if p := <-answer; p.status != 503 {
			t.Errorf("%d %s", p.status, p.body)
		}
		m.stop()
		m.restart()
	}
}

// Workers in Go work on while leaders die: every run is done, none by two at the same time, and what was done under an
// old claim does not count.
func TestPullWorkersOverFailovers(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	first := c.leader()
	const jobs, rounds = 10, 12
	for i := range jobs {
		first.create(queueSpec(fmt.Sprintf("job-%d", i), "overlap", "allow"))
	}
	var addrs []string
	for _, m := range c.members {
		addrs = append(addrs, m.Addr())
	}
	var mu sync.Mutex
	live := map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for i := range 2 {
		workers.Go(func() {
			w := client.Worker{Addrs: addrs, Queue: "q", Name: fmt.Sprintf("w%d", i), Concurrency: 8,
				Handler: func(_ context.Context, r *client.Run) error {
					mu.Lock()
					if live[r.RunID]++; live[r.RunID] > 1 {
						t.Errorf("%s is being done twice", r.RunID)
					}
					mu.Unlock()
					time.Sleep(20 * time.Millisecond)
					mu.Lock()
					live[r.RunID]--
					mu.Unlock()
					return nil
				}}
			if err := w.Run(ctx); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	via := c.others(first)[0]
	started := 0
	for round := range rounds {
		if round == rounds/2 {
			first.crash()
		}
		for i := range jobs {
			via.eventually("a run is made", func() bool {
				p := via.call("POST", fmt.Sprintf("/api/v1/jobs/job-%d:run", i), nil, "Idempotency-Key",
					fmt.Sprintf("%d-%d", round, i))
				return p.status/100 == 2
			})
			started++
		}
	}
	done := func() int {
		n := 0
		for i := range jobs {
			n += via.count(fmt.Sprintf("job-%d", i), job.RunSucceeded)
		}
		return n
	}
	via.eventually("all runs are done", func() bool { return done() == started })
	stop()
	workers.Wait()
	if n := done(); n != started {
		t.Errorf("%d of %d", n, started)
	}
}
