package apitest_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// spaces is a node on which two namespaces have the same things under the same names.
type spaces struct {
	t *testing.T
	n *apitest.Node

	jobs    map[string]string // id of the job mail, by namespace
	runs    map[string]string // id of a run that succeeded
	open    map[string]string // id of one that waits
	dead    map[string]string // number of a dead letter
	removed map[string]string // id of a job that is gone, whose history is not
}

func (s *spaces) do(method, path, body string) (int, string) {
	s.t.Helper()
	w := serveWith(s.t, s.n.Backend, s.n.Options, method, path, nil, body)
	return w.Code, w.Body.String()
}

// must is do for what succeeds; it reads the answer into v.
func (s *spaces) must(method, path, body string, v any) {
	s.t.Helper()
	code, text := s.do(method, path, body)
	if code >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	if v != nil {
		if err := json.Unmarshal([]byte(text), v); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
}

const mailJob = `{"name":%q,"type":"queue","schedule":"@manual","overlap":"allow","retry":{"max_retries":0},"payload":{"queue":"mail"},"calendars":["days"]}`

// finish takes the one run that waits and ends it.
func (s *spaces) finish(in, outcome string) (run string) {
	s.t.Helper()
	query := "?queue=mail" + strings.Replace(in, "?", "&", 1)
	var polled job.PollReply
	s.must("POST", "/api/v1/workers:poll"+query, `{"worker":"w","free":5,"wait":"5s"}`, &polled)
	if len(polled.Runs) != 1 {
		s.t.Fatalf("%d runs in %q", len(polled.Runs), in)
	}
	s.must("POST", "/api/v1/workers:report"+query, fmt.Sprintf(`{"results":[{"claim":%q,"outcome":%q,"error":"no"}]}`,
		polled.Runs[0].Claim, outcome), nil)
	return polled.Runs[0].Run.String()
}

func newSpaces(t *testing.T) *spaces {
	s := &spaces{t: t, n: apitest.Start(t, apitest.Keys), jobs: map[string]string{}, runs: map[string]string{}, open: map[string]string{},
		dead: map[string]string{}, removed: map[string]string{}}
	for _, space := range []string{"default", "team-a"} {
		in := "?namespace=" + space
		if space == "default" {
			in = "" // nothing is said
		}
		s.must("PUT", "/api/v1/calendars/days"+in, `{"dates":["12-25"]}`, nil)
		s.must("PUT", "/api/v1/secrets/api-key"+in, `{"value":"hunter2hunter2"}`, nil)
		s.must("PUT", "/api/v1/queues/mail"+in, `{"concurrency":7}`, nil)
		var mail, gone job.Job
		s.must("POST", "/api/v1/jobs"+in, fmt.Sprintf(mailJob, "mail"), &mail)
		s.must("POST", "/api/v1/jobs"+in, fmt.Sprintf(mailJob, "gone"), &gone)
		s.must("POST", "/api/v1/jobs/gone:run"+in, "", nil)
		s.finish(in, "succeeded")
		s.must("DELETE", "/api/v1/jobs/gone"+in, "", nil)
		s.must("POST", "/api/v1/jobs/mail:run"+in, "", nil)
		run := s.finish(in, "succeeded")
		s.must("POST", "/api/v1/jobs/mail:run"+in, "", nil)
		s.finish(in, "failed")
		var letters struct{ Dead []job.DeadLetter }
		s.must("GET", "/api/v1/dead"+in, "", &letters)
		var waits job.Run
		s.must("POST", "/api/v1/jobs/mail:run"+in, "", &waits)
		if len(letters.Dead) != 1 || mail.Namespace != space || waits.Namespace != space {
			t.Fatalf("%s: %+v %+v %+v", space, mail, letters.Dead, waits)
		}
		s.jobs[space], s.runs[space], s.removed[space] = mail.ID.String(), run, gone.ID.String()
		s.open[space], s.dead[space] = waits.RunID, fmt.Sprint(letters.Dead[0].Seq)
	}
	return s
}

// named are the namespaces that an answer names, each once.
func named(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if s, ok := v["namespace"].(string); ok {
				out = append(out, s)
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		walk(v)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Every list shows what is in the namespace that was asked for and nothing else. The lists are those of the route table:
// one that is added is in this test.
func TestListsShowTheirNamespace(t *testing.T) {
	s := newSpaces(t)
	for _, space := range []string{"default", "team-a"} {
		s.must("POST", "/api/v1/jobs?namespace="+space, strings.Replace(fmt.Sprintf(mailJob, "mail-daily"), "@manual", "0 9 * * *", 1), nil)
	}
	more := map[string][]string{"/api/v1/runs": {"status=succeeded,dead,canceled", "job=j_", "status=pending", "error=n", "worker=w", "from=2026-01-01T00:00:00Z"},
		"/api/v1/jobs": {"prefix=m", "type=queue", "limit=1", "q=AIL", "failing=true"}, "/api/v1/dead": {"limit=1"}}
	seen := 0
	for _, rt := range namespacedRoutes() {
		list := rt.Method == "GET" && !strings.Contains(rt.Path, "{")
		if !list || slices.Contains([]string{"/api/v1/stats", "/api/v1/events", "/api/v1/runs:summary", "/api/v1/upcoming:load"}, rt.Path) {
			continue // they count, and name nothing
		}
		seen++
		for _, filter := range append([]string{""}, more[rt.Path]...) {
			for asked, want := range map[string]string{"": "default", "default": "default", "team-a": "team-a", "team-b": "", "*": "default team-a"} {
				query := filter
				if asked != "" {
					query = strings.Trim(query+"&namespace="+asked, "&")
				}
				if filter == "job=j_" {
					query = strings.Replace(query, "j_", s.jobs[cmp.Or(map[string]string{"*": "team-a", "team-b": "team-a"}[asked], asked, "default")], 1)
				}
				code, text := s.do("GET", rt.Path+"?"+query, "")
				switch {
				case filter == "job=j_" && asked == "team-b":
					if code != http.StatusNotFound {
						t.Errorf("%s?%s: %d %s", rt.Path, query, code, text)
					}
					continue
				case filter == "job=j_" && asked == "*":
					want = "team-a"
				case filter == "limit=1" && asked == "*":
					want = "" // which of them is first does not matter
				}
				if rt.Path == "/metrics/jobs" {
					text = regexp.MustCompile(`(?m)^.*namespace=("[^"]*").*$|^.*$`).ReplaceAllString(text, `{"namespace":$1}`)
					text = "[" + strings.Join(strings.Fields(strings.ReplaceAll(text, `{"namespace":}`, "")), ",") + "]"
				}
				got := strings.Join(named(t, text), " ")
				if code != http.StatusOK || got != want && (want != "" || asked == "team-b") {
					t.Errorf("%s?%s: %d, shows %q, want %q\n%s", rt.Path, query, code, got, want, text)
				}
			}
		}
	}
	if seen < 6 {
		t.Errorf("%d lists", seen)
	}
	for asked, want := range map[string]int64{"default": 2, "team-a": 2, "team-b": 0, "*": 4} {
		var sum wire.RunSummary
		s.must("GET", "/api/v1/runs:summary?namespace="+asked, "", &sum)
		if sum.ByStatus["succeeded"] != want || sum.ByStatus["dead"] != want/2 {
			t.Errorf("the summary of %s: %+v", asked, sum)
		}
		var load wire.UpcomingLoad
		s.must("GET", "/api/v1/upcoming:load?namespace="+asked, "", &load)
		if want == 0 && len(load.Buckets) != 0 || want != 0 && (len(load.Buckets) != 1 || load.Buckets[0].Count != want/2) {
			t.Errorf("the load of %s: %+v", asked, load)
		}
	}
}

// What is named is found in its namespace only, by its id and by its name, whatever is done with it; nothing changes
// otherwise. The routes are those of the table.
func TestThingsAreFoundInTheirNamespaceOnly(t *testing.T) {
	s := newSpaces(t)
	refs := map[string][]string{
		"jobs": {"mail", s.jobs["team-a"]}, "runs": {s.open["team-a"], s.runs["team-a"]}, "dead": {s.dead["team-a"]},
		"calendars": {"days"}, "queues": {"mail"}, "secrets": {"api-key"},
	}
	bodies := map[string]string{
		"PUT /api/v1/jobs/{ref}": strings.Replace(fmt.Sprintf(mailJob, "mail"), `,"calendars":["days"]`, "", 1), "PATCH /api/v1/jobs/{ref}": `{"timeout":"1m"}`,
		"POST /api/v1/jobs/{ref}:backfill": `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}`,
		"PATCH /api/v1/queues/{queue}":     `{"concurrency":1}`,
	}
	// These make something in the namespace that they name.
	other := map[string]bool{"PUT /api/v1/queues/{queue}": true, "PUT /api/v1/calendars/{name}": true, "PUT /api/v1/secrets/{name}": true}
	before := s.everything()
	tried := 0
	for _, rt := range namespacedRoutes() {
		name := rt.Method + " " + rt.Path
		begin, end := strings.Index(rt.Path, "{"), strings.Index(rt.Path, "}")
		if begin < 0 || other[name] {
			continue
		}
		for _, ref := range refs[strings.Split(rt.Path, "/")[3]] {
			path := rt.Path[:begin] + ref + rt.Path[end+1:]
			code, text := s.do(rt.Method, path+"?namespace=team-b", bodies[name])
			if code != http.StatusNotFound {
				t.Errorf("%s %s in team-b: %d %s", rt.Method, path, code, text)
			}
			if code, text = s.do(rt.Method, path+"?namespace=*", bodies[name]); code != http.StatusBadRequest || !strings.Contains(text, "name the namespace") {
				t.Errorf("%s %s in all: %d %s", rt.Method, path, code, text)
			}
			tried++
		}
	}
	if after := s.everything(); after != before || tried < 20 {
		t.Errorf("%d calls in another namespace made\n%s\nof\n%s", tried, after, before)
	}
	// Without a namespace an id is enough; a name is one of the usual namespace.
	for path, want := range map[string]string{"jobs/" + s.jobs["team-a"]: "team-a", "runs/" + s.runs["team-a"]: "team-a", "dead/" + s.dead["team-a"]: "team-a",
		"jobs/mail": "default", "jobs/" + s.jobs["team-a"] + "/runs": "team-a"} {
		if code, text := s.do("GET", "/api/v1/"+path, ""); code != http.StatusOK || strings.Join(named(t, text), " ") != want {
			t.Errorf("%s: %d %s, want one of %s", path, code, text, want)
		}
	}
}

// everything is what the lists of all namespaces show.
func (s *spaces) everything() string {
	s.t.Helper()
	var out strings.Builder
	for _, path := range []string{"jobs?", "runs?", "dead?", "queues?", "calendars?", "secrets?", "runs:export?"} {
		code, text := s.do("GET", "/api/v1/"+path+"namespace=*", "")
		if code != http.StatusOK {
			s.t.Fatal(path, text)
		}
		out.WriteString(text)
	}
	return out.String()
}

// The history of a job that is gone is shown in its namespace.
func TestHistoryOfARemovedJobKeepsItsNamespace(t *testing.T) {
	s := newSpaces(t)
	for space, id := range s.removed {
		for _, asked := range []string{"", "?namespace=" + space} {
			var page struct{ Runs []job.Run }
			s.must("GET", "/api/v1/jobs/"+id+"/runs"+asked, "", &page)
			if len(page.Runs) != 1 || page.Runs[0].Namespace != space {
				t.Errorf("%s of %s: %+v", asked, space, page.Runs)
			}
		}
		if code, text := s.do("GET", "/api/v1/jobs/"+id+"/runs?namespace=team-b", ""); code != http.StatusNotFound {
			t.Errorf("of %s in team-b: %d %s", space, code, text)
		}
	}
}

// A job never moves, and a document that names another namespace than its request is refused.
func TestNamespacesDoNotChange(t *testing.T) {
	s := newSpaces(t)
	before := s.everything()
	id := s.jobs["team-a"]
	moved := strings.Replace(fmt.Sprintf(mailJob, "mail"), "{", `{"namespace":"team-b",`, 1)
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "jobs/" + id, moved, `in namespace \"team-a\" and cannot be moved`},
		{"PATCH", "jobs/" + id, `{"namespace":"team-b"}`, `in namespace \"team-a\" and cannot be moved`},
		{"PATCH", "jobs/mail", `{"namespace":"team-b"}`, `in namespace \"default\" and cannot be moved`},
		{"PUT", "jobs/mail?namespace=team-a", moved, `the document says \"team-b\" and the request \"team-a\"`},
		{"POST", "jobs?namespace=team-a", moved, `the document says \"team-b\" and the request \"team-a\"`},
		{"POST", "jobs:bulk?namespace=team-a", moved, `the document says \"team-b\" and the request \"team-a\"`},
		{"PUT", "queues/mail?namespace=team-a", `{"namespace":"team-b","concurrency":1}`, "leave one of them out"},
		{"PUT", "calendars/days?namespace=team-a", `{"namespace":"team-b","dates":["12-24"]}`, "leave one of them out"},
		{"POST", "jobs", strings.Replace(moved, "team-b", "Team B", 1), `\"Team B\" is not the name of a namespace`},
		{"POST", "jobs", moved, `no calendar \"days\" in namespace \"team-b\"`}, // they are of the job's namespace
		{"GET", "jobs?namespace=", "", "is not the name of a namespace"},
		{"GET", "jobs?namespace=a&namespace=b", "", "give it once"},
		{"GET", "runs?namespace=*&job=mail", "", "name one namespace, or give the job's id"},
		{"GET", "status?namespace=default", "", "no such query parameter"},
		{"GET", "jobs/mail?namespace=team-b", "", `there is no job \"mail\" in namespace \"team-b\"`},
		{"GET", "jobs/mail?namespace=team-b", "", `there is one in namespace \"default\": say namespace=default`},
		{"GET", "jobs/" + id + "?namespace=default", "", `there is one in namespace \"team-a\"`},
	} {
		code, text := s.do(c.method, "/api/v1/"+c.path, c.body)
		if !strings.Contains(text, c.want) || code < 400 && !strings.Contains(c.path, ":bulk") {
			t.Errorf("%s %s: %d %s, want %s", c.method, c.path, code, text, c.want)
		}
	}
	if after := s.everything(); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
	// What a GET gave can be sent back, by name and by id, and a patch needs to say nothing.
	for _, ref := range []string{"mail?namespace=team-a", id, id + "?namespace=team-a"} {
		_, text := s.do("GET", "/api/v1/jobs/"+ref, "")
		s.must("PUT", "/api/v1/jobs/"+ref, text, nil)
		var j job.Job
		s.must("PATCH", "/api/v1/jobs/"+ref, `{"namespace":null,"tags":{"a":"b"}}`, &j)
		if j.Namespace != "team-a" || j.ID.String() != id {
			t.Errorf("%s: %+v", ref, j)
		}
	}
	_, text := s.do("GET", "/api/v1/jobs/mail?namespace=team-a", "")
	var j job.Job
	if s.must("PUT", "/api/v1/jobs/mail", text, &j); j.Namespace != "team-a" {
		t.Errorf("the document says where it lives: %+v", j)
	}
}

// Redrive and purge take those of the namespace, also by numbers of others.
func TestDeadLettersOfANamespace(t *testing.T) {
	s := newSpaces(t)
	count := func(method, path string, want int) {
		t.Helper()
		var r struct{ Count int }
		if s.must(method, "/api/v1/"+path, "", &r); r.Count != want {
			t.Errorf("%s: %d, want %d", path, r.Count, want)
		}
	}
	if code, text := s.do("DELETE", "/api/v1/dead?namespace=team-b&ids="+s.dead["team-a"], ""); code != http.StatusNotFound {
		t.Errorf("%d %s", code, text)
	}
	count("DELETE", "dead?namespace=team-b&all=true", 0)
	count("DELETE", "dead?namespace=default&ids="+s.dead["team-a"]+","+s.dead["default"], 1)
	count("POST", "dead:redrive?all=true", 0) // those of the usual one are gone
	count("POST", "dead:redrive?namespace=team-a&all=true", 1)
}

// An unnamed line of a bulk create is known by what it says, and where it goes.
func TestBulkLinesOfTwoNamespaces(t *testing.T) {
	n := apitest.Start(t)
	line := `{"type":"shell","schedule":"@manual","payload":{"command":"true"}}`
	ids := map[string]bool{}
	for _, in := range []string{"", "?namespace=team-a", "", "?namespace=team-a", "?namespace=team-b"} {
		w := serveWith(t, n.Backend, n.Options, "POST", "/api/v1/jobs:bulk"+in, nil, line)
		var r struct {
			Status string
			ID     string `json:"job_id"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || r.Status == "error" {
			t.Fatal(w.Body)
		}
		ids[r.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d jobs in three namespaces", len(ids))
	}
}

// A token for a namespace sees that one and no other: it is the one of what says nothing, and what others have is not
// there, by name and by id, in lists and in bodies. Not even an error tells of it.
func TestTokensKeepToTheirNamespace(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	tokens := map[string]string{"": n.Token(t, wire.TokenRequest{Name: "all", Role: job.RoleOperator})}
	for _, space := range []string{"default", "team-a"} {
		tokens[space] = n.Token(t, wire.TokenRequest{Name: space, Role: job.RoleOperator, Namespace: space})
	}
	do := func(token, method, path, body string) (int, string) {
		t.Helper()
		res := send(t, t.Context(), n, method, "/api/v1/"+path, tokens[token], strings.NewReader(body))
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	ids := map[string]string{}
	for _, space := range []string{"default", "team-a"} {
		code, text := do(space, "POST", "jobs", `{"name":"mail","type":"queue","schedule":"@manual","payload":{"queue":"mail"}}`)
		var j job.Job
		if err := json.Unmarshal([]byte(text), &j); err != nil || code != http.StatusCreated || j.Namespace != space {
			t.Fatalf("%d %s", code, text)
		}
		ids[space] = j.ID.String()
	}
	if code, text := do("", "POST", "jobs", `{"name":"secret","type":"queue","schedule":"@manual","payload":{"queue":"q"},"namespace":"team-b"}`); code != http.StatusCreated {
		t.Fatalf("%d %s", code, text)
	}
	in := strings.Replace(`{"name":"x","type":"queue","schedule":"@manual","payload":{"queue":"mail"},"namespace":"SPACE"}`, "SPACE", "default", 1)
	for _, c := range []struct {
		token, method, path, body string
		code                      int
		want                      string
	}{
		{"team-a", "GET", "jobs", "", 200, `"namespace":"team-a"`},
		{"team-a", "GET", "jobs?namespace=team-a", "", 200, `"namespace":"team-a"`},
		{"team-a", "GET", "jobs?namespace=*", "", 403, "is for the namespace team-a"},
		{"team-a", "GET", "jobs?namespace=default", "", 403, "is for the namespace team-a"},
		{"team-a", "GET", "jobs/" + ids["team-a"], "", 200, `"namespace":"team-a"`},
		{"team-a", "GET", "jobs/" + ids["default"], "", 404, `in namespace \"team-a\"`},
		{"team-a", "GET", "jobs/" + ids["default"] + "/runs", "", 404, "there is no job"},
		{"team-a", "POST", "jobs/" + ids["default"] + ":pause", "", 404, "there is no job"},
		{"team-a", "DELETE", "jobs/" + ids["default"], "", 404, "there is no job"},
		{"team-a", "GET", "jobs/secret", "", 404, "lists the jobs"},
		{"", "GET", "jobs/secret", "", 404, `there is one in namespace \"team-b\"`},
		{"team-a", "POST", "jobs", in, 403, "is for the namespace team-a"},
		{"team-a", "POST", "jobs:bulk", in, 200, "is for the namespace team-a"},
		{"team-a", "PUT", "jobs/mail", in, 403, "is for the namespace team-a"},
		{"team-a", "PUT", "queues/mail", `{"namespace":"default"}`, 403, "is for the namespace team-a"},
		{"team-a", "PUT", "calendars/x", `{"namespace":"default","dates":["12-25"]}`, 403, "is for the namespace team-a"},
		{"team-a", "POST", "queues/q:pause", "", 404, "known are mail"},
		{"", "GET", "jobs/" + ids["team-a"], "", 200, `"namespace":"team-a"`},
		{"", "GET", "jobs?namespace=*", "", 200, `"namespace":"team-a"`},
	} {
		code, text := do(c.token, c.method, c.path, c.body)
		if code != c.code || !strings.Contains(text, c.want) || c.token == "team-a" && (strings.Contains(text, "team-b") ||
			code == 200 && strings.Contains(text, `"namespace":"default"`)) {
			t.Errorf("%s %s as %q: %d %s, want %d %s", c.method, c.path, c.token, code, text, c.code, c.want)
		}
	}
	// A worker is kept to the namespace of its token, whether it names that or not.
	tokens["worker"] = n.Token(t, wire.TokenRequest{Name: "w", Role: job.RoleWorker, Namespace: "team-a"})
	for said, want := range map[string]int{"": 200, `,"namespace":"team-a"`: 200, `,"namespace":"default"`: 403} {
		var opened job.PollReply
		for _, more := range []string{`,"secret":"s"`, ""} { // the first opens the session
			code, text := do("worker", "POST", "workers:poll", fmt.Sprintf(`{"session":%q,"worker":"w%d","types":["shell"],"free":0%s%s}`, opened.Session, len(said), said, more))
			if code != want {
				t.Errorf("%s: %d %s", said, code, text)
			}
			if err := json.Unmarshal([]byte(text), &opened); code == 200 && err != nil {
				t.Fatal(err)
			}
		}
	}
	status, err := n.Backend.Status(t.Context(), api.Read{})
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, w := range status.Workers {
		if strings.HasPrefix(w.Worker, "w") && w.Namespace == "team-a" {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%+v", status.Workers)
	}
}

// How much there is in other namespaces is not told to those who may not see them: what an answer says was looked at is
// of theirs alone.
func TestWhatWasLookedAtIsOfTheNamespace(t *testing.T) {
	s := newSpaces(t) // both namespaces have the same in them
	ctx := t.Context()
	far := apitest.Noon.AddDate(1, 0, 0)
	for name, scanned := range map[string]func(api.Read) (int, error){
		"jobs by type": func(rd api.Read) (int, error) {
			page, err := s.n.Backend.ListJobs(ctx, wire.JobQuery{Type: job.TypeQueue, Limit: 100}, rd)
			return page.Scanned, err
		},
		"jobs by text": func(rd api.Read) (int, error) {
			page, err := s.n.Backend.ListJobs(ctx, wire.JobQuery{Text: "a", Limit: 100}, rd)
			return page.Scanned, err
		},
		"runs": func(rd api.Read) (int, error) {
			page, err := s.n.Backend.Runs(ctx, wire.RunQuery{To: job.At(far), Limit: 100}, rd)
			return page.Scanned, err
		},
		"summary": func(rd api.Read) (int, error) {
			sum, err := s.n.Backend.RunSummary(ctx, wire.RunQuery{From: 1, To: job.At(far)}, rd)
			return sum.Scanned, err
		},
		"groups": func(rd api.Read) (int, error) {
			page, err := s.n.Backend.DeadGroups(ctx, wire.DeadQuery{Limit: 100}, rd)
			return page.Scanned, err
		},
		"load": func(rd api.Read) (int, error) {
			load, err := s.n.Backend.UpcomingLoad(ctx, wire.LoadQuery{Step: time.Minute.Milliseconds()}, rd)
			return load.Scanned, err
		},
	} {
		all, err := scanned(api.Read{Space: api.Space{Namespace: job.AllNamespaces, Given: true, All: true}})
		if err != nil || all == 0 {
			t.Errorf("%s: %d in all, %v", name, all, err)
		}
		for _, space := range []string{"default", "team-a"} {
			if n, err := scanned(api.Read{Space: api.Space{Namespace: space}}); err != nil || 2*n != all {
				t.Errorf("%s: %d of %d were looked at in %s, %v", name, n, all, space, err)
			}
		}
	}
}
