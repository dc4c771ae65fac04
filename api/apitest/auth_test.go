package apitest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

// ask sends a request to a node's port.
func ask(t testing.TB, n *apitest.Node, method, path, token, body string, headers ...string) (int, wire.Problem) {
	t.Helper()
	res := send(t, t.Context(), n, method, path, token, strings.NewReader(body), headers...)
	defer res.Body.Close()
	if res.Header.Get("Content-Type") == "text/event-stream" { // it has no end
		return res.StatusCode, wire.Problem{}
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	var p wire.Problem
	if res.StatusCode >= 400 && method != "HEAD" {
		if err := json.Unmarshal(data, &p); err != nil {
			t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, data)
		}
	}
	return res.StatusCode, p
}

func send(t testing.TB, ctx context.Context, n *apitest.Node, method, path, token string, body io.Reader,
	headers ...string) *http.Response {
	t.Helper()
	rq, err := http.NewRequestWithContext(ctx, method, "http://"+n.Addr()+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		rq.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		rq.Header.Set(headers[i], headers[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}
	if tok, err := keys.ParseToken(keys.APIToken, token); err == nil && tok.CA != (keys.Hash{}) {
		rq.URL.Scheme, tr.TLSClientConfig = "https", keys.ClientConfig(tok.CA)
		tr.TLSClientConfig.NextProtos = []string{"http/1.1"}
		verify := tr.TLSClientConfig.VerifyConnection
		tr.TLSClientConfig.VerifyConnection = func(cs tls.ConnectionState) error {
			if err := verify(cs); err != nil && !strings.Contains(err.Error(), "clock") { // that of a test stands still
				return err
			}
			return nil
		}
	}
	res, err := tr.RoundTrip(rq)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

// caller is a token, and what it is good for.
type caller struct {
	name      string
	text      string
	roles     string // of the routes that it may call
	namespace string
	status    int // that everything is answered with, if it is not good for anything
}

func callers3(t testing.TB, n *apitest.Node) []caller {
	all := []caller{
		{"nobody", "", "", "", 401},
		{"garbage", "letmein", "", "", 401},
		{"stranger", keys.NewToken(keys.APIToken, keys.Hash{}).Text(), "", "", 401},
		{"join token", keys.NewToken(keys.JoinToken, keys.Hash{}).Text(), "", "", 401},
	}
	for role, good := range map[job.TokenRole]string{
		job.RoleViewer: "token viewer", job.RoleOperator: "token viewer operator",
		job.RoleAdmin: "token viewer operator admin", job.RoleWorker: "token worker",
	} {
		for _, namespace := range []string{"", "default", "team-a"} {
			name := string(role) + " of " + namespace
			rq := wire.TokenRequest{Name: strings.TrimSpace(name), Role: role, Namespace: namespace,
				Shell: role == job.RoleAdmin} // routes that let nodes in ask for it
			all = append(all, caller{name, n.Token(t, rq), good, namespace, 0})
		}
	}
	forged := n.Token(t, wire.TokenRequest{Name: "forged", Role: job.RoleAdmin})
	tok, err := keys.ParseToken(keys.APIToken, forged)
	if err != nil {
		t.Fatal(err)
	}
	other := keys.NewToken(keys.APIToken, keys.Hash{})
	other.ID = tok.ID // the id of another with a secret of one's own
	all = append(all, caller{"forged", other.Text(), "", "", 401})
	gone := n.Token(t, wire.TokenRequest{Name: "gone", Role: job.RoleAdmin})
	if _, err := n.Backend.RevokeToken(t.Context(), "gone", api.Request{Key: "revoke"}); err != nil {
		t.Fatal(err)
	}
	return append(all, caller{"revoked", gone, "", "", 401})
}

// Every route × every role × namespace, on the leader and through a follower. The routes are those of the table, so a
// new one is in here by itself; what is expected of each role is not taken from the code.
func TestEveryRouteAsksWhoCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("asks each route as each caller; left out with -short")
	}
	t.Parallel()
	underOneLeader(t, everyRouteAsksWhoCalls)
}

func everyRouteAsksWhoCalls(t *tenure) {
	nodes := t.cluster(3, apitest.Secure, func(c *node.Config) {
		c.DebugPprof, c.MaxBadTokens = true, 1<<20
		c.Raft.Heartbeat = 3 * time.Second // it takes long
	})
	leader, follower := nodes[0], nodes[1]
	all := callers3(t, leader)
	type target struct {
		method, path, role string
		scope              api.Scope
	}
	// in is a request that names a namespace: a token for another one is of no use.
	in := map[string]string{}
	var targets []target
	for _, rt := range api.Routes() {
		path := strings.NewReplacer("{ref}", "nope", "{queue}", "nope", "{name}", "nope").Replace(rt.Path)
		targets = append(targets, target{rt.Method, path, rt.Role.String(), rt.Scope})
		if rt.Namespaced {
			for _, space := range []string{"default", "team-a", "*"} {
				targets = append(targets, target{rt.Method, path + "?namespace=" + space, rt.Role.String(), rt.Scope})
				in[path+"?namespace="+space] = space
			}
		}
		if rt.Method == "GET" {
			targets = append(targets, target{"HEAD", path, rt.Role.String(), rt.Scope})
		}
		options := "token"
		if rt.Role == api.Anyone { // nothing is known of the method there
			continue
		}
		targets = append(targets, target{"OPTIONS", path, options, api.Everywhere})
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/heap"} {
		targets = append(targets, target{"GET", path, "admin", api.OfCluster}, target{"POST", path, "admin", api.OfCluster})
	}
	targets = append(targets,
		target{"GET", "/internal/v1/peer", "node", api.OfCluster}, target{"POST", "/internal/v1/peer", "node", api.OfCluster},
		target{"GET", "/nope", "token", api.Everywhere}, target{"GET", "/api/v1/nope", "token", api.Everywhere},
		// The page has no data, and the root leads to it.
		target{"GET", "/", "anyone", api.Everywhere}, target{"GET", "/ui/jobs", "anyone", api.Everywhere},
		target{"GET", "/internal/v1/nope", "token", api.Everywhere}, target{"TRACE", "/api/v1/jobs", "token", api.Everywhere},
		// What is written otherwise is the same route.
		target{"GET", "/api/v1/%6Aobs", "viewer", api.InNamespace}, target{"POST", "/api/v1/jobs/x%3Apause", "operator", api.InNamespace},
		target{"GET", "/api/v1//backup", "token", api.Everywhere}, target{"GET", "/api/v1/x/../backup", "token", api.Everywhere})
	// A backup leaves a record: those come first.
	recorded := func(tg target) bool { return tg.path == "/api/v1/backup" && tg.method != "OPTIONS" }
	rest := slices.DeleteFunc(slices.Clone(targets), recorded)
	targets = append(slices.DeleteFunc(targets, func(tg target) bool { return !recorded(tg) }), rest...)
	before := ""
	for _, tg := range targets {
		if before == "" && !recorded(tg) {
			var err error
			if before, err = leader.State().DigestContent(); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range all {
			want := tg.role == "anyone" || slices.Contains(strings.Fields(c.roles), tg.role)
			switch {
			case tg.role == "anyone":
			case tg.scope == api.OfCluster && c.namespace != "", in[tg.path] != "" && c.namespace != "" && c.namespace != in[tg.path]:
				want = false
			}
			for _, n := range []*apitest.Node{leader, follower} {
				body := ""
				if tg.method != "GET" && tg.method != "HEAD" && tg.method != "OPTIONS" {
					body = "{" // what is let through changes nothing
				}
				status, p := ask(t, n, tg.method, tg.path, c.text, body)
				refused := status == 401 || status == 403
				wantStatus := 403
				if c.status != 0 {
					wantStatus = c.status
				}
				if refused == want || refused && status != wantStatus {
					t.Errorf("%s %s as %s at %s: %d %s, want it let through: %v", tg.method, tg.path, c.name, n.Addr(), status, p.Message, want)
				}
				if refused && tg.method != "HEAD" {
					if code := map[int]job.Code{401: job.CodeUnauthenticated, 403: job.CodeForbidden}[status]; p.Code != code ||
						tg.role != "node" && p.Remedy == "" || status == 403 && tg.role != "node" && !strings.Contains(p.Message, "token") {
						t.Errorf("%s %s as %s: %+v", tg.method, tg.path, c.name, p)
					}
				}
			}
		}
	}
	if after, err := leader.State().DigestContent(); err != nil || after != before {
		t.Errorf("something was changed: %v", err)
	}
}

// The headers of forwarding, and who passes something on, are believed of nodes only.
func TestForwardingHeadersOfStrangers(t *testing.T) {
	t.Parallel()
	underOneLeader(t, forwardingHeadersOfStrangers)
}

func forwardingHeadersOfStrangers(t *tenure) {
	nodes := t.cluster(3, apitest.Secure)
	viewer := nodes[0].Token(t, wire.TokenRequest{Role: job.RoleViewer})
	for _, n := range nodes {
		for _, token := range []string{"", viewer} {
			status, _ := ask(t, n, "POST", "/api/v1/tokens", token, `{"name":"mine","role":"admin"}`,
				wire.ForwardedHeader, "n1", wire.LocalHeader, "true", wire.KeyHeader, "k", wire.RepeatHeader, "true")
			if status != 401 && status != 403 {
				t.Errorf("%d", status)
			}
		}
		// A request that claims to be passed on is passed on all the same: it does not end at a node that follows.
		if status, p := ask(t, n, "GET", "/api/v1/jobs", viewer, "", wire.ForwardedHeader, "n1"); status != 200 {
			t.Errorf("%d %+v", status, p)
		}
	}
	if all := nodes[0].State().Tokens(); len(all) != 2 { // with the one that the cluster began with
		t.Errorf("%d tokens", len(all))
	}
}

// A token that was revoked at the leader is not valid through a follower a second later, and what it held open ends
// there and on the leader: a poll, a bulk create and an export.
func TestRevocationReachesFollowers(t *testing.T) {
	t.Parallel()
	underOneLeader(t, revocationReachesFollowers)
}

func revocationReachesFollowers(t *tenure) {
	nodes := t.cluster(3, apitest.Secure)
	leader, follower := nodes[0], nodes[1]
	create := func(rq wire.TokenRequest) string {
		text := leader.Token(t, rq)
		if status, p := ask(t, follower, "GET", "/api/v1/whoami", text, ""); status != 200 {
			t.Fatalf("a new token is not known to a follower: %d %s", status, p.Message) // without a pause
		}
		return text
	}
	operator := create(wire.TokenRequest{Name: "operator", Role: job.RoleOperator})
	worker := create(wire.TokenRequest{Name: "worker", Role: job.RoleWorker})
	if status, p := ask(t, leader, "PUT", "/api/v1/queues/mail", operator, `{"concurrency":5}`); status != 200 {
		t.Fatalf("%d %+v", status, p)
	}
	ended := make(chan string, 8)
	wait := func(what string, f func() error) {
		go func() { ended <- fmt.Sprint(what, ": ", f()) }()
	}
	for _, n := range []*apitest.Node{leader, follower} {
		wait("poll", func() error {
			status, p := ask(t, n, "POST", "/api/v1/workers:poll?queue=mail", worker, `{"worker":"w`+n.Addr()+`","wait":"1m"}`)
			if status != 401 || p.Code != job.CodeUnauthenticated {
				return fmt.Errorf("%d %+v", status, p)
			}
			return nil
		})
		// A bulk create that was begun, and whose next line does not come.
		in, out := io.Pipe()
		began := make(chan struct{})
		wait("bulk", func() error {
			res := send(t, context.Background(), n, "POST", "/api/v1/jobs:bulk", operator, in)
			defer res.Body.Close()
			lines := bufio.NewReader(res.Body)
			line, err := lines.ReadString('\n')
			close(began)
			if err != nil || !strings.Contains(line, "created") {
				return fmt.Errorf("%s, %v", line, err)
			}
			if _, err = lines.ReadString('\n'); err == nil || err == io.EOF {
				return fmt.Errorf("it ended as if it were complete: %v", err)
			}
			out.Close()
			return nil
		})
		line := strings.Replace(spec, "hello", "bulk"+strings.ReplaceAll(n.Addr(), ":", "-"), 1) + "\n"
		go func() {
			pad := strings.Repeat(" ", 1000)
			for range 1200 { // a chunk is answered when it is full
				if _, err := io.WriteString(out, line+pad+"\n"); err != nil {
					return
				}
				line = ""
			}
		}()
		select {
		case <-began:
		case what := <-ended:
			t.Fatal(what)
		}
	}
	for i, name := range []string{"operator", "worker"} {
		if _, err := leader.Backend.RevokeToken(t.Context(), name, api.Request{Key: fmt.Sprint("revoke", i)}); err != nil {
			t.Fatal(err)
		}
	}
	end := time.Now().Add(time.Minute)
	limit := time.After(time.Minute)
	for range 4 {
		select {
		case what := <-ended:
			if !strings.HasSuffix(what, "<nil>") {
				t.Error(what)
			}
		case <-limit:
			t.Fatal("something is still open")
		}
	}
	for _, n := range nodes {
		for { // a follower hears of it a moment later
			status, p := ask(t, n, "GET", "/api/v1/jobs?stale=true", operator, "")
			if status == 401 && strings.Contains(p.Message, "was revoked at") {
				break
			}
			if status != 200 || time.Now().After(end) {
				t.Fatalf("%d %+v", status, p)
			}
		}
	}
}

// Lines that a bulk create has read and not yet made jobs of are given up when its token is revoked: otherwise who
// expects that could leave jobs behind which are created by it.
func TestRevokedBulkCreatesNothing(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t, apitest.Secure)
	for i := range 8 {
		name := fmt.Sprint("loader", i)
		token := n.Token(t, wire.TokenRequest{Name: name, Role: job.RoleOperator})
		in, out := io.Pipe()
		status := make(chan int, 1)
		go func() {
			defer close(status) // without an answer the test is over
			res := send(t, context.Background(), n, "POST", "/api/v1/jobs:bulk", token, in)
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body) // it may be cut off
			status <- res.StatusCode
		}()
		io.WriteString(out, strings.Replace(spec, "hello", "left-behind", 1)+"\n")
		io.WriteString(out, "\n") // the line before has been taken then
		if _, err := n.Backend.RevokeToken(t.Context(), name, api.Request{Key: "revoke " + name}); err != nil {
			t.Fatal(err)
		}
		if got := <-status; got != 401 {
			t.Errorf("answered %d", got)
		}
		out.Close()
		page, err := n.Backend.ListJobs(t.Context(), wire.JobQuery{Prefix: "left-behind", Limit: 1}, api.Read{})
		if err != nil || len(page.Jobs) > 0 {
			t.Fatalf("try %d: %+v, %v", i, page.Jobs, err)
		}
	}
}

// Without a token little is read, and it is said at once.
func TestBodyOfAStranger(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	text := "{}" + strings.Repeat(" ", 100<<10) // well formed, so that only its size is wrong
	for name, body := range map[string]io.Reader{"its length announced": strings.NewReader(text),
		"in chunks": io.MultiReader(strings.NewReader(text), strings.NewReader(" "))} {
		res := send(t, t.Context(), n, "POST", "/api/v1/cluster:join", "", body)
		res.Body.Close()
		if res.StatusCode != 413 {
			t.Errorf("%s: answered %s", name, res.Status)
		}
	}
}

// A token that expires ends what it holds open, too.
func TestExpiryEndsWhatIsOpen(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	worker := n.Token(t, wire.TokenRequest{Role: job.RoleWorker, TTL: job.Duration(time.Hour)})
	n.Clock.Advance(time.Hour - time.Second)
	polling := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	operator := n.Token(t, wire.TokenRequest{Role: job.RoleOperator})
	if status, _ := ask(t, n, "PUT", "/api/v1/queues/mail", operator, `{"concurrency":5}`); status != 200 {
		t.Fatal(status)
	}
	go func() {
		res := send(t, ctx, n, "POST", "/api/v1/workers:poll?queue=mail", worker, strings.NewReader(`{"worker":"w","wait":"1m"}`))
		res.Body.Close()
		polling <- res.StatusCode
	}()
	for waiting := false; !waiting; { // until the leader knows of the poll
		s, err := n.Backend.Status(t.Context(), api.Read{})
		if err != nil {
			t.Fatal(err)
		}
		waiting = len(s.Workers) == 1
	}
	n.Clock.Advance(time.Second)
	if status := <-polling; status != 401 {
		t.Errorf("the poll was answered %d", status)
	}
	if status, p := ask(t, n, "GET", "/api/v1/whoami", worker, ""); status != 401 || !strings.Contains(p.Message, "expired at") {
		t.Errorf("%d %+v", status, p)
	}
}

// A key belongs to a token: another one's outcome is not told, and not in the way.
func TestKeysBelongToTokens(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	a, b := n.Token(t, wire.TokenRequest{Role: job.RoleOperator}), n.Token(t, wire.TokenRequest{Role: job.RoleOperator})
	create := func(token, name string) (int, wire.Problem) {
		return ask(t, n, "POST", "/api/v1/jobs", token, strings.Replace(spec, "hello", name, 1), "Idempotency-Key", "k")
	}
	if status, p := create(a, "first"); status != 201 {
		t.Fatalf("%d %+v", status, p)
	}
	if status, p := create(b, "second"); status != 201 {
		t.Errorf("%d %+v", status, p)
	}
	if status, p := create(a, "third"); status != 422 || p.Code != job.CodeKeyReused {
		t.Errorf("%d %+v", status, p)
	}
}

// Who may not write shell jobs can neither create one, nor make one of another job, nor edit one.
func TestShellIsACapability(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	with := n.Token(t, wire.TokenRequest{Role: job.RoleOperator, Shell: true})
	without := n.Token(t, wire.TokenRequest{Role: job.RoleOperator})
	admin := n.Token(t, wire.TokenRequest{Role: job.RoleAdmin})
	shell := `{"name":"sh","type":"shell","schedule":"@hourly","payload":{"command":"date"}}`
	if status, _ := ask(t, n, "POST", "/api/v1/jobs", with, shell); status != 201 {
		t.Fatal(status)
	}
	if status, _ := ask(t, n, "POST", "/api/v1/jobs", without, spec); status != 201 {
		t.Fatal(status)
	}
	before, err := n.State().DigestContent()
	if err != nil {
		t.Fatal(err)
	}
	toShell := `{"type":"shell","payload":{"url":null,"command":"id"}}`
	for _, token := range []string{without, admin} {
		for _, c := range [][3]string{
			{"POST", "/api/v1/jobs", strings.Replace(shell, "sh", "sh2", 1)},
			{"PUT", "/api/v1/jobs/hello", shell},
			{"PATCH", "/api/v1/jobs/hello", toShell},
			{"PATCH", "/api/v1/jobs/sh", `{"schedule":"@daily"}`},
			{"PUT", "/api/v1/jobs/sh", spec}, // its old definition is one
		} {
			if status, p := ask(t, n, c[0], c[1], token, c[2]); status != 403 || p.Code != job.CodeForbidden || !strings.Contains(p.Remedy, "--shell") {
				t.Errorf("%v: %d %+v", c, status, p)
			}
		}
		res := send(t, t.Context(), n, "POST", "/api/v1/jobs:bulk", token, strings.NewReader(shell+"\n"))
		line, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.Contains(string(line), `"forbidden"`) {
			t.Errorf("bulk: %s", line)
		}
	}
	if after, err := n.State().DigestContent(); err != nil || after != before {
		t.Errorf("something was changed: %v", err)
	}
	if status, p := ask(t, n, "PATCH", "/api/v1/jobs/hello", with, toShell); status != 200 {
		t.Errorf("%d %+v", status, p)
	}
}

// Probes are answered to everybody, and say nothing else.
func TestHealthSaysTheStatusOnly(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	o := n.Options
	sick := struct{ api.Backend }{n.Backend}
	h := api.New(unwell{sick}, o)
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, _ := ask(t, n, "GET", path, "", ""); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
		w := serveHandler(t, h, "GET", path)
		if w.Code != 503 || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	// The handler alone, without the authorizer in front of it, refuses everybody.
	if w := serveHandler(t, api.New(n.Backend, o), "GET", "/api/v1/jobs"); w.Code != 403 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type unwell struct{ api.Backend }

func (unwell) Live() error  { return job.Errorf(job.CodeNotReady, "", "a secret") }
func (unwell) Ready() error { return job.Errorf(job.CodeNotReady, "", "a secret") }

// A cluster that does not ask makes no tokens that none would ask for.
func TestPlainClustersMakeNoTokens(t *testing.T) {
	n := apitest.Start(t)
	if status, p := ask(t, n, "POST", "/api/v1/tokens", "", `{"name":"x","role":"admin"}`); status != 409 || !strings.Contains(p.Remedy, "--secure") {
		t.Errorf("%d %+v", status, p)
	}
	if status, _ := ask(t, n, "GET", "/api/v1/whoami", "", ""); status != 200 {
		t.Error(status)
	}
}

// A node that is cut off from the leader does not know what was revoked: it makes no backup for a token.
func TestBackupAsksTheLeader(t *testing.T) {
	t.Parallel()
	underOneLeader(t, backupAsksTheLeader)
}

func backupAsksTheLeader(t *tenure) {
	nodes := t.cluster(3, apitest.Secure)
	admin := nodes[0].Token(t, wire.TokenRequest{Role: job.RoleAdmin})
	for _, n := range nodes {
		if status, p := ask(t, n, "GET", "/api/v1/backup", admin, ""); status != 200 {
			t.Errorf("%d %+v", status, p)
		}
	}
	t.leads(nil)
	// The follower that is left alone has no leader to ask.
	for _, n := range nodes[:2] {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for {
		status, p := ask(t, nodes[2], "GET", "/api/v1/backup", admin, "")
		if status == 503 && (p.Code == job.CodeNoLeader) {
			break
		}
		if status != 503 && status != 200 {
			t.Fatalf("%d %+v", status, p)
		}
	}
}

func serveHandler(t testing.TB, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}
