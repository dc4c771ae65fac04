package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
)

func TestAnyNodeAnswers(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	r := newRecorder(t)
	leader := c.leader()
	f, g := c.others(leader)[0], c.others(leader)[1]

	// Written through one follower, read through another.
	j := f.create(r.spec("a", "0 0 1 1 *"))
	if got := g.get("a"); got.ID != j.ID {
		t.Errorf("created %s, read %s", j.ID, got.ID)
	}
	// The same request through another node is answered with the first outcome.
	first := f.call("POST", "/api/v1/jobs", r.spec("b", "@manual"), "Idempotency-Key", "k1")
	again := g.call("POST", "/api/v1/jobs", r.spec("b", "@manual"), "Idempotency-Key", "k1")
	if first.status != 201 || again.status != 201 || again.header.Get("Idempotent-Replay") != "true" ||
		string(first.body) == "" {
		t.Errorf("first %d %s\nagain %d %v %s", first.status, first.body, again.status, again.header, again.body)
	}
	// Errors, and what goes with them, come through as they are.
	if a := f.call("GET", "/api/v1/jobs/unknown", nil); a.status != 404 || a.problem().Code != job.CodeNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := f.call("POST", "/api/v1/jobs", `{"name":"x"`); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := f.call("POST", "/api/v1/jobs", strings.Repeat("x", 2<<20)); a.status != 413 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := f.call("PUT", "/api/v1/jobs/a", r.spec("a", "@manual"), "If-Match", `"7"`); a.status != 412 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := f.call("GET", "/api/v1/jobs/a", nil, "Origin", "http://evil.example", "Sec-Fetch-Site",
		"cross-site"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := f.call("POST", "/api/v1/jobs/a:run", nil, "Origin", "http://evil.example", "Sec-Fetch-Site",
		"cross-site"); a.status != 403 {
		t.Errorf("from another site: %d %s", a.status, a.body)
	}
	// Streams.
	lines := `{"name":"l1","type":"queue","schedule":"@manual","payload":{"queue":"q"}}` + "\n" + `{"name":"l2","type":"queue","schedule":"@manual","payload":{"queue":"q"}}` + "\n"
	if a := f.call("POST", "/api/v1/jobs:bulk", lines); a.status != 200 || strings.Count(string(a.body), "\n") != 2 {
		t.Errorf("bulk: %d %s", a.status, a.body)
	}
	if g.get("l2").Name != "l2" {
		t.Error("the bulk create was not done")
	}
	if a := g.call("DELETE", "/api/v1/jobs/l2", nil); a.status != 204 {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	// A stale read is answered where it is asked, with its age.
	f.eventually("the follower has it", func() bool {
		return f.call("GET", "/api/v1/jobs/a?stale=true",
			nil).status == 200
	})
	a := f.call("GET", "/api/v1/jobs/a?stale=true", nil)
	if ms, err := strconv.Atoi(a.header.Get(forward.HeaderStale)); err != nil || ms < 0 || ms > 5000 {
		t.Errorf("age %q", a.header.Get(forward.HeaderStale))
	}
	if a := leader.call("GET", "/api/v1/jobs/a?stale=true", nil); a.header.Get(forward.HeaderStale) != "0" {
		t.Errorf("age on the leader: %q", a.header.Get(forward.HeaderStale))
	}
	// A request that was forwarded once is not forwarded again.
	for _, path := range []string{"/api/v1/jobs/a", "/api/v1/runs:export"} {
		a := f.call("GET", path, nil, forward.HeaderForwarded, "n9")
		if a.status != 421 || a.problem().Code != job.CodeNotLeader ||
			a.header.Get(wire.LeaderHeader) != leader.Addr() {
			t.Errorf("forwarded twice: %d %v %s", a.status, a.header, a.body)
		}
	}
	if a := f.call("POST", "/api/v1/workers:poll", `{}`); a.status != 421 ||
		a.header.Get(wire.LeaderHeader) != leader.Addr() {
		t.Errorf("a worker at the wrong node: %d %v %s", a.status, a.header, a.body)
	}
	// Only a node may say what the key of a request is.
	if x, y := f.create(r.spec("", "@manual"), forward.HeaderKey, "mine"), f.create(r.spec("", "@manual"),
		forward.HeaderKey, "mine"); x.ID == y.ID {
		t.Error("a client's word was taken for a node's")
	}
	// Status, as the leader has it, from anywhere.
	c.awaitWorkers(3)
	f.eventually("the members are described", func() bool {
		s := f.status("")
		for _, m := range s.Members {
			if m.State == "" || m.SkewMS == nil || m.Lag == nil || *m.SkewMS > 500 || *m.SkewMS < -500 {
				return false
			}
		}
		return s.Node == f.id() && s.Leader == leader.id() && len(s.Members) == 3 && len(s.Workers) == 3
	})
	if body := string(leader.call("GET", "/metrics", nil).body); strings.Count(body,
		"\ncarillon_clock_skew_seconds{") != 3 {
		t.Error("the metrics lack clocks")
	}
}

// A repetition by the forwarder is an echo of the first try, and does not look like one to the client.
func TestForwardedRepeatIsDoneOnce(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	leader := c.leader()
	leader.create(map[string]any{"name": "a", "type": "queue", "schedule": "@manual",
		"payload": map[string]any{"queue": "q"}})
	send := func(method, path string, body any, key string, repeat bool) apiAnswer {
		h := []string{forward.HeaderForwarded, "n9", forward.HeaderKey, key}
		if repeat {
			h = append(h, forward.HeaderRepeat, "true")
		}
		return leader.call(method, path, body, h...)
	}
	spec := map[string]any{"type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}}
	first, again := send("POST", "/api/v1/jobs", spec, "c", false), send("POST", "/api/v1/jobs", spec, "c", true)
	if first.status != 201 || again.status != 201 || first.header.Get("Location") != again.header.Get("Location") ||
		again.header.Get("Idempotent-Replay") != "" {
		t.Errorf("%d %s\n%d %v %s", first.status, first.body, again.status, again.header, again.body)
	}
	// A delete that was done refuses to be done again, unless it is known to be the same.
	if a := send("DELETE", "/api/v1/jobs/a", nil, "d", false); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := send("DELETE", "/api/v1/jobs/a", nil, "d", true); a.status != 204 ||
		a.header.Get("Idempotent-Replay") != "" {
		t.Errorf("repeated: %d %v %s", a.status, a.header, a.body)
	}
	if a := send("DELETE", "/api/v1/jobs/a", nil, "e", true); a.status != 404 {
		t.Errorf("another one: %d %s", a.status, a.body)
	}
}

// Two of three are gone: writes are refused with the reason, reads that are content with less are answered.
func TestNoQuorum(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	leader := c.leader()
	leader.create(map[string]any{"name": "a", "type": "queue", "schedule": "@manual",
		"payload": map[string]any{"queue": "q"}})
	last := c.others(leader)[0]
	last.eventually("it has the job", func() bool {
		return last.call("GET", "/api/v1/jobs/a?stale=true",
			nil).status == 200
	})
	for _, m := range c.members {
		if m != last {
			m.crash()
		}
	}
	begin := time.Now()
	a := last.call("POST", "/api/v1/jobs/a:run", nil)
	took := time.Since(begin)
	if p := a.problem(); a.status != 503 || p.Code != job.CodeNoLeader ||
		!strings.Contains(p.Message, "2 of 3 voters are unreachable") ||
		!strings.Contains(p.Remedy, "carillon cluster recover") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if took > forward.LeaderWait+2*time.Second {
		t.Errorf("it took %s", took)
	}
	if a := last.call("GET", "/api/v1/jobs/a?stale=true", nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	} else if ms, err := strconv.Atoi(a.header.Get(forward.HeaderStale)); err != nil || ms < 1000 {
		t.Errorf("age %q", a.header.Get(forward.HeaderStale))
	}
	s := last.status("?stale=true")
	if s.Ready || !strings.Contains(s.NotReady, "2 of 3 voters are unreachable") || len(s.Members) != 3 {
		t.Errorf("%+v", s)
	}
	for _, m := range c.others(last) {
		if !strings.Contains(s.NotReady, m.id()+" ("+m.cfg.Listen+")") {
			t.Errorf("%s is not named in %q", m.id(), s.NotReady)
		}
	}
}

// A write that is on its way when both followers die: its outcome is unknown, and that is said within the time
// that a request waits for a leader, with who is missing.
func TestWriteWhileTheMajorityDies(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	last := c.leader()
	last.create(unclaimedJob("a"))
	for _, m := range c.others(last) {
		m.crash()
	}
	a := last.call("POST", "/api/v1/jobs/a:pause", nil)
	p := a.problem()
	if a.status != 503 || p.Code != job.CodeOutcomeUnknown && p.Code != job.CodeNoLeader ||
		!strings.Contains(p.Message, "2 of 3 voters are unreachable") ||
		!strings.Contains(p.Remedy, "start one of them") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if p.Code == job.CodeOutcomeUnknown && (!strings.Contains(p.Message, "may or may not have been done") ||
		!strings.Contains(p.Remedy, "Idempotency-Key")) {
		t.Errorf("%s", a.body)
	}
	// Health says what status says, without asking anybody while the prober waits.
	last.eventually("readyz names who is missing", func() bool {
		a := last.call("GET", "/readyz", nil)
		p := a.problem()
		return a.status == 503 && strings.Contains(p.Message, "2 of 3 voters are unreachable") &&
			strings.Contains(p.Remedy, "carillon cluster recover")
	})
	if a := last.call("GET", "/api/v1/jobs/a?stale=true", nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := last.call("GET", "/healthz", nil); a.status != 200 { // restarting it would not help
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The answer of the leader is lost, and its connection with it: the node that forwarded asks again, and it is done
// once.
func TestLostAnswers(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3, func(cfg *Config) {
		cfg.Executors = nil                  // their workers' calls would be lost as well
		cfg.Raft.Heartbeat = 3 * time.Second // the same node should lead to the end
	})
	tries := 0
	c.underOneLeader(func(leader *member, fail func(string, ...any)) {
		defer leader.link.lose.Store(0)
		f := c.others(leader)[0]
		before := leader.status("?stale=true").Jobs
		tries++
		name := func(of string) string { return fmt.Sprint(of, tries) }
		spec := func(name string) map[string]any {
			return map[string]any{"name": name, "type": "queue", "schedule": "@manual",
				"payload": map[string]any{"queue": "q"}}
		}
		for i, of := range []string{"a", "b", "c"} {
			leader.link.lose.Store(int64(i + 1))
			a := f.call("POST", "/api/v1/jobs", spec(name(of)))
			if a.status != 201 || a.header.Get("Idempotent-Replay") != "" {
				fail("create: %d %s", a.status, a.body)
			}
		}
		leader.link.lose.Store(2)
		if a := f.call("GET", "/api/v1/jobs/"+name("a"), nil); a.status != 200 {
			fail("read: %d %s", a.status, a.body)
		}
		for _, verb := range []string{"pause", "resume", "run"} {
			leader.link.lose.Store(1)
			if a := f.call("POST", "/api/v1/jobs/"+name("a")+":"+verb, nil); a.status/100 != 2 {
				fail("%s: %d %s", verb, a.status, a.body)
			}
		}
		leader.link.lose.Store(0)
		var page wire.RunPage
		if a := f.call("GET", "/api/v1/jobs/"+name("a")+"/runs", nil); a.status != 200 ||
			json.Unmarshal(a.body, &page) != nil || len(page.Runs) != 1 {
			fail("not one run: %d %s", a.status, a.body)
		}
		leader.link.lose.Store(1)
		if a := f.call("DELETE", "/api/v1/jobs/"+name("b"), nil); a.status != 204 {
			fail("delete: %d %s", a.status, a.body)
		}
		line := `{"name":"` + name("l") + `","type":"queue","schedule":"@manual","payload":{"queue":"q"}}` + "\n"
		f.eventually("a stream is not repeated", func() bool { // it is answered if what is lost was said to another node
			leader.link.lose.Store(1)
			return f.call("POST", "/api/v1/jobs:bulk", line).problem().Code == job.CodeOutcomeUnknown || !leader.leads()
		})
		// If its outcome stays unknown, that is what is said.
		leader.link.lose.Store(1 << 40)
		if a := f.call("DELETE", "/api/v1/jobs/"+name("c"), nil); a.status != 503 ||
			a.problem().Code != job.CodeOutcomeUnknown {
			fail("%d %s", a.status, a.body)
		}
		leader.link.lose.Store(0)
		if s := leader.status("?stale=true"); s.Jobs != before+2 {
			fail("%d jobs, and before there were %d", s.Jobs, before)
		}
	})
}

// A leader that hangs closes nothing and answers nothing. Requests on their way to it, and workers, go to its
// successor.
func TestHungLeader(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	c.awaitWorkers(3)
	c.leader().create(map[string]any{"name": "a", "type": "queue", "schedule": "@manual",
		"payload": map[string]any{"queue": "q"}})
	leader := c.leader() // a busy machine may have elected another one since the start
	f := c.others(leader)[0]
	leader.link.hung.Store(true)

	// While it leads it is waited for, but not longer than its client waits.
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		f.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/api/v1/jobs/a", nil))
	}()
	select {
	case <-gone:
		if leader.leads() {
			t.Error("a leader that hangs answered")
		}
	case <-time.After(100 * time.Millisecond):
	}
	hangUp()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("a client's hanging up went unnoticed")
	}

	leader.link.noRaft.Store(true)
	ok[map[string]any](f.testNode, "POST", "/api/v1/jobs/a:pause", nil)
	f.eventually("the living workers have moved", func() bool {
		for _, m := range c.others(leader) {
			if e := m.tracker.Epoch(); e != nil {
				n := 0
				for _, w := range e.Scheduler.Workers() {
					if !w.Waiting && w.Worker != leader.id() {
						n++
					}
				}
				return n == 2
			}
		}
		return false
	})
	leader.link.hung.Store(false)
	leader.link.noRaft.Store(false)
	leader.eventually("it follows", func() bool {
		return leader.service.Ready() == nil &&
			leader.tracker.Epoch() == nil
	})
	if got := leader.get("a"); got.Status != job.StatusPaused {
		t.Errorf("it is %s", got.Status)
	}
}
