package apitest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// An id tells nothing to who may not see its namespace: a job that never was, one of another namespace and one that was
// deleted there are answered in the same way by every route. The routes are those of the table.
func TestIdsTellNothing(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	all := n.Token(t, wire.TokenRequest{Name: "all", Role: job.RoleOperator})
	worker := n.Token(t, wire.TokenRequest{Name: "worker", Role: job.RoleWorker, Namespace: "team-a"})
	stranger := n.Token(t, wire.TokenRequest{Name: "stranger", Role: job.RoleOperator, Namespace: "team-b"})
	insider := n.Token(t, wire.TokenRequest{Name: "insider", Role: job.RoleOperator, Namespace: "team-a"})
	do := func(token, method, path, body string) (int, string) {
		t.Helper()
		res := send(t, t.Context(), n, method, "/api/v1/"+path, token, strings.NewReader(body))
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	must := func(token, method, path, body string, v any) {
		t.Helper()
		code, text := do(token, method, path, body)
		if code >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, code, text)
		}
		if v != nil {
			if err := json.Unmarshal([]byte(text), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	const spec = `{"name":%q,"type":"queue","schedule":"@manual","payload":{"queue":"mail"},"namespace":"team-a"}`
	id := map[string]string{"never was": "j_fffff"}
	for _, what := range []string{"elsewhere", "deleted", "deleted with a history"} {
		var j job.Job
		must(all, "POST", "jobs?namespace=team-a", fmt.Sprintf(spec, strings.ReplaceAll(what, " ", "-")), &j)
		id[what] = j.ID.String()
		if what == "deleted with a history" {
			must(all, "POST", "jobs/"+id[what]+":run", "", nil)
			var polled job.PollReply
			must(worker, "POST", "workers:poll?queue=mail", `{"worker":"w","free":1,"wait":"5s"}`, &polled)
			if len(polled.Runs) != 1 {
				t.Fatalf("%+v", polled)
			}
			must(worker, "POST", "workers:report?queue=mail", fmt.Sprintf(`{"results":[{"claim":%q,"outcome":"succeeded"}]}`, polled.Runs[0].Claim), nil)
		}
		if what != "elsewhere" {
			must(all, "DELETE", "jobs/"+id[what], "", nil)
		}
	}
	bodies := map[string]string{
		"PUT /api/v1/jobs/{ref}":           `{"name":"x","type":"queue","schedule":"@manual","payload":{"queue":"mail"}}`,
		"PATCH /api/v1/jobs/{ref}":         `{"timeout":"1m"}`,
		"POST /api/v1/jobs/{ref}:backfill": `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}`,
	}
	type question struct{ method, path, body string } // {ref} stands for the id
	asked := []question{}
	for _, rt := range namespacedRoutes() {
		if path, ok := strings.CutPrefix(rt.Path, "/api/v1/jobs/{ref}"); ok {
			asked = append(asked, question{rt.Method, "jobs/{ref}" + path, bodies[rt.Method+" "+rt.Path]})
		}
	}
	routes := len(asked)
	asked = append(asked, question{"GET", "runs?job={ref}", ""}, question{"GET", "runs:summary?job={ref}", ""},
		question{"GET", "dead?job={ref}", ""}, question{"GET", "dead:groups?job={ref}", ""},
		question{"GET", "jobs/{ref}/runs?limit=1&status=succeeded", ""}, question{"POST", "dead:redrive", `{"job":"{ref}"}`})
	if routes < 10 {
		t.Errorf("%d routes", routes)
	}
	for i, q := range asked {
		seen := map[string]string{}
		for what, ref := range id {
			code, text := do(stranger, q.method, strings.ReplaceAll(q.path, "{ref}", ref), strings.ReplaceAll(q.body, "{ref}", ref))
			seen[what] = fmt.Sprint(code, " ", strings.ReplaceAll(text, ref, "{ref}"))
			if i < routes && code != 404 {
				t.Errorf("%s %s of one that %s: %s", q.method, q.path, what, seen[what])
			}
		}
		for what, got := range seen {
			if got != seen["never was"] {
				t.Errorf("%s %s\nof one that is %s: %s\nthat never was: %s", q.method, q.path, what, got, seen["never was"])
			}
		}
	}
	// Who may see the namespace still has the history.
	for _, token := range []string{insider, all} {
		code, text := do(token, "GET", "jobs/"+id["deleted with a history"]+"/runs", "")
		if code != 200 || !strings.Contains(text, `"succeeded"`) {
			t.Errorf("%d %s", code, text)
		}
	}
}
