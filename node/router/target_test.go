package router_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/router"
)

// watched says which groups were asked, and for what.
type watched struct {
	*router.Router
	mu    sync.Mutex // groups are asked side by side
	asked []string
}

func newWatched(answer func(group uint32, w http.ResponseWriter, r *http.Request)) *watched {
	w := &watched{}
	w.Router = router.New(router.Options{
		Groups: func() []uint32 { return []uint32{1, 2, 3} },
		Handler: func(g uint32) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				w.mu.Lock()
				w.asked = append(w.asked, fmt.Sprint(g, " ", r.Method, " ", r.URL.Path))
				w.mu.Unlock()
				if answer != nil {
					answer(g, rw, r)
				}
			})
		},
		Home: func(kind job.NameKind, ns, name string) uint32 {
			return map[string]uint32{"job default here": 1, "job other here": 2, "queue default q": 2, "queue other q": 3}[map[job.NameKind]string{job.NameJob: "job ", job.NameQueue: "queue "}[kind]+ns+" "+name]
		},
		Place: func(ns, name, queue, key string) uint32 {
			return map[string]uint32{"default new  k:k1": 1, "other new  k:k1": 2, "default new q k:k1": 3, "default   k:k1": 3}[strings.Join([]string{ns, name, queue, key}, " ")]
		},
	})
	return w
}

// Each kind of target finds its group; what names none that there is, or cannot be read, is the control group's.
func TestEachTargetFindsItsGroup(t *testing.T) {
	id, run := idIn(2, 7), job.RunKey{Job: idIn(3, 7), At: 5, Origin: job.OriginSchedule}
	gone := idIn(9, 7)
	for _, c := range []struct {
		method, path, body string
		want               uint32
	}{
		{"GET", "/tokens", "", 0},
		{"GET", "/node", "", 0},
		{"GET", "/nothing", "", 0},
		{"GET", "/jobs/" + id.String(), "", 2},
		{"POST", "/jobs/" + id.String() + ":pause", "", 2},
		{"GET", "/jobs/" + id.String() + "/runs", "", 2},
		{"GET", "/jobs/" + gone.String(), "", 0},
		{"GET", "/jobs/here", "", 1},
		{"GET", "/jobs/here?namespace=other", "", 2},
		{"POST", "/jobs/here:run?namespace=other", "", 2},
		{"PUT", "/jobs/here", `{"name":"here","namespace":"other"}`, 2},
		{"PUT", "/jobs/here", `{"name":`, 0},
		{"GET", "/runs/" + run.String(), "", 3},
		{"POST", "/runs/" + run.String() + ":cancel", "", 3},
		{"GET", "/runs/x", "", 0},
		{"GET", "/runs?job=" + id.String(), "", 2},
		{"GET", "/runs?job=here", "", 1},
		{"GET", "/upcoming?job=here", "", 1},
		{"POST", "/jobs", `{"name":"new"}`, 1},
		{"POST", "/jobs", `{"name":"new","namespace":"other"}`, 2},
		{"POST", "/jobs?namespace=other", `{"name":"new"}`, 2},
		{"POST", "/jobs", `{"name":"new","type":"queue","payload":{"queue":"q"}}`, 3},
		{"POST", "/jobs", `{"type":"shell"}`, 3},
		{"POST", "/jobs", `{"nome":"new"}`, 0},
		{"GET", "/queues/q", "", 2},
		{"PUT", "/queues/q", `{"namespace":"other"}`, 3},
		{"POST", "/workers:poll?queue=q", "", 2},
		{"POST", "/workers:report?queue=q&namespace=other", `{"results":[]}`, 3},
		{"POST", "/workers:output?queue=q&group=1", `{}`, 2},
		{"POST", "/workers:heartbeat?group=3", `{}`, 3},
		{"POST", "/workers:poll?group=0", `{}`, 0},
	} {
		w := newWatched(nil)
		r := httptest.NewRequest(c.method, "/api/v1"+c.path, strings.NewReader(c.body))
		r.Header.Set("Idempotency-Key", "k1")
		r.Header.Set(wire.GroupHeader, "1") // it counts between nodes only
		w.ServeHTTP(httptest.NewRecorder(), r)
		if len(w.asked) != 1 || !strings.HasPrefix(w.asked[0], fmt.Sprint(c.want, " ")) {
			t.Errorf("%s %s %s: asked %q, want group %d", c.method, c.path, c.body, w.asked, c.want)
		}
	}
}

// A worker that names no group, or one that there is not, is told what to say.
func TestWorkersWithoutAGroup(t *testing.T) {
	for query, want := range map[string]struct {
		code  job.Code
		field string
	}{
		"": {job.CodeInvalid, "queue"}, "?group=": {job.CodeInvalid, "group"}, "?group=x": {job.CodeInvalid, "group"},
		fmt.Sprint("?group=", job.MaxGroups+1): {job.CodeInvalid, "group"}, "?group=4": {job.CodeUnavailable, ""},
	} {
		w := newWatched(nil)
		rec := call(t, w, "POST", "/workers:poll"+query, "{}", nil)
		var p wire.Problem
		if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || p.Code != want.code || p.Field != want.field || len(w.asked) > 0 {
			t.Errorf("%q: %s, asked %q", query, rec.Body, w.asked)
		}
	}
	one := &watched{}
	one.Router = router.New(router.Options{Groups: func() []uint32 { return nil }, Handler: func(g uint32) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { one.asked = append(one.asked, fmt.Sprint(g)) })
	}})
	if call(t, one, "POST", "/workers:poll", "{}", nil); len(one.asked) != 1 || one.asked[0] != "0" {
		t.Errorf("in a cluster with one group: asked %q", one.asked)
	}
}

// The home of a name sends the router on, with the whole request; so does a group that does not take a new job.
func TestJobOfAnotherGroup(t *testing.T) {
	var got string
	w := newWatched(func(g uint32, rw http.ResponseWriter, r *http.Request) {
		if g == 1 {
			api.WriteError(rw, job.OtherGroup(3))
			return
		}
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		got = string(body[:n]) + r.Header.Get("Idempotency-Key")
		rw.WriteHeader(http.StatusAccepted)
	})
	rec := call(t, w, "PATCH", "/jobs/here", `{"a":1}`, nil)
	if rec.Code != http.StatusAccepted || got != `{"a":1}k1` || len(w.asked) != 2 {
		t.Errorf("%d, the other group got %q, asked: %q", rec.Code, got, w.asked)
	}
	rec = call(t, w, "POST", "/jobs", `{"name":"new"}`, nil)
	if rec.Code != http.StatusAccepted || got != `{"name":"new"}k1` {
		t.Errorf("%d, the other group got %q, asked: %q", rec.Code, got, w.asked)
	}
	w = newWatched(func(g uint32, rw http.ResponseWriter, _ *http.Request) { api.WriteError(rw, job.OtherGroup(4-g)) })
	if rec := call(t, w, "GET", "/jobs/here", "", nil); rec.Code != 503 || len(w.asked) != 4 {
		t.Errorf("in circles: %d, asked %q", rec.Code, w.asked)
	}
}

// A request that renamed or deleted a job is not known at the home of the name any more when it is repeated: the group
// of the job knows what came of it. One without a key cannot have been made before.
func TestRepeatAfterTheNameIsGone(t *testing.T) {
	gone := func(knows uint32) *watched {
		return newWatched(func(g uint32, rw http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != `{"name":"new"}` {
				t.Errorf("group %d got %q, %v", g, body, err)
			}
			if g != knows {
				rw.Header().Set("Group", fmt.Sprint(g))
				api.WriteError(rw, job.Errorf(job.CodeNotFound, "", "no job"))
				return
			}
			rw.WriteHeader(http.StatusAccepted)
		})
	}
	w := gone(3)
	if rec := call(t, w, "PATCH", "/jobs/here", `{"name":"new"}`, nil); rec.Code != http.StatusAccepted ||
		rec.Header().Get("Group") != "" || len(w.asked) != 3 {
		t.Errorf("%d %v, asked %q", rec.Code, rec.Header(), w.asked)
	}
	w = gone(9)
	if rec := call(t, w, "PATCH", "/jobs/here", `{"name":"new"}`, nil); rec.Code != http.StatusNotFound ||
		rec.Header().Get("Group") != "1" || !strings.Contains(rec.Body.String(), "no job") || len(w.asked) != 3 {
		t.Errorf("%d %v %s, asked %q", rec.Code, rec.Header(), rec.Body, w.asked)
	}
	w = gone(3)
	r := httptest.NewRequest("PATCH", "/api/v1/jobs/here", strings.NewReader(`{"name":"new"}`))
	rec := httptest.NewRecorder()
	if w.ServeHTTP(rec, r); rec.Code != http.StatusNotFound || len(w.asked) != 1 {
		t.Errorf("without a key: %d, asked %q", rec.Code, w.asked)
	}
}

// A misdirected answer that names no group, and every other, is passed on as it is.
func TestOtherAnswersPass(t *testing.T) {
	for _, code := range []job.Code{job.CodeNotLeader, job.CodeNotFound, job.CodeNoLeader} {
		w := newWatched(func(_ uint32, rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set(wire.LeaderHeader, "there")
			api.WriteError(rw, job.Errorf(code, "", "x"))
		})
		rec := call(t, w, "GET", "/jobs/here", "", nil)
		if rec.Code != wire.StatusOf(code) || rec.Header().Get(wire.LeaderHeader) != "there" || len(w.asked) != 1 {
			t.Errorf("%s: %d %v, asked %q", code, rec.Code, rec.Header(), w.asked)
		}
	}
}

// Every route of several groups has a way to be put together: none ends in a method that the backend has not.
func TestEveryRouteIsAnswered(t *testing.T) {
	variable := regexp.MustCompile(`\{\w+\}`)
	bodies := map[string]string{"/jobs:bulk": `{"name":"x"}`, "/jobs:apply": `{"name":"x"}`, "/jobs:act": `{"action":"pause","filter":{"all":true}}`,
		"/schedule:preview": `{"schedule":"@manual"}`, "/dead:redrive": `{"all":true}`, "/dead": `{"all":true}`}
	for _, row := range api.Routes() {
		if row.Target < api.ByLetter {
			continue
		}
		path := strings.TrimPrefix(variable.ReplaceAllString(row.Path, "5"), "/api/v1")
		body := ""
		if row.Method != "GET" {
			body = bodies[path]
		}
		if row.Target == api.BySession {
			path += "?queue=q"
		}
		w := newWatched(func(_ uint32, rw http.ResponseWriter, _ *http.Request) {
			api.WriteError(rw, job.Errorf(job.CodeForbidden, "", "no"))
		})
		rec := call(t, w, row.Method, path, body, nil)
		if len(w.asked) == 0 && row.Target != api.ByLetter || rec.Code == 500 {
			t.Errorf("%s %s: %d %s, asked %q", row.Method, row.Path, rec.Code, rec.Body, w.asked)
		}
	}
}

// The table in DESIGN.md has every route that is about several groups.
func TestDesignHasTheRoutesOfSeveralGroups(t *testing.T) {
	text, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range api.Routes() {
		if row.Target >= api.AcrossJobs && !strings.Contains(string(text), strings.TrimPrefix(row.Path, "/api/v1")) {
			t.Errorf("%s %s is not in DESIGN.md", row.Method, row.Path)
		}
	}
}
