package apitest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

// What an attacker can do to a cluster that asks nobody is shown on a plain node, where it succeeds, and on a secure
// one, where it fails and changes nothing.

var modes = map[string]func(*node.Config){"plain": func(*node.Config) {}, "secure": apitest.Secure}

// tell sends a message as JSON and reads the answer into out.
func tell(t testing.TB, n *apitest.Node, path, token string, in, out any) (int, wire.Problem) {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	res := send(t, t.Context(), n, "POST", path, token, strings.NewReader(string(body)), "Content-Type", "application/json")
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p wire.Problem
	if res.StatusCode >= 400 {
		err = json.Unmarshal(data, &p)
	} else if out != nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		t.Fatalf("%s: %d %s", path, res.StatusCode, data)
	}
	return res.StatusCode, p
}

// tokenIf is a token of a secure node; a plain one asks for none.
func tokenIf(t testing.TB, n *apitest.Node, rq wire.TokenRequest) string {
	t.Helper()
	if !n.Options.Secure {
		return ""
	}
	return n.Token(t, rq)
}

func digest(t testing.TB, n *apitest.Node) string {
	t.Helper()
	d, err := n.State().DigestContent()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Attack: the whole state, by anyone who reaches the port.
func TestAttackOpenRoutes(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			n := apitest.Start(t, mode, func(c *node.Config) { c.DebugPprof = true })
			want := map[string]int{"plain": 200, "secure": 401}[name]
			for _, path := range []string{"/api/v1/backup", "/api/v1/status", "/api/v1/node", "/metrics", "/debug/pprof/cmdline"} {
				if status, _ := ask(t, n, "HEAD", path, "", ""); status != want {
					t.Errorf("%s: %d", path, status)
				}
			}
		})
	}
}

// Attack: a page whose name was made to mean a node's address on a LAN is of the node's origin to a browser. It has no
// token to send, and calls by a name that is not the node's; before names were looked at on every interface, it created
// a job on a plain node.
func TestAttackRebinding(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			n := apitest.Start(t, mode)
			before := digest(t, n)
			rq := httptest.NewRequest("POST", "/api/v1/jobs", strings.NewReader(spec))
			rq = rq.WithContext(context.WithValue(rq.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7400}))
			rq.Host = "evil.example"
			rq.Header.Set("Origin", "http://evil.example")
			rq.Header.Set("Sec-Fetch-Site", "same-origin")
			w := httptest.NewRecorder()
			n.Node.Handler().ServeHTTP(w, rq)
			if want := map[string]int{"plain": 403, "secure": 401}[name]; w.Code != want {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if digest(t, n) != before {
				t.Error("it changed something")
			}
		})
	}
}

// holder is a worker that took a run.
type holder struct {
	token   string
	session string
	run     job.Assignment
}

// open opens a session of a worker, in JSON.
func open(t testing.TB, n *apitest.Node, token string, p job.Poll) (session string) {
	t.Helper()
	for _, p.Secret = range []string{"known to this process only", ""} { // the first opens it, the second takes part
		var got job.PollReply
		if status, problem := tell(t, n, "/api/v1/workers:poll", token, p, &got); status != 200 || got.Session == p.Session {
			t.Fatalf("%d %+v", status, problem)
		}
		p.Session = got.Session
	}
	return p.Session
}

func takeOne(t testing.TB, n *apitest.Node, token, name string) holder {
	t.Helper()
	about := job.Poll{Worker: name, Types: []job.Type{job.TypeHTTP}}
	h := holder{token: token, session: open(t, n, token, about)}
	if _, _, err := n.Backend.CreateJob(t.Context(), job.Spec{Name: "one", Type: job.TypeHTTP, Schedule: "@manual", Payload: []byte(`{"url":"http://127.0.0.1:1/"}`)}, api.Request{Key: "create"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Backend.RunJob(t.Context(), "one", api.Request{Key: "run"}); err != nil {
		t.Fatal(err)
	}
	about.Free, about.Wait = 1, job.Duration(1e9)
	for {
		var got job.PollReply
		about.Session = h.session
		if status, p := tell(t, n, "/api/v1/workers:poll", token, about, &got); status != 200 {
			t.Fatalf("%d %+v", status, p)
		}
		if h.session = got.Session; len(got.Runs) == 1 {
			h.run = got.Runs[0]
			return h
		}
	}
}

func (h *holder) ref() job.Ref { return job.Ref{Fence: h.run.Fence} }

// report ends the run, by its fence.
func (h *holder) report(session string) job.Report {
	return job.Report{Session: session, Results: []job.Result{{Ref: h.ref(), Outcome: job.OutcomeSucceeded}}}
}

// Attack: to speak for another worker. Everything in its session can be guessed.
func TestAttackWorkerSession(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			n := apitest.Start(t, mode)
			shared := tokenIf(t, n, wire.TokenRequest{Name: "shared", Role: job.RoleWorker})
			other := tokenIf(t, n, wire.TokenRequest{Name: "other", Role: job.RoleWorker})
			h := takeOne(t, n, shared, "w")
			before := digest(t, n)
			guess := h.session
			if name == "secure" {
				guess = guess[:strings.LastIndexByte(guess, '.')] // without its seal
			}
			for i, try := range []struct{ token, session string }{{other, guess}, {shared, guess}, {other, h.session}} {
				if name == "plain" && i > 0 {
					break
				}
				var got [4]int
				var p [4]wire.Problem
				got[0], p[0] = tell(t, n, "/api/v1/workers:poll", try.token, job.Poll{Session: try.session, Types: []job.Type{job.TypeHTTP}, Free: 1}, nil)
				got[1], p[1] = tell(t, n, "/api/v1/workers:heartbeat", try.token, job.Heartbeat{Session: try.session, Runs: []job.Ref{h.ref()}}, nil)
				got[2], p[2] = tell(t, n, "/api/v1/workers:output", try.token, job.Output{Session: try.session, Ref: h.ref(), Data: []byte("x")}, nil)
				got[3], p[3] = tell(t, n, "/api/v1/workers:report", try.token, h.report(try.session), nil)
				for k := range got {
					if name == "plain" && got[k] != 200 || name == "secure" && (got[k] != 409 || p[k].Code != job.CodeSessionUnknown) {
						t.Errorf("try %d, call %d: %d %+v", i, k, got[k], p[k])
					}
				}
			}
			if changed := digest(t, n) != before; changed != (name == "plain") {
				t.Errorf("changed: %v", changed)
			}
			if name == "plain" {
				return
			}
			// The worker itself goes on.
			var got job.ReportReply
			if status, p := tell(t, n, "/api/v1/workers:report", shared, h.report(h.session), &got); status != 200 || len(got.Results) != 1 || got.Results[0].Status != job.StatusOK {
				t.Errorf("%d %+v %+v", status, p, got)
			}
		})
	}
}

// The next leader opens the sessions and claims that this one sealed, and a wrong seal it knows for what it is.
func TestSealsAfterFailover(t *testing.T) {
	t.Parallel()
	underOneLeader(t, sealsAfterFailover)
}

func sealsAfterFailover(t *tenure) {
	nodes := t.cluster(3, apitest.Secure)
	token := nodes[0].Token(t, wire.TokenRequest{Role: job.RoleWorker})
	h := takeOne(t, nodes[0], token, "w")
	t.leads(nil)
	if err := nodes[0].Close(); err != nil {
		t.Fatal(err)
	}
	var leader *apitest.Node
	eventually(t, "another node leads", func() bool {
		for _, n := range nodes[1:] {
			if n.Leads() && n.Backend.Ready() == nil {
				leader = n
			}
		}
		return leader != nil
	})
	t.leads(leader)
	var polled job.PollReply
	again := job.Poll{Session: h.session, Worker: "w", Types: []job.Type{job.TypeHTTP}}
	if status, p := tell(t, leader, "/api/v1/workers:poll", token, again, &polled); status != 200 || polled.Session == h.session {
		t.Fatalf("%d %+v", status, p)
	}
	before := digest(t, leader)
	if status, p := tell(t, leader, "/api/v1/workers:report", token, h.report(polled.Session+"x"), nil); p.Code != job.CodeSessionUnknown || digest(t, leader) != before {
		t.Errorf("%d %+v", status, p)
	}
	var beaten job.HeartbeatReply
	byClaim := job.Heartbeat{Runs: []job.Ref{{Claim: h.run.Claim}}}
	if status, p := tell(t, leader, "/api/v1/workers:heartbeat", token, byClaim, &beaten); status != 200 || beaten.Runs[0].Status != job.StatusOK {
		t.Errorf("%d %+v %+v", status, p, beaten)
	}
	var got job.ReportReply
	if status, p := tell(t, leader, "/api/v1/workers:report", token, h.report(h.session), &got); status != 200 || len(got.Results) != 1 || got.Results[0].Status != job.StatusOK {
		t.Errorf("%d %+v %+v", status, p, got)
	}
}

// Attack: to swallow what is due, to use up what workers share, to take another one's name.
func TestAttackPoll(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			n := apitest.Start(t, mode)
			token := tokenIf(t, n, wire.TokenRequest{Name: "mine", Role: job.RoleWorker,
				WorkerGrant: wire.WorkerGrant{Queues: []string{"mail", "sms"}, Types: []string{"queue", "http"}, Tags: map[string]string{"region": "eu"}, Slots: 4}})
			wide := tokenIf(t, n, wire.TokenRequest{Name: "wide", Role: job.RoleWorker})
			good := job.Poll{Worker: "n1", Types: []job.Type{job.TypeHTTP}, Slots: 4, Free: 4}
			for field, change := range map[string]func(*job.Poll){
				"slots": func(p *job.Poll) { p.Slots = 1 << 20 },
				"free":  func(p *job.Poll) { p.Free = 5 },
				"types": func(p *job.Poll) { p.Types = []job.Type{job.TypeShell} },
				"queue": func(p *job.Poll) {
					p.Types, p.Tags = []job.Type{job.TypeQueue}, map[string]string{"queue": "mail,money"}
				},
			} {
				p := good
				p.Worker = field
				change(&p)
				status, problem := tell(t, n, "/api/v1/workers:poll", token, p, nil)
				if name == "plain" && status != 200 || name == "secure" && (status != 403 || problem.Field != field) {
					t.Errorf("%s: %d %+v", field, status, problem)
				}
			}
			many := good
			many.Tags = map[string]string{}
			for i := range job.MaxTags + 1 {
				many.Tags[fmt.Sprint(i)] = "x"
			}
			if status, p := tell(t, n, "/api/v1/workers:poll", token, many, nil); status != 400 || p.Field != "tags" {
				t.Errorf("%d %+v", status, p)
			}
			if name == "plain" {
				return
			}
			p := good
			p.Slots = job.MaxWorkerSlots + 1
			if status, problem := tell(t, n, "/api/v1/workers:poll", wide, p, nil); status != 403 || problem.Field != "slots" {
				t.Errorf("%d %+v", status, problem)
			}
			p = good
			p.Node = &job.NodeRef{Cluster: "c", Instance: "i", Address: "a:1"}
			if status, problem := tell(t, n, "/api/v1/workers:poll", token, p, nil); status != 403 {
				t.Errorf("the worker of a node: %d %+v", status, problem)
			}
			// Two tokens, and a node, may have workers of one name; what the token decides is decided.
			n.Register(t, job.Poll{Worker: "n1", Secret: "the node's", Types: []job.Type{job.TypeHTTP}, Slots: 1})
			for _, token := range []string{token, wide} {
				p := good
				p.Free, p.Types, p.Tags = 0, []job.Type{job.TypeQueue}, map[string]string{"region": "us"}
				open(t, n, token, p)
			}
			st, err := n.Backend.Status(t.Context(), api.Read{})
			if err != nil || len(st.Workers) != 3 {
				t.Fatalf("%+v, %v", st.Workers, err)
			}
			seen := 0
			for _, w := range st.Workers {
				if w.Tags["region"] == "eu" && w.Tags["queue"] == "mail,sms" && strings.HasPrefix(w.Worker, "n1@") {
					seen++
				}
			}
			if seen != 1 {
				t.Errorf("%+v", st.Workers)
			}
		})
	}
}

// Attack: to end a run that another worker has. Its id and fence can be read by every viewer.
func TestAttackClaim(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			n := apitest.Start(t, mode)
			shared := tokenIf(t, n, wire.TokenRequest{Name: "shared", Role: job.RoleWorker})
			other := tokenIf(t, n, wire.TokenRequest{Name: "other", Role: job.RoleWorker})
			viewer := tokenIf(t, n, wire.TokenRequest{Name: "viewer", Role: job.RoleViewer})
			bound := tokenIf(t, n, wire.TokenRequest{Name: "bound", Role: job.RoleWorker, WorkerGrant: wire.WorkerGrant{Queues: []string{"sms"}, Slots: 2}})
			if _, _, err := n.Backend.CreateJob(t.Context(), job.Spec{Name: "one", Type: job.TypeQueue, Schedule: "@manual", Payload: []byte(`{"queue":"mail"}`)}, api.Request{Key: "create"}); err != nil {
				t.Fatal(err)
			}
			if _, err := n.Backend.RunJob(t.Context(), "one", api.Request{Key: "run"}); err != nil {
				t.Fatal(err)
			}
			var got job.PollReply
			for len(got.Runs) == 0 {
				if status, p := tell(t, n, "/api/v1/workers:poll?queue=mail", shared, job.Poll{Worker: "w", Free: 1, Wait: job.Duration(1e9)}, &got); status != 200 {
					t.Fatalf("%d %+v", status, p)
				}
			}
			run := got.Runs[0]
			before := digest(t, n)
			fence := job.Ref{Fence: run.Fence}
			guess := job.Ref{Claim: job.Ref{Run: run.Run, Fence: run.Fence}.Text()}
			stolen := job.Ref{Claim: run.Claim}
			for i, try := range []struct {
				token  string
				ref    job.Ref
				status int
			}{{viewer, guess, 403}, {other, guess, 403}, {shared, guess, 403}, {other, stolen, 403}, {other, fence, 200}, {shared, fence, 200}} {
				if name == "plain" && i > 0 {
					break
				}
				for call, body := range map[string]any{"heartbeat?queue=mail": job.Heartbeat{Runs: []job.Ref{try.ref}},
					"report?queue=mail": job.Report{Results: []job.Result{{Ref: try.ref, Outcome: job.OutcomeSucceeded}}}} {
					var answers struct{ Runs, Results []job.Answer }
					status, p := tell(t, n, "/api/v1/workers:"+call, try.token, body, &answers)
					if name == "plain" && status != 200 || name == "secure" && status != try.status {
						t.Errorf("try %d, %s: %d %+v", i, call, status, p)
					}
					if all := append(answers.Runs, answers.Results...); try.ref == fence && (len(all) != 1 || all[0].Status != job.StatusInvalid) {
						t.Errorf("%s of a fence without its session: %+v", call, all)
					}
				}
			}
			if changed := digest(t, n) != before; changed != (name == "plain") {
				t.Errorf("changed: %v", changed)
			}
			if name == "plain" {
				return
			}
			if status, p := tell(t, n, "/api/v1/workers:report?queue=mail", other, job.Report{Results: []job.Result{{Ref: fence}, {Ref: stolen}}}, nil); status != 403 || p.Field != "claim" {
				t.Errorf("%d %+v", status, p)
			}
			if status, p := tell(t, n, "/api/v1/workers:poll?queue=mail", bound, job.Poll{Free: 1}, nil); status != 403 || p.Field != "queue" {
				t.Errorf("%d %+v", status, p)
			}
			if status, p := tell(t, n, "/api/v1/workers:poll?queue=sms", bound, job.Poll{Free: 3}, nil); status != 403 || p.Field != "free" {
				t.Errorf("%d %+v", status, p)
			}
			// One with the session of another token is told so; its own worker goes on with it.
			for token, want := range map[string]int{other: 409, shared: 200} {
				if status, p := tell(t, n, "/api/v1/workers:poll?queue=mail", token, job.Poll{Session: got.Session}, nil); status != want {
					t.Fatalf("%d %+v", status, p)
				}
			}
			var answers job.ReportReply
			mine := job.Report{Results: []job.Result{{Ref: stolen, Outcome: job.OutcomeSucceeded}}}
			if status, p := tell(t, n, "/api/v1/workers:report?queue=mail", shared, mine, &answers); status != 200 || len(answers.Results) != 1 || answers.Results[0].Status != job.StatusOK {
				t.Errorf("%d %+v %+v", status, p, answers)
			}
		})
	}
}

// The workers that there are, with a token: one for a group, and one for a queue.
func TestWorkersWithTokens(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	token := n.Token(t, wire.TokenRequest{Name: "workers", Role: job.RoleWorker})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, s := range []job.Spec{
		{Name: "http", Type: job.TypeHTTP, Schedule: "@manual", Payload: []byte(`{"url":"http://127.0.0.1:1/"}`)},
		{Name: "queue", Type: job.TypeQueue, Schedule: "@manual", Payload: []byte(`{"queue":"mail"}`)},
	} {
		if _, _, err := n.Backend.CreateJob(ctx, s, api.Request{Key: "create " + s.Name}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Backend.RunJob(ctx, s.Name, api.Request{Key: "run " + s.Name}); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 2)
	worker, err := executor.NewWorker(worker.Options{Name: "w", Secret: "s", Slots: 1, Groups: worker.OneGroup(client.NewLeader([]string{n.Addr()}, client.WithLeaderToken(token)))},
		map[job.Type]executor.Runner{job.TypeHTTP: succeeds{}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- worker.Run(ctx) }()
	pull := client.Worker{Addrs: []string{n.Addr()}, Queue: "mail", Token: token, Name: "p", Handler: func(context.Context, *client.Run) error { return nil }}
	go func() { done <- pull.Run(ctx) }()
	for _, name := range []string{"http", "queue"} {
		for succeeded := false; !succeeded; {
			page, err := n.Backend.JobRuns(ctx, name, wire.RunQuery{Limit: 1}, api.Read{})
			if err != nil {
				t.Fatal(err)
			}
			succeeded = len(page.Runs) == 1 && page.Runs[0].Status == job.RunSucceeded
			if len(page.Runs) == 1 && page.Runs[0].Status == job.RunDead {
				t.Fatalf("%+v", page.Runs[0])
			}
		}
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A token for queues is for the runs in them, and for no others of its namespace.
func TestTokenForQueuesOnly(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	token := n.Token(t, wire.TokenRequest{Name: "mailer", Role: job.RoleWorker,
		WorkerGrant: wire.WorkerGrant{Queues: []string{"mail"}}})
	for _, types := range [][]job.Type{{job.TypeHTTP}, {job.TypeQueue, job.TypeShell}, {job.TypeMessage}} {
		if status, p := tell(t, n, "/api/v1/workers:poll", token, job.Poll{Worker: "w", Free: 1, Types: types}, nil); status != 403 || p.Field != "types" {
			t.Errorf("%v: %d %+v", types, status, p)
		}
	}
	if status, p := tell(t, n, "/api/v1/workers:poll", token, job.Poll{Worker: "w", Free: 1, Types: []job.Type{job.TypeQueue}}, nil); status != 200 {
		t.Errorf("%d %+v", status, p)
	}
}

// A token without the right to write shell jobs cannot get it by making another token, by letting a node join, which
// would carry out shell jobs, or by giving a node a vote, and with it the cluster's keys.
func TestNobodyGrantsWhatTheyDoNotHave(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t, apitest.Secure)
	admin := n.Token(t, wire.TokenRequest{Name: "ops", Role: job.RoleAdmin})
	trusted := n.Token(t, wire.TokenRequest{Name: "root", Role: job.RoleAdmin, Shell: true})
	asked := []struct {
		path, body, field string
	}{
		{"/api/v1/tokens", `{"name":"mine-%s","role":"admin","shell":true}`, "shell"},
		{"/api/v1/tokens", `{"name":"ours-%s","role":"operator","shell":true}`, "shell"},
		{"/api/v1/join-tokens", `{"voter":true}`, ""},
		{"/api/v1/join-tokens", `{}`, ""},
		{"/api/v1/cluster:promote", `{"node_id":"n1"}`, ""},
	}
	for _, a := range asked {
		body := a.body
		if strings.Contains(body, "%s") {
			body = fmt.Sprintf(body, "ops")
		}
		status, p := ask(t, n, "POST", a.path, admin, body)
		if status != 403 || p.Code != job.CodeForbidden || p.Field != a.field || !strings.Contains(p.Remedy, "--shell") {
			t.Errorf("%s %s: %d %+v", a.path, body, status, p)
		}
		if strings.Contains(a.body, "%s") {
			body = fmt.Sprintf(a.body, "root")
		}
		if status, p := ask(t, n, "POST", a.path, trusted, body); status == 403 {
			t.Errorf("%s %s: %d %+v", a.path, body, status, p)
		}
	}
	// What they have themselves they give on.
	if status, p := ask(t, n, "POST", "/api/v1/tokens", admin, `{"name":"other","role":"admin"}`); status != 201 {
		t.Errorf("%d %+v", status, p)
	}
}

type succeeds struct{}

func (succeeds) Run(context.Context, job.Assignment) job.Result {
	return job.Result{Outcome: job.OutcomeSucceeded}
}

// One token cannot have all the sessions, nor open them without end.
func TestWorkersOfATokenAreBounded(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t, apitest.Secure)
	poll := func(token, name, session string) (string, error) {
		ctx := api.WithIdentity(t.Context(), api.Identity{Token: token, Role: job.RoleWorker})
		p := job.Poll{Session: session, Worker: name + "@" + token, Types: []job.Type{job.TypeHTTP}, Slots: 1}
		if session == "" {
			p.Secret = "s"
		}
		r, err := n.Options.Workers.Poll(ctx, p)
		return r.Session, err
	}
	register := func(token, name string) error {
		session, err := poll(token, name, "")
		if err == nil {
			_, err = poll(token, name, session)
		}
		return err
	}
	for i := 0; ; i++ {
		if err := register("a", fmt.Sprint("w", i)); err != nil {
			if i != 1024 || job.CodeOf(err) != job.CodeUnavailable || !strings.Contains(err.Error(), "another token") {
				t.Fatalf("after %d: %v", i, err)
			}
			break
		}
	}
	if err := register("b", "w"); err != nil {
		t.Error(err)
	}
	// Sessions with which nobody polls leave nothing behind.
	for range 1 << 11 {
		if _, err := poll("c", "w", ""); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := n.Backend.Status(t.Context(), api.Read{}); err != nil || len(st.Workers) != 1025 {
		t.Errorf("%d workers, %v", len(st.Workers), err)
	}
}
