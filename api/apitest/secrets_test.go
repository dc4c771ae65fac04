package apitest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

// Runs with secrets go to workers of nodes, and to those whose token was granted all that they need: by the protocol of
// workers and by that of workers of a queue. Others wait in vain, and are told why.
func TestSecretsGoToGrantedWorkersOnly(t *testing.T) {
	n := apitest.Start(t, apitest.Secure, apitest.Keys)
	put := func(space, name string) {
		t.Helper()
		_, err := n.Backend.PutSecret(t.Context(), name, wire.SecretRequest{Value: "value of " + name}, api.Request{Key: space + name, Space: api.Space{Namespace: space}})
		if err != nil {
			t.Fatal(err)
		}
	}
	put("default", "one")
	put("default", "two")
	for name, spec := range map[string]job.Spec{
		"http":   {Type: job.TypeHTTP, Payload: json.RawMessage(`{"url":"https://h/secret://one","headers":{"A":"secret://two"}}`)},
		"queued": {Type: job.TypeQueue, Payload: json.RawMessage(`{"queue":"mail","data":{"k":"secret://one"}}`)}} {
		spec.Name, spec.Schedule = name, "@manual"
		if _, _, err := n.Backend.CreateJob(t.Context(), spec, api.Request{Key: name}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Backend.RunJob(t.Context(), name, api.Request{Key: "run " + name}); err != nil {
			t.Fatal(err)
		}
	}
	worker := func(name string, secrets ...string) string {
		return n.Token(t, wire.TokenRequest{Name: name, Role: job.RoleWorker, WorkerGrant: wire.WorkerGrant{Secrets: secrets}})
	}
	ask := func(token, query string, p job.Poll) (out job.PollReply) {
		t.Helper()
		p.Free, p.Wait = 1, job.Duration(300e6)
		if status, p := tell(t, n, "/api/v1/workers:poll"+query, token, p, &out); status != 200 {
			t.Fatalf("%d %+v", status, p)
		}
		return out
	}
	poll := func(token, name string) job.PollReply {
		p := job.Poll{Worker: name, Types: []job.Type{job.TypeHTTP}}
		p.Session = open(t, n, token, p)
		return ask(token, "", p)
	}
	pull := func(token string) job.PollReply { return ask(token, "?queue=mail", job.Poll{Worker: "w"}) }
	none, half, other := worker("none"), worker("half", "two"), worker("other", "three")
	for name, token := range map[string]string{"none": none, "half": half, "other": other} {
		if got := poll(token, name); len(got.Runs) > 0 {
			t.Errorf("%s got %+v", name, got)
		}
		if got := pull(token); len(got.Runs) > 0 {
			t.Errorf("%s got %+v", name, got)
		}
	}
	j, err := n.Backend.GetJob(t.Context(), "http", api.Read{})
	if err != nil || !strings.Contains(j.WaitReason, "secret") {
		t.Errorf("it waits because %q, %v", j.WaitReason, err)
	}
	got := poll(worker("both", "one", "two"), "both")
	if len(got.Runs) != 1 || !strings.Contains(string(got.Runs[0].Payload), `"A":"value of two"`) ||
		!strings.Contains(string(got.Runs[0].Payload), "value%20of%20one") || len(got.Runs[0].Secrets) != 2 {
		t.Errorf("%+v", got)
	}
	all := worker("all", "*")
	pulled := pull(all)
	if len(pulled.Runs) != 1 || string(pulled.Runs[0].QueueOf().Data) != `{"k":"value of one"}` {
		t.Fatalf("%+v", pulled)
	}
	// A script masks nothing; the leader does.
	report := job.Report{Results: []job.Result{{Ref: job.Ref{Claim: pulled.Runs[0].Claim}, Outcome: job.OutcomeFailed, Output: "it was value of one", Error: "no"}}}
	if status, p := tell(t, n, "/api/v1/workers:report?queue=mail", all, report, nil); status != 200 {
		t.Fatalf("%d %+v", status, p)
	}
	runs, err := n.Backend.Runs(t.Context(), wire.RunQuery{Job: "queued", Limit: 10}, api.Read{})
	if err != nil || len(runs.Runs) == 0 || !strings.Contains(text(t, runs), "it was ***") || strings.Contains(text(t, runs), "value of one") {
		t.Errorf("%+v, %v", runs, err)
	}
}

// Who sets secrets and who uses them: an admin of the namespace, and its operators. None reads them.
func TestRolesOfSecrets(t *testing.T) {
	n := apitest.Start(t, apitest.Secure, apitest.Keys)
	token := func(role job.TokenRole, space string) string {
		return n.Token(t, wire.TokenRequest{Role: role, Namespace: space})
	}
	do := func(method, path, token, body string) (int, string) {
		res := send(t, t.Context(), n, method, path, token, strings.NewReader(body))
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(data)
	}
	const value = `{"value":"hunter2hunter2"}`
	for _, tt := range []struct {
		role              job.TokenRole
		space, method, at string
		status            int
	}{
		{job.RoleAdmin, "team-a", "PUT", "/secrets/k", 200}, {job.RoleAdmin, "", "PUT", "/secrets/k?namespace=team-a", 200},
		{job.RoleAdmin, "team-b", "PUT", "/secrets/k?namespace=team-a", 403}, {job.RoleOperator, "team-a", "PUT", "/secrets/k", 403},
		{job.RoleViewer, "team-a", "PUT", "/secrets/k", 403}, {job.RoleWorker, "team-a", "PUT", "/secrets/k", 403},
		{job.RoleWorker, "team-a", "GET", "/secrets", 403}, {job.RoleOperator, "team-a", "DELETE", "/secrets/k", 403},
		{job.RoleViewer, "team-a", "GET", "/secrets/k", 200}, {job.RoleViewer, "team-b", "GET", "/secrets/k", 404},
		{job.RoleAdmin, "team-b", "DELETE", "/secrets/k", 404},
	} {
		body := ""
		if tt.method == "PUT" {
			body = value
		}
		status, text := do(tt.method, "/api/v1"+tt.at, token(tt.role, tt.space), body)
		if status != tt.status || strings.Contains(text, "hunter2") {
			t.Errorf("%+v: %d %s", tt, status, text)
		}
	}
	const spec = `{"type":"http","schedule":"@manual","payload":{"url":"https://h/secret://k"}}`
	if status, text := do("POST", "/api/v1/jobs", token(job.RoleOperator, "team-a"), spec); status != http.StatusCreated {
		t.Errorf("%d %s", status, text)
	}
	if status, text := do("POST", "/api/v1/jobs", token(job.RoleOperator, "team-b"), spec); status != http.StatusBadRequest || !strings.Contains(text, "no secret") {
		t.Errorf("%d %s", status, text)
	}
}

// A request leaves no hash of its value behind: two values under one key are one request.
func TestSecretsLeaveNoFingerprint(t *testing.T) {
	n := apitest.Start(t, apitest.Keys)
	for i, value := range []string{"hunter2hunter2", "hunter3hunter3"} {
		w := serve(t, n.Backend, "PUT", "/api/v1/secrets/k", map[string]string{"Idempotency-Key": "one"}, `{"value":"`+value+`"}`)
		if w.Code != 200 || (w.Header().Get("Idempotent-Replay") == "true") != (i == 1) || !strings.Contains(w.Body.String(), `"version":1`) {
			t.Errorf("%d %s %s", w.Code, w.Header(), w.Body)
		}
	}
}

// What a job spells out that belongs into a secret gets a warning, where there are secrets.
func TestWarnings(t *testing.T) {
	const spec = `{"name":"j","type":"http","schedule":"@manual","payload":{"url":"https://h/","headers":{"Authorization":"Bearer abc"}}}`
	for name, change := range map[string][]func(*node.Config){"secure": {apitest.Secure, apitest.Keys}, "plain": nil} {
		n := apitest.Start(t, change...)
		token := tokenIf(t, n, wire.TokenRequest{Role: job.RoleOperator})
		for _, rq := range [][3]string{{"POST", "/api/v1/jobs", spec}, {"PUT", "/api/v1/jobs/j", spec},
			{"PATCH", "/api/v1/jobs/j", `{"timeout":"1m"}`}, {"GET", "/api/v1/jobs/j", ""}} {
			res := send(t, t.Context(), n, rq[0], rq[1], token, strings.NewReader(rq[2]))
			res.Body.Close()
			got := res.Header.Get(wire.WarningHeader)
			if res.StatusCode >= 300 || (got != "") != (name == "secure" && rq[0] != "GET") || got != "" && !strings.Contains(got, "carillon secret set") {
				t.Errorf("%s, %s: %d, %q", name, rq[0], res.StatusCode, got)
			}
		}
	}
}

// That a secret was set or deleted is recorded, with its name and who did it, and nothing of its value.
func TestSecretsAreRecorded(t *testing.T) {
	n := apitest.Start(t, apitest.Secure, apitest.Keys)
	token := n.Token(t, wire.TokenRequest{Name: "root", Role: job.RoleAdmin, Namespace: "team-a"})
	for i, rq := range [][3]string{{"PUT", `{"value":"hunter2hunter2"}`, "secret.set"}, {"PUT", `{"value":"hunter3hunter3"}`, "secret.set"}, {"DELETE", "", "secret.delete"}} {
		before, _ := lastAudit(t, n)
		for range 2 { // a repetition leaves none
			res := send(t, t.Context(), n, rq[0], "/api/v1/secrets/k", token, strings.NewReader(rq[1]), "Idempotency-Key", fmt.Sprint("key ", i))
			res.Body.Close()
			seq, a := lastAudit(t, n)
			if res.StatusCode >= 300 || seq != before+1 || a.Action != rq[2] || a.Object != "k" || a.Namespace != "team-a" || a.Name != "root" ||
				a.Outcome != "" || !a.Guarded() || strings.Contains(fmt.Sprintf("%+v", a), "hunter") {
				t.Errorf("%v: %d, %d records, %+v", rq, res.StatusCode, seq-before, a)
			}
		}
	}
}
