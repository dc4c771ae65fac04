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
	secret  string
	session job.Session
	run     job.Assignment
}

func takeOne(t testing.TB, n *apitest.Node, token, name string) holder {
	t.Helper()
	h := holder{token: token, secret: "known to this process only"}
	h.register(t, n, name, nil)
	if _, _, err := n.Backend.CreateJob(t.Context(), job.Spec{Name: "one", Type: job.TypeHTTP, Schedule: "@manual", Payload: []byte(`{"url":"http://127.0.0.1:1/"}`)}, api.Request{Key: "create"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Backend.RunJob(t.Context(), "one", api.Request{Key: "run"}); err != nil {
		t.Fatal(err)
	}
	for {
		var got job.PollReply
		if status, p := tell(t, n, "/api/v1/workers:poll", token, job.Poll{Session: h.session.SessionRef, Free: 1, Wait: job.Duration(1e9)}, &got); status != 200 {
			t.Fatalf("%d %+v", status, p)
		}
		if len(got.Assignments) == 1 {
			h.run = got.Assignments[0]
			return h
		}
	}
}

// register registers with the leader, as workers do: the first answer says which incarnation it has.
func (h *holder) register(t testing.TB, n *apitest.Node, name string, held []job.Held) {
	t.Helper()
	rq := job.Register{Worker: name, Secret: h.secret, Incarnation: h.session.Incarnation, Types: []job.Type{job.TypeHTTP}, Slots: 1, Held: held, Registration: 1}
	for again := true; again; rq.Registration++ {
		h.session = job.Session{}
		if status, p := tell(t, n, "/api/v1/workers:register", h.token, rq, &h.session); status != 200 {
			t.Fatalf("%d %+v", status, p)
		}
		again, rq.Incarnation, rq.Term = h.session.Again, h.session.Incarnation, h.session.Term
	}
	if h.session.Worker != name {
		t.Fatalf("%+v", h.session)
	}
}

// Attack: to speak for another worker. Its name, incarnation, term and registration can be guessed.
func TestAttackWorkerSession(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			n := apitest.Start(t, mode)
			shared := tokenIf(t, n, wire.TokenRequest{Name: "shared", Role: job.RoleWorker})
			other := tokenIf(t, n, wire.TokenRequest{Name: "other", Role: job.RoleWorker})
			h := takeOne(t, n, shared, "w")
			before := digest(t, n)
			guess := h.session.SessionRef
			guess.Secret = ""
			stolen := h.session.SessionRef // with the secret, and another token
			for i, try := range []struct {
				token string
				ref   job.SessionRef
			}{{other, guess}, {shared, guess}, {other, stolen}} {
				if name == "plain" && i > 0 {
					break
				}
				held := []job.Held{{Run: h.run.Run, Fence: h.run.Fence}}
				results := []job.Result{{Run: h.run.Run, Fence: h.run.Fence, Outcome: job.OutcomeSucceeded}}
				var got [4]int
				var p [4]wire.Problem
				got[0], p[0] = tell(t, n, "/api/v1/workers:poll", try.token, job.Poll{Session: try.ref, Free: 1}, nil)
				got[1], p[1] = tell(t, n, "/api/v1/workers:heartbeat", try.token, job.Heartbeat{Session: try.ref, Held: held}, nil)
				got[2], p[2] = tell(t, n, "/api/v1/workers:output", try.token, job.Output{Session: try.ref, Fence: h.run.Fence, Data: []byte("x")}, nil)
				got[3], p[3] = tell(t, n, "/api/v1/workers:report", try.token, job.Report{Session: try.ref, Results: results}, nil)
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
			var acks job.ReportReply
			report := job.Report{Session: h.session.SessionRef, Results: []job.Result{{Run: h.run.Run, Fence: h.run.Fence, Outcome: job.OutcomeSucceeded}}}
			if status, p := tell(t, n, "/api/v1/workers:report", shared, report, &acks); status != 200 || len(acks.Acks) != 1 || acks.Acks[0].Stale {
				t.Errorf("%d %+v %+v", status, p, acks)
			}
		})
	}
}

// The next leader knows the secret of a session again, and a wrong one for what it is.
func TestSessionSecretAfterFailover(t *testing.T) {
	t.Parallel()
	underOneLeader(t, sessionSecretAfterFailover)
}

func sessionSecretAfterFailover(t *tenure) {
	nodes := t.cluster(3, apitest.Secure)
	token := nodes[0].Token(t, wire.TokenRequest{Role: job.RoleWorker})
	h := takeOne(t, nodes[0], token, "w")
	secret := h.session.Secret
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
	h.register(t, leader, "w", []job.Held{{Run: h.run.Run, Fence: h.run.Fence}})
	if h.session.Secret != secret {
		t.Errorf("the secret was %q and is %q", secret, h.session.Secret)
	}
	before := digest(t, leader)
	report := job.Report{Session: h.session.SessionRef, Results: []job.Result{{Run: h.run.Run, Fence: h.run.Fence, Outcome: job.OutcomeSucceeded}}}
	wrong := report
	wrong.Session.Secret = strings.Repeat("x", len(secret))
	if status, p := tell(t, leader, "/api/v1/workers:report", token, wrong, nil); p.Code != job.CodeSessionUnknown || digest(t, leader) != before {
		t.Errorf("%d %+v", status, p)
	}
	var acks job.ReportReply
	if status, p := tell(t, leader, "/api/v1/workers:report", token, report, &acks); status != 200 || len(acks.Acks) != 1 || acks.Acks[0].Stale {
		t.Errorf("%d %+v %+v", status, p, acks)
	}
}

// Attack: to swallow what is due, to use up what workers share, to take another one's name.
func TestAttackRegistration(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			n := apitest.Start(t, mode)
			token := tokenIf(t, n, wire.TokenRequest{Name: "mine", Role: job.RoleWorker,
				WorkerGrant: wire.WorkerGrant{Queues: []string{"mail", "sms"}, Types: []string{"queue", "http"}, Tags: map[string]string{"region": "eu"}, Slots: 4}})
			wide := tokenIf(t, n, wire.TokenRequest{Name: "wide", Role: job.RoleWorker})
			good := job.Register{Worker: "n1", Secret: "s", Types: []job.Type{job.TypeHTTP}, Slots: 4}
			for what, change := range map[string]func(*job.Register){
				"slots": func(r *job.Register) { r.Slots = 1 << 20 },
				"types": func(r *job.Register) { r.Types = []job.Type{job.TypeShell} },
				"queue": func(r *job.Register) {
					r.Types, r.Tags = []job.Type{job.TypeQueue}, map[string]string{"queue": "mail,money"}
				},
				"tags": func(r *job.Register) {
					r.Tags = map[string]string{}
					for i := range job.MaxTags + 1 {
						r.Tags[fmt.Sprint(i)] = "x"
					}
				},
			} {
				r := good
				r.Worker = what
				change(&r)
				status, p := tell(t, n, "/api/v1/workers:register", token, r, nil)
				if name == "plain" && status != 200 || name == "secure" && status != 403 && status != 400 {
					t.Errorf("%s: %d %+v", what, status, p)
				}
			}
			if name == "plain" {
				return
			}
			r := good
			r.Slots = job.MaxWorkerSlots + 1
			if status, p := tell(t, n, "/api/v1/workers:register", wide, r, nil); status != 403 || p.Field != "slots" {
				t.Errorf("%d %+v", status, p)
			}
			r = good
			r.Node = &job.NodeRef{Cluster: "c", Instance: "i", Address: "a:1"}
			if status, p := tell(t, n, "/api/v1/workers:register", token, r, nil); status != 403 {
				t.Errorf("the worker of a node: %d %+v", status, p)
			}
			// Two tokens, and a node, may have workers of one name; what the token decides is decided.
			n.Register(t, job.Register{Worker: "n1", Secret: "the node's", Types: []job.Type{job.TypeHTTP}, Slots: 1})
			for _, token := range []string{token, wide} {
				var s job.Session
				r := good
				r.Types, r.Tags = []job.Type{job.TypeQueue}, map[string]string{"region": "us"}
				if status, p := tell(t, n, "/api/v1/workers:register", token, r, &s); status != 200 || s.Worker != "n1" || s.Secret == "" {
					t.Errorf("%d %+v %+v", status, p, s)
				}
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

// Attack: to complete a run that another pull worker has. Its id and fence can be read by every viewer.
func TestAttackPullClaim(t *testing.T) {
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
			var got job.PullReply
			for len(got.Runs) == 0 {
				if status, p := tell(t, n, "/api/v1/queues/mail:poll", shared, job.PullPoll{Worker: "w", Max: 1, Wait: job.Duration(1e9)}, &got); status != 200 {
					t.Fatalf("%d %+v", status, p)
				}
			}
			if got.Worker != "w" {
				t.Errorf("%+v", got)
			}
			run := got.Runs[0]
			before := digest(t, n)
			bare := job.PullRef{RunID: run.RunID, Fence: run.Fence}
			key, err := job.ParseRunKey(run.RunID)
			if err != nil {
				t.Fatal(err)
			}
			unsealed := job.PullRef{Claim: job.ClaimRef{Run: key, Fence: run.Fence}.String()}
			stolen := job.PullRef{Claim: run.Claim}
			for i, try := range []struct {
				token string
				ref   job.PullRef
			}{{viewer, bare}, {other, bare}, {shared, bare}, {shared, unsealed}, {other, stolen}} {
				if name == "plain" && i > 0 {
					break
				}
				for _, verb := range []string{"heartbeat", "fail", "complete"} {
					if name == "plain" && verb == "fail" {
						continue
					}
					body := map[string]any{"runs": []any{try.ref}}
					if verb == "fail" {
						body = map[string]any{"runs": []any{job.PullResult{PullRef: try.ref, Error: "x"}}}
					}
					status, p := tell(t, n, "/api/v1/queues/mail:"+verb, try.token, body, nil)
					if name == "plain" && status != 200 || name == "secure" && status != 403 {
						t.Errorf("try %d, %s: %d %+v", i, verb, status, p)
					}
				}
			}
			if changed := digest(t, n) != before; changed != (name == "plain") {
				t.Errorf("changed: %v", changed)
			}
			if name == "plain" {
				return
			}
			if status, p := tell(t, n, "/api/v1/queues/mail:poll", bound, job.PullPoll{Max: 1}, nil); status != 403 || p.Field != "queue" {
				t.Errorf("%d %+v", status, p)
			}
			if status, p := tell(t, n, "/api/v1/queues/sms:poll", bound, job.PullPoll{Max: 3}, nil); status != 403 || p.Field != "max" {
				t.Errorf("%d %+v", status, p)
			}
			// One with the session of another token has none; its own worker goes on with it.
			var mine, theirs job.PullReply
			for _, try := range []struct {
				token string
				reply *job.PullReply
			}{{other, &theirs}, {shared, &mine}} {
				if status, p := tell(t, n, "/api/v1/queues/mail:poll", try.token, job.PullPoll{Session: got.Session, Max: 0, Held: nil}, try.reply); status != 200 {
					t.Fatalf("%d %+v", status, p)
				}
			}
			if theirs.Worker == "w" || mine.Worker != "w" {
				t.Errorf("%+v, %+v", theirs, mine)
			}
			var answers job.PullAnswers
			if status, p := tell(t, n, "/api/v1/queues/mail:complete", shared, map[string]any{"session": mine.Session, "runs": []any{stolen}}, &answers); status != 200 || len(answers.Runs) != 1 || answers.Runs[0].Status != job.PullOK {
				t.Errorf("%d %+v %+v", status, p, answers)
			}
		})
	}
}

// The workers that there are, with a token: one with sessions, in msgpack, and a pull worker.
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
	worker, err := executor.New(executor.Options{Name: "w", Secret: "s", Slots: 1, Groups: executor.OneGroup(client.NewLeader([]string{n.Addr()}, client.WithLeaderToken(token))),
		Runners: map[job.Type]executor.Runner{job.TypeHTTP: succeeds{}}})
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
		r := job.Register{Worker: "w", Secret: "s", Slots: 1, Types: types}
		if status, p := tell(t, n, "/api/v1/workers:register", token, r, nil); status != 403 || p.Field != "types" {
			t.Errorf("%v: %d %+v", types, status, p)
		}
	}
	r := job.Register{Worker: "w", Secret: "s", Slots: 1, Types: []job.Type{job.TypeQueue}}
	if status, p := tell(t, n, "/api/v1/workers:register", token, r, nil); status != 200 {
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

// One token cannot have all the sessions, nor use up all the numbers of processes.
func TestWorkersOfATokenAreBounded(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t, apitest.Secure)
	as := func(token string) context.Context {
		return api.WithIdentity(t.Context(), api.Identity{Token: token, Role: job.RoleWorker})
	}
	register := func(ctx context.Context, name string) error {
		_, err := n.Options.Workers.Register(ctx, job.Register{Worker: name, Secret: "s", Types: []job.Type{job.TypeHTTP}, Slots: 1})
		return err
	}
	for i := 0; ; i++ {
		err := register(as("a"), fmt.Sprint("w", i, "@a"))
		if err != nil {
			if i != 1024 || job.CodeOf(err) != job.CodeUnavailable || !strings.Contains(err.Error(), "another token") {
				t.Fatalf("after %d: %v", i, err)
			}
			break
		}
	}
	if err := register(as("b"), "w@b"); err != nil {
		t.Error(err)
	}
	// Registrations that never become sessions count all the same.
	for i := 0; ; i++ {
		_, err := n.Options.Workers.Register(as("c"), job.Register{Worker: "w@c", Secret: "s", Types: []job.Type{job.TypeHTTP}, Slots: 1, Registration: 1})
		if err != nil {
			if i < 1<<12 || job.CodeOf(err) != job.CodeTooManyRequests {
				t.Fatalf("after %d: %v", i, err)
			}
			break
		}
	}
	if err := register(as("b"), "w2@b"); err != nil {
		t.Error(err)
	}
}
