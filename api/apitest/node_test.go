package apitest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

var noon = apitest.Noon

// none is for tests in which no request gets as far as the backend.
var none struct{ api.Backend }

// shared is a node for tests that do not disturb each other.
var shared = sync.OnceValues(func() (*apitest.Node, error) { return apitest.Open(sharedDir) })

var sharedDir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if sharedDir, err = os.MkdirTemp("", "apitest"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(sharedDir)
		code := m.Run()
		if n, err := shared(); err != nil || n.Stop() != nil {
			return 1
		}
		return code
	}())
}

// empty is a node without any of the things that world has.
func empty(t testing.TB) *apitest.Node {
	t.Helper()
	n, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// scene is a node with one of everything: the jobs j_1 "daily", j_2 "hourly" and j_3 "idle", runs, history, dead
// letters, a calendar and a queue.
type scene struct {
	*apitest.Node
	worker *apitest.Worker
	names  *strings.Replacer // what only the node decides, by a name: $run, $fence …
}

func world(t testing.TB) *scene {
	t.Helper()
	const days = 12
	w := &scene{Node: apitest.Start(t, apitest.Secure, apitest.Keys, apitest.At(noon.AddDate(0, 0, -days)))}
	b, ctx := w.Backend, t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := 0
	rq := func() api.Request { key++; return api.Request{Key: fmt.Sprint("world ", key)} }
	create := func(s job.Spec) {
		_, _, err := b.CreateJob(ctx, s, rq())
		must(err)
	}
	create(job.Spec{Name: "daily", Type: job.TypeHTTP, Schedule: "0 9 * * *", Tags: map[string]string{"team": "a"},
		Retry:   job.Retry{MaxRetries: new(int)},
		Payload: json.RawMessage(`{"url":"https://example.com/?a=1&b=2","body":{"n":12345678901234567890}}`)})
	_, err := b.PauseJob(ctx, "daily", rq())
	must(err)
	w.Clock.Advance(days * 24 * time.Hour) // paused meanwhile
	_, err = b.ResumeJob(ctx, "daily", rq())
	must(err)
	create(job.Spec{Name: "hourly", Type: job.TypeShell, Schedule: "@hourly",
		Payload: json.RawMessage(`{"command":"date && date"}`)})
	create(job.Spec{Name: "idle", Type: job.TypeShell, Schedule: "@yearly",
		Payload: json.RawMessage(`{"command":"date"}`)})

	w.worker = w.Register(t, job.Poll{Worker: "w", Secret: "s", Types: []job.Type{job.TypeHTTP, job.TypeShell}, Slots: 9})
	run := func(ref string) job.Assignment {
		_, err := b.RunJob(ctx, ref, rq())
		must(err)
		return w.worker.Take(t)
	}
	now := job.At(w.Clock.Now())
	for range 3 {
		w.worker.Report(t, run("daily"), job.Result{Outcome: job.OutcomeSucceeded, StartedAt: now, FinishedAt: now + 3})
	}
	w.worker.Report(t, run("daily"), job.Result{Outcome: job.OutcomeFailed, Error: "status 500"})
	w.worker.Report(t, run("hourly"), job.Result{Outcome: job.OutcomeFailed, Permanent: true, Error: "exit 1"})
	open := run("daily")
	_, err = b.RunJob(ctx, "hourly", rq()) // waits to be taken
	must(err)
	serve(t, b, "PUT", "/api/v1/calendars/xmas", nil, `{"dates":["12-25"]}`)
	serve(t, b, "PUT", "/api/v1/queues/mail", nil, `{"concurrency":5}`)
	serve(t, b, "PUT", "/api/v1/secrets/api-key", nil, `{"value":"hunter2hunter2","hosts":["api.example.com"]}`)
	w.Token(t, wire.TokenRequest{Name: "ci", Role: job.RoleOperator})

	dead, err := b.DeadLetters(ctx, wire.DeadQuery{Limit: 10}, api.Read{})
	must(err)
	page, err := b.ListJobs(ctx, wire.JobQuery{Limit: 1}, api.Read{})
	must(err)
	queue, err := b.GetQueue(ctx, "mail", api.Read{})
	must(err)
	if len(dead.Dead) != 2 || page.NextCursor == "" {
		t.Fatalf("%+v, %+v", dead, page)
	}
	w.names = strings.NewReplacer("$session", text(t, w.worker.Session), "$claim", text(t, job.Ref{Run: open.Run, Fence: open.Fence}.Text()),
		"$run", open.Run.String(), "$fence", fmt.Sprint(open.Fence), "$cursor", page.NextCursor,
		"$dead1", fmt.Sprint(dead.Dead[1].Seq), "$dead2", fmt.Sprint(dead.Dead[0].Seq), "$queue", fmt.Sprint(queue.Version))
	return w
}

// hooked asks before some methods of a backend whether they fail, hang or panic.
type hooked struct {
	api.Backend
	hook func(ctx context.Context, method string) error
}

func (h hooked) GetJob(ctx context.Context, ref string, rd api.Read) (job.Job, error) {
	if err := h.hook(ctx, "GetJob"); err != nil {
		return job.Job{}, err
	}
	return h.Backend.GetJob(ctx, ref, rd)
}

func (h hooked) CreateJob(ctx context.Context, s job.Spec, rq api.Request) (job.Job, bool, error) {
	if err := h.hook(ctx, "CreateJob"); err != nil {
		return job.Job{}, false, err
	}
	return h.Backend.CreateJob(ctx, s, rq)
}

func (h hooked) UpdateJob(ctx context.Context, ref string, s job.Spec, v uint64, rq api.Request) (job.Job, error) {
	if err := h.hook(ctx, "UpdateJob"); err != nil {
		return job.Job{}, err
	}
	return h.Backend.UpdateJob(ctx, ref, s, v, rq)
}

func (h hooked) BulkCreate(ctx context.Context, lines []wire.BulkLine, rq api.Request) ([]wire.BulkResult, error) {
	if err := h.hook(ctx, "BulkCreate"); err != nil {
		return nil, err
	}
	return h.Backend.BulkCreate(ctx, lines, rq)
}

func (h hooked) ExportHistory(ctx context.Context, after uint64, limit int, rd api.Read) ([]job.Run, error) {
	if err := h.hook(ctx, "ExportHistory"); err != nil {
		return nil, err
	}
	return h.Backend.ExportHistory(ctx, after, limit, rd)
}

func (h hooked) Backup(ctx context.Context) (wire.BackupInfo, io.ReadCloser, error) {
	if err := h.hook(ctx, "Backup"); err != nil {
		return wire.BackupInfo{}, nil, err
	}
	return h.Backend.Backup(ctx)
}

// noted keeps the identities of requests.
type noted struct {
	api.Backend
	requests []api.Request
}

func (n *noted) PauseJob(ctx context.Context, ref string, rq api.Request) (job.Job, error) {
	n.requests = append(n.requests, rq)
	return n.Backend.PauseJob(ctx, ref, rq)
}

func (n *noted) ResumeJob(ctx context.Context, ref string, rq api.Request) (job.Job, error) {
	n.requests = append(n.requests, rq)
	return n.Backend.ResumeJob(ctx, ref, rq)
}

func (n *noted) BulkCreate(ctx context.Context, lines []wire.BulkLine, rq api.Request) ([]wire.BulkResult, error) {
	n.requests = append(n.requests, rq)
	return n.Backend.BulkCreate(ctx, lines, rq)
}

// lines is a history that would take a node long to make.
type lines struct {
	api.Backend
	n uint64
}

func (l lines) ExportHistory(_ context.Context, after uint64, limit int, _ api.Read) (out []job.Run, err error) {
	for seq := after + 1; seq <= l.n && len(out) < limit; seq++ {
		out = append(out, job.Run{Seq: seq, JobID: 1, Status: job.RunSucceeded})
	}
	return out, nil
}
