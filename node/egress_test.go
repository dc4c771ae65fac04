package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/listen"
	"github.com/carillon-scheduler/carillon/node/membership"
)

// TestListenerRefusesJobs: what was made for a job is refused on every route, wherever it came from and whichever node
// would answer it.
func TestListenerRefusesJobs(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.DebugPprof = true })
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(n.call("GET", "/api/v1/openapi.json", nil).body, &doc); err != nil || len(doc.Paths) < 30 {
		t.Fatalf("%d paths: %v", len(doc.Paths), err)
	}
	type route struct{ method, path string }
	routes := []route{{"GET", membership.PeerPath}, {"GET", "/debug/pprof/"}, {"GET", "/debug/pprof/cmdline"},
		{"GET", "/"}, {"GET", "/nothing"}, {"OPTIONS", "/api/v1/jobs"}, {"HEAD", "/healthz"}, {"TRACE", "/api/v1/jobs"}}
	for path, methods := range doc.Paths {
		for m := range methods {
			if slices.Contains([]string{"get", "put", "post", "patch", "delete"}, m) {
				path := strings.NewReplacer("{ref}", "x", "{name}", "x", "{queue}", "x").Replace(path)
				routes = append(routes, route{strings.ToUpper(m), path})
			}
		}
	}
	if len(routes) < 50 {
		t.Fatalf("only %d routes", len(routes))
	}
	for _, rt := range routes {
		for _, value := range []string{egress.HeaderValue, ""} {
			rq, err := http.NewRequestWithContext(t.Context(), rt.method, "http://"+n.Addr()+rt.path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			rq.Header.Set(egress.Header, value)
			resp, err := n.client.Do(rq)
			if err != nil {
				t.Fatal(err)
			}
			var p client.Problem
			err = json.NewDecoder(resp.Body).Decode(&p)
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden || rt.method != "HEAD" && (err != nil || p.Code != job.CodeForbidden ||
				!strings.Contains(p.Message, egress.Header) || p.Remedy == "") {
				t.Errorf("%s %s, %q: %d, %v %+v", rt.method, rt.path, value, resp.StatusCode, err, p)
			}
		}
	}
}

// TestJobsDoNotReachTheirOwnCluster: an http job that would create a shell job, by an address that is allowed, is
// refused for good.
func TestJobsDoNotReachTheirOwnCluster(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	body := map[string]any{"name": "inner", "type": "shell", "schedule": "@manual",
		"payload": map[string]any{"command": "id"}}
	n.create(map[string]any{"name": "outer", "type": "http", "schedule": "@manual", "payload": map[string]any{
		"url": "http://" + n.Addr() + "/api/v1/jobs", "method": "POST", "body": body,
		"headers": map[string]string{"Connection": egress.Header}}})
	d := n.runToEnd("outer")
	if d.Status != job.RunDead || d.Reason != job.ReasonPermanent || d.Attempt != 1 ||
		!strings.HasPrefix(d.Error, "status 403 Forbidden") || !strings.Contains(d.Error, egress.Header) {
		t.Errorf("%+v", d.Run)
	}
	if a := n.call("GET", "/api/v1/jobs/inner", nil); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestEgressDeniedRun: the run of a job that may not reach its target is dead after one attempt, whatever its retry
// rule says, with the reason and the rule, and it is counted.
func TestEgressDeniedRun(t *testing.T) {
	t.Parallel()
	tg := newTarget(t)
	for name, c := range map[string]struct {
		change func(*Config)
		class  egress.Class
		rule   string
	}{
		"an operator's rule": {func(c *Config) { c.Egress.Deny = []string{"loopback"} }, egress.Operator,
			"rule loopback"},
		"reached from elsewhere": {func(c *Config) { c.Advertise = "n1.example.com:7400" }, egress.Loopback,
			"rule 127.0.0.0/8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, t.TempDir(), c.change)
			n.create(tg.spec("call", "@manual", "retry", map[string]any{"max_retries": 5, "base": "10ms"}))
			if d := n.runToEnd("call"); d.Status != job.RunDead || d.Reason != job.ReasonEgress || d.Attempt != 1 ||
				!strings.Contains(d.Error, c.rule) {
				t.Errorf("%+v", d.Run)
			}
			if len(tg.seen()) != 0 {
				t.Errorf("the target was called: %v", tg.seen())
			}
			if m := n.call("GET", "/metrics", nil).body; !bytes.Contains(m,
				fmt.Appendf(nil, "carillon_egress_denied_total{class=%q} 1\n", c.class)) {
				t.Errorf("not counted: %s", m)
			}
		})
	}
	if _, err := Open(Config{NodeID: "n1", Listen: "127.0.0.1:0", DataDir: t.TempDir(), Bootstrap: true,
		Egress: egress.Config{Allow: []string{"10.0.0.0/40"}}}); err == nil ||
		!strings.Contains(err.Error(), "--egress-allow") {
		t.Error(err)
	}
}

// runToEnd runs a job by hand and waits for the end of the run.
func (n *testNode) runToEnd(name string) (d client.RunDetail) {
	n.t.Helper()
	r := ok[job.Run](n, "POST", "/api/v1/jobs/"+name+":run", nil)
	n.eventually("the run of "+name+" ends", func() bool {
		d = ok[client.RunDetail](n, "GET", "/api/v1/runs/"+r.RunID, nil)
		return d.Status == job.RunDead || d.Status == job.RunSucceeded
	})
	return d
}

// TestOnLoopback: which nodes let jobs reach the services of their own machine.
func TestOnLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:7400": true, "127.8.0.1:1": true, "[::1]:7400": true,
		"localhost:7400": true, "0.0.0.0:7400": false, "[::]:7400": false, ":7400": false, "10.0.0.1:7400": false,
		"n1.example.com:7400": false, "localhost.example.com:7400": false, "nonsense": false} {
		if got := listen.OnLoopback(addr); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}
