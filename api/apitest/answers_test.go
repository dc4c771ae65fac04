package apitest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
)

// waiting is a backend that commits nothing and has no output before it is let go.
type waiting struct {
	api.Backend
	inside atomic.Int32
	letGo  chan struct{}
}

func (b *waiting) CreateJob(context.Context, job.Spec, api.Request) (job.Job, bool, error) {
	b.inside.Add(1)
	<-b.letGo
	return job.Job{ID: 1}, false, nil
}

func (b *waiting) RunOutput(context.Context, string, uint64, int64, api.Read) (job.RunOutput, error) {
	b.inside.Add(1)
	<-b.letGo
	return job.RunOutput{}, nil
}

// A token may have 1,024 requests under way. While the disk of the leader is slow they are changes that wait, or people
// who watch outputs; none of them is refused for want of room for its answer, nor waits for another one.
func TestChangesBehindASlowCommit(t *testing.T) {
	for name, send := range map[string][2]string{
		"creates": {"POST /api/v1/jobs", spec},
		"outputs": {"GET /api/v1/runs/r_1.5.m/output", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const all = 1024
				b := &waiting{letGo: make(chan struct{})}
				budget := membudget.New(membudget.Limits{})
				h := api.New(b, api.Options{})
				answers := make(chan *httptest.ResponseRecorder, all)
				for range all {
					go func() {
						ctx, end := budget.Begin(t.Context(), membudget.Who{Token: "busy"})
						defer end()
						method, path, _ := strings.Cut(send[0], " ")
						w := httptest.NewRecorder()
						h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(send[1])))
						answers <- w
					}()
				}
				synctest.Wait()
				if n := b.inside.Load(); n != all {
					t.Errorf("%d are carried out, %d wait for room", n, budget.Uses()["answers"].Waiting)
				}
				close(b.letGo)
				for range all {
					if w := <-answers; w.Code >= 300 {
						t.Fatalf("%d %s", w.Code, w.Body)
					}
				}
				synctest.Wait()
				if u := budget.Uses()["answers"]; u.Held != 0 || u.Most > 8<<20 {
					t.Errorf("%+v", u)
				}
			})
		})
	}
}

// largeAnswers is a backend whose answers are larger than the share of a token.
type largeAnswers struct{ api.Backend }

func (largeAnswers) big() job.Job {
	return job.Job{ID: 1, Spec: job.Spec{Payload: []byte(`"` + strings.Repeat("x", 100<<10) + `"`)}}
}

func (b largeAnswers) CreateJob(context.Context, job.Spec, api.Request) (job.Job, bool, error) {
	return b.big(), false, nil
}

func (b largeAnswers) GetJob(context.Context, string, api.Read) (job.Job, error) { return b.big(), nil }

func (largeAnswers) ExportHistory(_ context.Context, after uint64, limit int, _ api.Read) (out []job.Run, err error) {
	for range limit {
		after++
		run := job.Run{Seq: after, JobID: 1, Status: job.RunSucceeded}
		if after > 1000 {
			run.Output = strings.Repeat("x", 4<<10)
		}
		out = append(out, run)
	}
	return out, nil
}

// A token that reads none of its answers has no room for more of them: a read is refused, a change says that it may have
// been done, and an export breaks off, so that it does not look complete.
func TestNoRoomForAnAnswer(t *testing.T) {
	budget := membudget.New(membudget.Limits{Answers: 4 * 256 << 10})
	h := api.New(largeAnswers{}, api.Options{})
	begin := func() (context.Context, func()) { return budget.Begin(t.Context(), membudget.Who{Token: "greedy"}) }
	kept, give := begin()
	defer give()
	unread, err := membudget.Answer(kept, 180<<10)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) (w *httptest.ResponseRecorder, broken any) {
		ctx, end := begin()
		defer end()
		w = httptest.NewRecorder()
		defer func() { broken = recover() }()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
		return w, nil
	}
	for send, want := range map[[3]string]job.Code{
		{"GET", "/api/v1/jobs/x", ""}:  job.CodeUnavailable,
		{"POST", "/api/v1/jobs", spec}: job.CodeOutcomeUnknown,
	} {
		w, _ := ask(send[0], send[1], send[2])
		var p wire.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 503 || p.Code != want ||
			!strings.Contains(p.Message, "not read yet") || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s %s: %d %s", send[0], send[1], w.Code, w.Body)
		}
	}
	w, broken := ask("GET", "/api/v1/runs:export", "")
	if lines := strings.Count(w.Body.String(), "\n"); broken != http.ErrAbortHandler || w.Code != 200 || lines < 500 || lines > 1000 {
		t.Errorf("an export: %d, %d lines, %v", w.Code, lines, broken)
	}
	unread.Release()
	if w, _ := ask("GET", "/api/v1/jobs/x", ""); w.Code != 200 {
		t.Errorf("when they were read: %d", w.Code)
	}
}

// A page of runs or dead letters with long texts is short, and its cursor goes on: answers are in memory as a whole.
func TestPagesOfLongTexts(t *testing.T) {
	t.Parallel()
	const all = 400
	n := apitest.Start(t)
	send := func(method, path, body string, out any) {
		t.Helper()
		w := serveWith(t, n.Backend, n.Options, method, path, nil, body)
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil || w.Code >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
	}
	send("POST", "/api/v1/jobs", `{"name":"wordy","type":"shell","schedule":"@manual","overlap":"allow",
		"retry":{"max_retries":0},"payload":{"command":"true"}}`, &job.Job{})
	worker := n.Register(t, job.Poll{Worker: "w", Secret: "s", Types: []job.Type{job.TypeShell}, Slots: 1})
	for range all {
		send("POST", "/api/v1/jobs/wordy:run", "", &job.Run{})
		worker.Report(t, worker.Take(t), job.Result{Outcome: job.OutcomeFailed,
			Output: strings.Repeat("o", job.MaxOutputBytes), Error: strings.Repeat("e", job.MaxErrorBytes)})
	}
	pages := func(path string, page func(cursor string) (rows []job.Run, next string)) {
		seen, count := map[string]bool{}, 0
		for cursor := ""; ; count++ {
			rows, next := page(cursor)
			text := 0
			for _, r := range rows {
				if text += len(r.Output) + len(r.Error); seen[r.RunID] {
					t.Errorf("%s: %s again", path, r.RunID)
				}
				seen[r.RunID] = true
			}
			if text > 2<<20+8<<10 {
				t.Errorf("%s: a page with %d bytes of text", path, text)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if len(seen) != all || count == 0 {
			t.Errorf("%s: %d of %d on %d pages", path, len(seen), all, count+1)
		}
	}
	for _, path := range []string{"/api/v1/runs?status=dead&", "/api/v1/jobs/wordy/runs?"} {
		pages(path, func(cursor string) ([]job.Run, string) {
			var p wire.RunPage
			send("GET", fmt.Sprintf("%slimit=1000&cursor=%s", path, cursor), "", &p)
			return p.Runs, p.NextCursor
		})
	}
	pages("/api/v1/dead", func(cursor string) (rows []job.Run, next string) {
		var p wire.DeadPage
		send("GET", "/api/v1/dead?limit=1000&cursor="+cursor, "", &p)
		for _, d := range p.Dead {
			rows = append(rows, d.Run)
		}
		return rows, p.NextCursor
	})
}
