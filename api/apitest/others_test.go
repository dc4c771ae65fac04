package apitest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// tenants is a secure node with two namespaces, and an admin and a worker of each.
type tenants struct {
	t             *testing.T
	n             *apitest.Node
	admin, worker map[string]string // tokens, by namespace
}

func newTenants(t *testing.T) *tenants {
	s := &tenants{t: t, n: apitest.Start(t, apitest.Secure, apitest.Keys), admin: map[string]string{},
		worker: map[string]string{}}
	for _, space := range []string{"team-a", "team-b"} {
		s.admin[space] = s.n.Token(t, wire.TokenRequest{Name: space, Role: job.RoleAdmin, Namespace: space})
		s.worker[space] = s.n.Token(t, wire.TokenRequest{Name: space + "-worker", Role: job.RoleWorker, Namespace: space})
	}
	return s
}

// hiddenCursor is one that tells nothing, and is never the same.
var hiddenCursor = regexp.MustCompile(`"next_cursor":"C[A-Za-z0-9_-]{38,}"`)

// do is a request; answered is all of it that may differ.
func (s *tenants) do(token, method, path, body string) (code int, text, answered string) {
	s.t.Helper()
	if !strings.HasPrefix(path, "/") {
		path = "/api/v1/" + path
	}
	res := send(s.t, s.t.Context(), s.n, method, path, token, strings.NewReader(body))
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	res.Header.Del("Date")
	return res.StatusCode, string(data), fmt.Sprint(res.StatusCode, res.Header, hiddenCursor.ReplaceAllString(string(data), ""))
}

func (s *tenants) must(token, method, path, body string, v any) {
	s.t.Helper()
	code, text, _ := s.do(token, method, path, body)
	if code >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	if v != nil {
		if err := json.Unmarshal([]byte(text), v); err != nil {
			s.t.Fatal(err)
		}
	}
}

// run has a job run once, and ends it.
func (s *tenants) run(space, name, outcome string) (run string) {
	s.t.Helper()
	queue, _, _ := strings.Cut(name, "-gone")
	s.must(s.admin[space], "POST", "jobs/"+name+":run", "", nil)
	var polled job.PollReply
	s.must(s.worker[space], "POST", "workers:poll?queue="+queue, `{"worker":"w","free":1,"wait":"5s"}`, &polled)
	if len(polled.Runs) != 1 {
		s.t.Fatalf("%+v", polled)
	}
	s.must(s.worker[space], "POST", "workers:report?queue="+queue, fmt.Sprintf(`{"results":[{"claim":%q,"outcome":%q,"error":"no"}]}`,
		polled.Runs[0].Claim, outcome), nil)
	return polled.Runs[0].Run.String()
}

// lives has a namespace do a little of everything that can be done, under names that begin with it.
func (s *tenants) lives(space, name string) (refs map[string]string) {
	s.t.Helper()
	admin := s.admin[space]
	s.must(admin, "PUT", "calendars/"+name, `{"dates":["12-25"]}`, nil)
	s.must(admin, "PUT", "secrets/"+name, `{"value":"hunter2hunter2"}`, nil)
	s.must(admin, "PUT", "queues/"+name, `{"concurrency":7}`, nil)
	spec := `{"name":%q,"type":"queue","schedule":%q,"overlap":"allow","retry":{"max_retries":0},"payload":{"queue":%q}}`
	var j, gone job.Job
	s.must(admin, "POST", "jobs", fmt.Sprintf(spec, name, "0 9 * * *", name), &j)
	s.must(admin, "POST", "jobs", fmt.Sprintf(spec, name+"-gone", "@manual", name), &gone)
	run := s.run(space, name, "succeeded")
	s.run(space, name+"-gone", "succeeded")
	s.run(space, name, "failed")
	s.must(admin, "DELETE", "jobs/"+name+"-gone", "", nil)
	s.must(admin, "POST", "jobs/"+name+":run", "", nil)
	s.must(admin, "POST", "jobs/"+name+":pause", "", nil)
	s.must(admin, "POST", "jobs/"+name+":resume", "", nil)
	var letters wire.DeadPage
	s.must(admin, "GET", "dead?job="+j.ID.String(), "", &letters)
	return map[string]string{"jobs": name, "id": j.ID.String(), "gone": gone.ID.String(), "runs": run,
		"dead": fmt.Sprint(letters.Dead[0].Seq), "calendars": name, "secrets": name, "queues": name}
}

// What a token of one namespace is answered is the same whatever happens in another one: every route that it may read
// by, whole, with its headers. The routes are those of the table: one that is added is in this test.
func TestOthersChangeNoAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	t.Parallel()
	s := newTenants(t)
	refs := s.lives("team-a", "mine")
	s.lives("team-b", "theirs-first")
	more := map[string][]string{
		"jobs": {"limit=1", "q=mine", "prefix=m", "type=queue", "type=shell", "failing=true"},
		"runs": {"limit=1", "status=succeeded", "status=pending", "from=2026-01-01T00:00:00Z", "error=x"},
		"dead": {"limit=1"}, "upcoming": {"limit=1"}, "audit": {"limit=1", "action=job"}, "runs:export": {"limit=1"},
		"jobs/{ref}/runs": {"limit=1", "status=succeeded"}, "stats": {"window=24h"}, "audit:export": {"after=1"},
	}
	type question struct{ method, path, body string }
	asked := []question{
		{"POST", "schedule:preview", `{"schedule":"0 9 * * *","timezone":"UTC"}`},
		{"PUT", "jobs/mine?dry_run=true", `{"name":"mine","type":"queue","schedule":"0 9 * * *","payload":{"queue":"mine"}}`},
	}
	for _, rt := range api.Routes() {
		path := strings.TrimPrefix(rt.Path, "/api/v1/")
		if rt.Method != "GET" || rt.Scope == api.OfCluster || path == "events" { // those are looked at below
			continue
		}
		part, _, _ := strings.Cut(path, "/")
		for _, filter := range append([]string{""}, more[path]...) {
			if i := strings.IndexByte(path, '{'); i >= 0 {
				j := strings.IndexByte(path, '}')
				path = path[:i] + refs[part] + path[j+1:]
			}
			asked = append(asked, question{"GET", strings.TrimSuffix(path+"?"+filter, "?"), ""})
		}
	}
	if len(asked) < 40 {
		t.Errorf("%d requests", len(asked))
	}
	theirs := []string{"theirs", "team-b"}
	answers := func() map[question]string {
		out := map[question]string{}
		for _, q := range asked {
			code, text, all := s.do(s.admin["team-a"], q.method, q.path, q.body)
			out[q] = all
			if code != 200 {
				t.Errorf("%s %s: %d %s", q.method, q.path, code, text)
			}
		}
		return out
	}
	// Statistics follow what happened within a second.
	counted := func(space string, dead int) {
		eventually(t, "it is in the statistics of "+space, func() bool {
			_, text, _ := s.do(s.admin[space], "GET", "stats", "")
			return strings.Contains(text, fmt.Sprintf(`"dead":%d`, dead))
		})
	}
	counted("team-a", 1)
	before := answers()
	other := s.lives("team-b", "theirs")
	counted("team-b", 2)
	theirs = append(theirs, other["id"], other["gone"], other["runs"])
	for q, text := range answers() {
		if text != before[q] {
			t.Errorf("%s %s\nbefore: %s\nafter:  %s", q.method, q.path, before[q], text)
		}
		for _, name := range theirs {
			if strings.Contains(text, name) {
				t.Errorf("%s %s tells of %s:\n%s", q.method, q.path, name, text)
			}
		}
	}
}

// A cursor may be a place in what is another namespace's: who may not see that cannot read it, and goes on with it all
// the same.
func TestCursorsTellNothingOfOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	t.Parallel()
	s := newTenants(t)
	for _, name := range []string{"one", "two", "three"} {
		s.lives("team-a", name)
		s.lives("team-b", "theirs-"+name)
	}
	all := s.n.Token(t, wire.TokenRequest{Name: "all", Role: job.RoleAdmin})
	type page struct {
		Jobs, Runs, Dead, Records, Occurrences []json.RawMessage
		NextCursor                             string `json:"next_cursor"`
	}
	for _, path := range []string{"jobs?", "jobs?q=o&", "jobs?prefix=t&", "runs?", "runs?status=succeeded,dead&", "dead?",
		"audit?", "upcoming?", "jobs/two/runs?"} {
		walk := func(token string, limit int) (rows []json.RawMessage, cursors []string) {
			for cursor := ""; len(cursors) < 100; {
				var p page
				s.must(token, "GET", fmt.Sprintf("%slimit=%d&namespace=team-a&cursor=%s", path, limit, cursor), "", &p)
				rows = slices.Concat(rows, p.Jobs, p.Runs, p.Dead, p.Records, p.Occurrences)
				if cursor = p.NextCursor; cursor == "" || path == "upcoming?" && len(rows) >= 4 { // it goes on for ever
					return rows, cursors
				}
				cursors = append(cursors, cursor)
			}
			t.Fatalf("%s has no end", path)
			return nil, nil
		}
		want, plain := walk(all, 4)
		_, plain1 := walk(all, 1)
		got, hidden := walk(s.admin["team-a"], 1)
		if len(hidden) == 0 || fmt.Sprintf("%s", got) != fmt.Sprintf("%s", want) {
			t.Errorf("%s: %d pages\n%s\n%s", path, len(hidden), got, want)
		}
		for _, c := range hidden {
			if slices.Contains(slices.Concat(plain, plain1), c) || len(c) < 30 {
				t.Errorf("%s has the cursor %s", path, c)
			}
		}
		if code, text, _ := s.do(s.worker["team-b"], "GET", path+"cursor="+hidden[0], ""); code != 403 {
			t.Errorf("%d %s", code, text)
		}
		if code, text, _ := s.do(s.admin["team-b"], "GET", path+"cursor="+hidden[0], ""); code != 400 {
			t.Errorf("%s: the cursor of another token: %d %s", path, code, text)
		}
	}
}

// grouped is a backend with more dead letters than one page of groups looks at.
type grouped struct {
	api.Backend
	asked []string // the cursors
}

func (g *grouped) DeadGroups(_ context.Context, q wire.DeadQuery, _ api.Read) (wire.DeadGroupPage, error) {
	g.asked = append(g.asked, q.Cursor)
	return wire.DeadGroupPage{NextCursor: "4711"}, nil
}

// The pages of groups of dead letters have such cursors too.
func TestCursorsOfDeadGroupsTellNothing(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t, apitest.Secure, apitest.Keys)
	g := &grouped{Backend: n.Backend}
	h := api.New(g, n.Options)
	next := func(cursor string) string {
		ctx := api.WithIdentity(t.Context(), api.Identity{Token: "t1", Role: job.RoleViewer, Namespace: "team-a"})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/dead:groups?namespace=team-a&cursor="+cursor, nil))
		var p wire.DeadGroupPage
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return p.NextCursor
	}
	first := next("")
	next(first)
	if len(first) < 30 || !slices.Equal(g.asked, []string{"", "4711"}) {
		t.Errorf("the cursor %s, which asks for %q", first, g.asked)
	}
}

// A stream of a namespace tells of that one only: not that something happened elsewhere, and not how much.
func TestEventsTellNothingOfOthers(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	s.lives("team-a", "mine")
	s.lives("team-b", "theirs")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res := send(t, ctx, s.n, "GET", "/api/v1/events?topics=stats,runs,dead,job:mine", s.admin["team-a"], &bytes.Buffer{})
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	counts := map[string]int{}
	// next reads the next event, and counts it.
	next := func() string {
		name := ""
		for lines.Scan() {
			line := lines.Text()
			if strings.HasPrefix(line, "id:") || strings.Contains(line, "applied_index") {
				t.Fatalf("the stream numbers what the whole cluster does: %s", line)
			}
			if rest, ok := strings.CutPrefix(line, "event: "); ok {
				name = rest
			}
			if line == "" && name != "" {
				counts[name]++
				return name
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return ""
	}
	for next() != "stats" {
	}
	clear(counts)
	s.lives("team-b", "theirs-too")
	for range 2 { // the second of them was made after all that
		for next() != "stats" {
		}
	}
	if got := slices.Sorted(maps.Keys(counts)); !slices.Equal(got, []string{"stats"}) {
		t.Errorf("what another namespace did is told: %v", counts)
	}
	s.run("team-a", "mine", "failed")
	for want := []string{"runs", "dead", "job"}; len(want) > 0; {
		got := next()
		want = slices.DeleteFunc(want, func(s string) bool { return s == got })
	}
}
