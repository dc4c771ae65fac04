package apitest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// Who calls a secure cluster is said by the token and the connection, whatever the headers say.
func TestAuditBelievesNoHeader(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	token := n.Token(t, wire.TokenRequest{Name: "ci", Role: job.RoleOperator})
	forged := []string{wire.ForwardedHeader, "n9", wire.AddressHeader, "192.0.2.1", wire.LocalHeader, "true",
		"X-Forwarded-For", "192.0.2.2", "X-Real-Ip", "192.0.2.3", "Forwarded", "for=192.0.2.4", "True-Client-Ip", "192.0.2.5"}
	if status, p := ask(t, n, "PUT", "/api/v1/queues/q", token, `{"concurrency":5}`, forged...); status != 200 {
		t.Fatalf("%d %+v", status, p)
	}
	seq, a := lastAudit(t, n)
	if a.Name != "ci" || a.Token == "" || a.Address != "127.0.0.1" || a.Action != "queue.put" {
		t.Errorf("%+v", a)
	}
	if status, _ := ask(t, n, "PUT", "/api/v1/queues/r", "", `{"concurrency":5}`, forged...); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	if now, _ := lastAudit(t, n); now != seq {
		t.Error("what was refused left a record")
	}
}

// However long what a request names is, its record is short; most is refused before there is one.
func TestAuditOfHugeRequests(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	token := n.Token(t, wire.TokenRequest{Name: "root", Role: job.RoleAdmin})
	before, _ := lastAudit(t, n)
	named := func(n int) string {
		return `{"name":"` + strings.Repeat("x", n) + `","type":"queue","schedule":"@manual","payload":{"queue":"q"}}`
	}
	// The node need not read ten megabytes before it answers.
	rq, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+n.Addr()+"/api/v1/jobs", strings.NewReader(named(10<<20)))
	if err != nil {
		t.Fatal(err)
	}
	rq.Header.Set("Authorization", "Bearer "+token)
	if res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(rq); err == nil {
		if res.Body.Close(); res.StatusCode != 413 {
			t.Errorf("ten megabytes: %d", res.StatusCode)
		}
	}
	long := strings.Repeat("y", 50_000)
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/api/v1/jobs", named(900 << 10)},
		{"POST", "/api/v1/jobs", named(300)},
		{"PUT", "/api/v1/queues/" + long, `{"concurrency":5}`},
		{"PUT", "/api/v1/calendars/" + long, `{"dates":["12-25"]}`},
		{"POST", "/api/v1/tokens", `{"name":"` + long + `","role":"viewer"}`},
		{"POST", "/api/v1/jobs/" + long + ":pause", ``},
		{"POST", "/api/v1/cluster:remove", `{"node_id":"` + long + `"}`},
		{"POST", "/api/v1/cluster:promote", `{"node_id":"` + long + `"}`},
		{"POST", "/api/v1/backup:note", `{"node_id":"` + long + `"}`},
	} {
		if status, _ := ask(t, n, tt.method, tt.path, token, tt.body); status < 400 || status >= 500 {
			t.Errorf("%s %.40s: %d", tt.method, tt.path, status)
		}
		if seq, a := lastAudit(t, n); seq != before {
			t.Errorf("%s %.40s left a record of %d bytes", tt.method, tt.path, len(a.ID)+len(a.Object)+len(a.Namespace)+len(a.Request))
			before = seq
		}
	}
	if status, _ := ask(t, n, "POST", "/api/v1/tokens/"+long+":revoke", token, ``); status != 404 {
		t.Errorf("revoke: %d", status)
	}
	if _, a := lastAudit(t, n); len(a.ID)+len(a.Object)+len(a.Request) > 512 || a.Outcome != "not_found" {
		t.Errorf("%d bytes, %s", len(a.ID)+len(a.Object)+len(a.Request), a.Outcome)
	}
}

// An admin of one namespace gets nothing to see of another, nor of what is in none, however it is asked for.
func TestAuditOfAnotherNamespace(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	ctx := t.Context()
	as := func(rq wire.TokenRequest) *client.Client {
		return client.New(n.Addr(), client.WithHeader("Authorization", "Bearer "+n.Token(t, rq)), client.WithAttempts(1))
	}
	root := as(wire.TokenRequest{Name: "root", Role: job.RoleAdmin})
	a, b := as(wire.TokenRequest{Name: "a", Role: job.RoleAdmin, Namespace: "team-a"}), as(wire.TokenRequest{Name: "b", Role: job.RoleAdmin, Namespace: "team-b"})
	five := 5
	if _, err := a.PutQueue(ctx, "secret-project", wire.QueueChange{Concurrency: &five}, 0); err != nil {
		t.Fatal(err)
	}
	if err := a.BulkCreate(ctx, strings.NewReader(`{"name":"secret-job","type":"queue","schedule":"@manual","payload":{"queue":"q"}}`+"\n"),
		func(r wire.BulkResult) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := root.CreateToken(ctx, wire.TokenRequest{Name: "everywhere", Role: job.RoleAdmin}); err != nil {
		t.Fatal(err)
	}
	if _, err := root.CreateToken(ctx, wire.TokenRequest{Name: "of team-a", Role: job.RoleViewer, Namespace: "team-a"}); err != nil {
		t.Fatal(err)
	}
	all, err := a.Audit(ctx, wire.AuditQuery{Limit: 100})
	if err != nil || len(all.Records) != 3 {
		t.Fatalf("%+v %v", all, err)
	}
	for name, q := range map[string]wire.AuditQuery{"nothing": {Limit: 100}, "object": {Object: "secret-project", Limit: 1},
		"token": {Token: "a", Limit: 1}, "action": {Action: "token", Limit: 1}, "cursor": {Cursor: "1000000", Limit: 1}} {
		page, err := b.Audit(ctx, q)
		if err != nil || len(page.Records) != 0 || page.NextCursor != "" {
			t.Errorf("%s: %+v %v", name, page, err)
		}
		q.Cursor = ""
		if err := b.ExportAudit(ctx, q, func(r wire.AuditRecord, _ json.RawMessage) error {
			t.Errorf("%s: %+v", name, r)
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	for _, in := range []string{"team-a", "*", "default"} {
		page, err := b.In(in).Audit(ctx, wire.AuditQuery{Limit: 10})
		if in != "*" && job.CodeOf(err) != job.CodeForbidden || len(page.Records) != 0 {
			t.Errorf("%s: %+v %v", in, page, err)
		}
	}
}
