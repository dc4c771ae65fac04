package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
	"github.com/carillon-scheduler/carillon/schedule"
)

// start serves a backend and makes a client of it. Everything that changes something has a key.
func start(t *testing.T, b api.Backend) *client.Client {
	t.Helper()
	h := api.New(b, api.Options{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Header.Get("Idempotency-Key") == "" && r.URL.Path != "/api/v1/jobs:bulk" && r.URL.Path != "/api/v1/jobs:apply" {
			t.Errorf("%s %s: every mutating request has a key", r.Method, r.URL.Path)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return client.New(srv.URL, client.WithBackoff(time.Millisecond), client.WithHTTPClient(srv.Client()))
}

// hooked asks before creating jobs whether that fails.
type hooked struct {
	api.Backend
	hook func() error
	keys []string
}

func (h *hooked) CreateJob(ctx context.Context, s job.Spec, rq api.Request) (job.Job, bool, error) {
	h.keys = append(h.keys, rq.Key)
	if err := h.hook(); err != nil {
		return job.Job{}, false, err
	}
	return h.Backend.CreateJob(ctx, s, rq)
}

func (h *hooked) BulkCreate(ctx context.Context, lines []wire.BulkLine, rq api.Request) ([]wire.BulkResult, error) {
	if err := h.hook(); err != nil {
		return nil, err
	}
	return h.Backend.BulkCreate(ctx, lines, rq)
}

func spec(name string) job.Spec {
	return job.Spec{Name: name, Type: job.TypeShell, Schedule: "0 9 * * *", Payload: json.RawMessage(`{"command":"date"}`), Tags: map[string]string{"a": "b c&d"}}
}

// Every method reaches its route and understands the answer.
func TestEveryMethod(t *testing.T) {
	n := apitest.Start(t)
	c := start(t, n.Backend)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	j, err := c.CreateJob(ctx, spec("nightly@ä"))
	must(err)
	got, err := c.GetJob(ctx, "nightly@ä")
	must(err)
	if got.ID != j.ID || got.Version != 1 {
		t.Errorf("%+v", got)
	}
	j, err = c.UpdateJob(ctx, j.ID.String(), spec("renamed"), 1)
	must(err)
	if _, err := c.UpdateJob(ctx, j.ID.String(), spec("renamed"), 1); !errors.Is(err, &job.Error{Code: job.CodeVersionConflict}) {
		t.Errorf("%v", err)
	}
	j, err = c.PatchJob(ctx, "renamed", client.Patch(`{"timeout":"9s"}`), j.Version)
	must(err)
	if time.Duration(j.Timeout) != 9*time.Second {
		t.Error(j.Timeout)
	}
	page, err := c.ListJobs(ctx, client.JobQuery{Status: job.StatusScheduled, Type: job.TypeShell, Prefix: "ren", Tags: j.Tags, Limit: 5})
	must(err)
	if len(page.Jobs) != 1 {
		t.Errorf("%+v", page)
	}
	_, err = c.PauseJob(ctx, "renamed")
	must(err)
	_, err = c.ResumeJob(ctx, "renamed")
	must(err)
	run, err := c.RunJob(ctx, "renamed")
	must(err)
	runs, err := c.JobRuns(ctx, "renamed", client.RunQuery{Statuses: []job.RunStatus{job.RunPending}, Limit: 3})
	must(err)
	if len(runs.Runs) != 1 || runs.Runs[0].RunID != run.RunID {
		t.Errorf("%+v", runs)
	}
	runs, err = c.Runs(ctx, client.RunQuery{Job: "renamed"})
	must(err)
	if len(runs.Runs) != 1 {
		t.Errorf("%+v", runs)
	}
	detail, err := c.GetRun(ctx, run.RunID)
	must(err)
	if detail.RunID != run.RunID {
		t.Errorf("%+v", detail)
	}
	_, err = c.CancelRun(ctx, run.RunID)
	must(err)
	_, err = c.RunJob(ctx, "renamed")
	must(err)
	canceled, err := c.CancelJob(ctx, "renamed")
	must(err)
	if canceled != 1 {
		t.Error(canceled)
	}
	back, err := c.Backfill(ctx, "renamed", client.BackfillRequest{From: job.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), To: job.At(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)), DryRun: true})
	must(err)
	if len(back.Times) != 1 || !back.DryRun {
		t.Errorf("%+v", back)
	}
	w := n.Register(t, job.Poll{Worker: "w", Secret: "s", Types: []job.Type{job.TypeShell}, Slots: 1})
	for range 3 {
		_, err := c.RunJob(ctx, "renamed")
		must(err)
		w.Report(t, w.Take(t), job.Result{Outcome: job.OutcomeFailed, Permanent: true})
	}
	seqs := func(after uint64) (out []uint64) {
		must(c.ExportHistory(ctx, client.Seqs{after}, 0, func(r job.Run, _ json.RawMessage) error {
			out = append(out, r.Seq)
			return nil
		}))
		return out
	}
	if all := seqs(0); len(all) < 3 || !slices.Equal(seqs(all[len(all)-3]), all[len(all)-2:]) {
		t.Error(all)
	}
	dead, err := c.DeadLetters(ctx, client.DeadQuery{Job: "renamed", Limit: 2})
	must(err)
	if len(dead.Dead) != 2 || dead.NextCursor == "" {
		t.Errorf("%+v", dead)
	}
	third, second := dead.Dead[0].Seq, dead.Dead[1].Seq // newest first
	d, err := c.GetDead(ctx, second)
	must(err)
	if d.Seq != second {
		t.Errorf("%+v", d)
	}
	if r, err := c.Redrive(ctx, client.DeadQuery{IDs: []uint64{third}}); r.Count != 1 {
		t.Error(r, err)
	}
	if r, err := c.PurgeDead(ctx, client.DeadQuery{Job: "renamed"}); r.Count != 2 {
		t.Error(r, err)
	}
	if _, err = c.PurgeDead(ctx, client.DeadQuery{}); job.CodeOf(err) != job.CodeInvalid {
		t.Error(err)
	}
	_, err = c.PutCalendar(ctx, schedule.Calendar{Name: "x-mas", Dates: []string{"12-25"}})
	must(err)
	cal, err := c.GetCalendar(ctx, "x-mas")
	must(err)
	if len(cal.Dates) != 1 {
		t.Errorf("%+v", cal)
	}
	cals, err := c.Calendars(ctx)
	must(err)
	if len(cals) != 1 {
		t.Errorf("%+v", cals)
	}
	must(c.DeleteCalendar(ctx, "x-mas"))
	prev, err := c.Preview(ctx, client.PreviewRequest{Schedule: "@daily", Count: 2})
	must(err)
	if len(prev.Times) != 2 {
		t.Errorf("%+v", prev)
	}
	must(c.ClockReset(ctx))
	scrub, err := c.Scrub(ctx)
	must(err)
	if len(scrub.Groups) != 1 || scrub.Groups[0].Pass != 1 {
		t.Errorf("%+v", scrub)
	}
	_, err = c.ScrubStatus(ctx)
	must(err)
	st, err := c.Status(ctx)
	must(err)
	if st.Leader != "n1" {
		t.Errorf("%+v", st)
	}
	doc, err := c.OpenAPI(ctx)
	must(err)
	if !json.Valid(doc) {
		t.Error("not JSON")
	}
	if _, err := c.Metrics(ctx); job.CodeOf(err) != job.CodeNotFound {
		t.Error(err)
	}
	must(c.Live(ctx))
	must(c.Ready(ctx))
	must(c.DeleteJob(ctx, "renamed", 0))
}

func TestUnreachable(t *testing.T) {
	addr := port.Reserve(t)
	c := client.New(addr, client.WithBackoff(time.Millisecond))
	_, err := c.CreateJob(t.Context(), spec("x"))
	want := job.Error{Code: job.CodeUnavailable, Message: "cannot reach carillon at http://" + addr + ": connection refused", Remedy: "start one with `carillon dev`, log in to a cluster with `carillon login`, or set --addr or CARILLON_ADDR"}
	var e *job.Error
	if !errors.As(err, &e) || *e != want {
		t.Errorf("%+v, want %+v", err, want)
	}
	for _, addr := range []string{"ftp://x", "http://", "a b", "http://x?y=z"} {
		if _, err := client.New(addr).Status(t.Context()); job.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%q: %v", addr, err)
		}
	}
	if got := client.New("").Addr(); got != "http://127.0.0.1:7400" {
		t.Error(got)
	}
}

// A node that speaks no TLS has heard nothing: nothing can have been changed.
func TestHTTPSToAPlainNode(t *testing.T) {
	heard := 0
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard++ }))
	defer plain.Close()
	_, err := client.New("https://"+plain.Listener.Addr().String(), client.WithBackoff(time.Millisecond)).CreateJob(t.Context(), spec("x"))
	var e *job.Error
	if !errors.As(err, &e) || e.Code != job.CodeUnavailable || !strings.Contains(e.Message, "nothing was sent") || !strings.Contains(e.Remedy, "https://") || heard > 0 {
		t.Errorf("%+v, %d", err, heard)
	}
}

// What may pass is repeated under one key; what will not pass is not.
func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		code  job.Code
		tries int
	}{{job.CodeNoLeader, 4}, {job.CodeNotReady, 4}, {job.CodeOutcomeUnknown, 4}, {job.CodeUnavailable, 1}, {job.CodeInvalid, 1}, {job.CodeStorageFull, 1}} {
		tries := 0
		c := start(t, &hooked{hook: func() error {
			tries++
			return job.Errorf(tt.code, "wait", "no")
		}})
		_, err := c.CreateJob(t.Context(), spec("x"))
		if job.CodeOf(err) != tt.code || tries != tt.tries {
			t.Errorf("%s: %d tries, %v", tt.code, tries, err)
		}
	}
	tries := 0
	f := &hooked{Backend: apitest.Start(t).Backend, hook: func() error {
		if tries++; tries < 3 {
			return job.Errorf(job.CodeNoLeader, "", "no")
		}
		return nil
	}}
	c := start(t, f)
	replayed := true
	if _, err := c.CreateJob(client.WithReplay(client.WithIdempotencyKey(t.Context(), "mine"), &replayed), spec("x")); err != nil || f.keys[0] != "mine" || replayed {
		t.Error(err, f.keys, replayed)
	}
	if _, err := c.CreateJob(client.WithReplay(client.WithIdempotencyKey(t.Context(), "mine"), &replayed), spec("x")); err != nil || !replayed {
		t.Error(err, replayed)
	}
}

// A connection that breaks after the request was sent leaves open whether it was done; the key makes a repeat safe.
func TestBrokenConnection(t *testing.T) {
	inner := apitest.Start(t).Handler()
	var n atomic.Int32
	var keys [2]string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := n.Add(1)
		if i <= 2 {
			keys[i-1] = r.Header.Get("Idempotency-Key")
		}
		if i == 1 {
			inner.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		inner.ServeHTTP(w, r)
	}))
	defer srv.Close()
	c := client.New(srv.URL, client.WithBackoff(time.Millisecond))
	j, err := c.CreateJob(t.Context(), spec("x"))
	if err != nil || j.ID != 1 || keys[0] == "" || keys[0] != keys[1] {
		t.Errorf("%v, %v, keys %q", j.ID, err, keys)
	}

	n.Store(0)
	one := client.New(srv.URL, client.WithAttempts(1))
	if _, err := one.CreateJob(t.Context(), spec("y")); job.CodeOf(err) != job.CodeOutcomeUnknown {
		t.Error(err)
	}
}

func TestNotACarillon(t *testing.T) {
	const foreign, gateway = "this is not a Carillon server", "address of a carillon"
	for _, tt := range []struct {
		status      int
		media, body string
		code        job.Code
		says        string
	}{
		{200, "text/html", "<html>", job.CodeInternal, foreign},
		{200, "text/plain", `{"node":"n1","jobs":[]}`, job.CodeInternal, foreign},
		{200, "application/json", "{}", job.CodeInternal, foreign},
		{200, "application/json", `[]`, job.CodeInternal, foreign},
		{404, "text/html", "nope", job.CodeInternal, foreign},
		{501, "text/html", "nope", job.CodeInternal, foreign},
		{400, "text/plain", "This port speaks TLS: use https.\n", job.CodeUnauthenticated, "belongs to a secure cluster"},
		{502, "", "", job.CodeUnavailable, gateway},
		{500, "application/json", `{"x":1}`, job.CodeInternal, gateway},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tt.media)
			w.WriteHeader(tt.status)
			w.Write([]byte(tt.body)) //nolint:errcheck // a test
		}))
		c := client.New(srv.URL)
		for name, call := range map[string]func(context.Context) error{
			"status": func(ctx context.Context) error { _, err := c.Status(ctx); return err },
			"jobs":   func(ctx context.Context) error { _, err := c.ListJobs(ctx, client.JobQuery{}); return err },
			"delete": func(ctx context.Context) error { return c.DeleteJob(ctx, "x", 0) },
			"bulk": func(ctx context.Context) error {
				return c.BulkCreate(ctx, strings.NewReader("{}"), func(client.BulkResult) error { return nil })
			},
		} {
			err := call(client.WithRaw(t.Context(), func(b []byte) { t.Errorf("%s: %s was passed on", name, b) }))
			if job.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s, %d %s: %v", name, tt.status, tt.body, err)
			}
		}
		srv.Close()
	}
}

func TestAddr(t *testing.T) {
	for addr, want := range map[string]string{
		"": "http://127.0.0.1:7400", "127.0.0.1": "http://127.0.0.1:7400", "localhost": "http://localhost:7400", "::1": "http://[::1]:7400",
		"[::1]": "http://[::1]:7400", "[::1]:80": "http://[::1]:80", "n1:99": "http://n1:99", "http://n1": "http://n1", "https://n1/x/": "https://n1/x",
	} {
		if got := client.New(addr).Addr(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func TestBulk(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	var in strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&in, `{"nam":"%d"}`+"\n", i)
	}
	in.WriteString("\n" + `{"name":"good","type":"shell","schedule":"@daily","payload":{"command":"date"}}`)
	n, requests := 0, 0
	c := start(t, &hooked{Backend: apitest.Start(t).Backend, hook: func() error {
		if requests++; requests == 5 {
			return job.Errorf(job.CodeNoLeader, "", "no")
		}
		return nil
	}})
	err := c.BulkCreate(t.Context(), strings.NewReader(in.String()), func(r client.BulkResult) error {
		n++
		if n <= 12_000 && r.Line != n || n == 12_001 && (r.Line != 12_002 || r.Status != "created") {
			t.Fatalf("answer %d: %+v", n, r)
		}
		return nil
	})
	if err != nil || n != 12_001 {
		t.Error(n, err)
	}
	stop := errors.New("enough")
	if err := c.BulkCreate(t.Context(), strings.NewReader(in.String()), func(client.BulkResult) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// Lines without names that are equal are jobs of their own, in whichever of the requests they go, and are known again
// when the same input is sent again.
func TestBulkOfEqualLines(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	const lines = 10_003 // a request has 10,000
	in := strings.Repeat(`{"type":"queue","schedule":"@manual","payload":{"queue":"q"}}`+"\n", lines)
	c := start(t, apitest.Start(t).Backend)
	for _, want := range []string{"created", "exists"} {
		n, ids := 0, map[string]bool{}
		err := c.BulkCreate(client.WithIdempotencyKey(t.Context(), "k"), strings.NewReader(in), func(r client.BulkResult) error {
			if n++; r.Line != n || r.Status != want {
				t.Fatalf("answer %d: %+v, not %s", n, r, want)
			}
			ids[r.JobID.String()] = true
			return nil
		})
		if err != nil || len(ids) != lines {
			t.Fatal(len(ids), err)
		}
	}
}

// A bulk create whose answer breaks off is sent again, and no line is reported twice.
func TestBulkBreaksOff(t *testing.T) {
	inner := api.New(apitest.Start(t).Backend, api.Options{Bulk: api.BulkLimits{ChunkLines: 1}})
	var n atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.Header().Set("Content-Type", "application/x-ndjson")
			fmt.Fprintln(w, `{"line":1,"status":"created","job_id":"j_1"}`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		inner.ServeHTTP(w, r)
	}))
	defer srv.Close()
	var lines []int
	in := strings.Repeat(`{"type":"shell","schedule":"@daily","payload":{"command":"date"}}`+"\n", 3)
	err := client.New(srv.URL, client.WithBackoff(time.Millisecond)).BulkCreate(t.Context(), strings.NewReader(in), func(r client.BulkResult) error {
		lines = append(lines, r.Line)
		return nil
	})
	if err != nil || fmt.Sprint(lines) != "[1 2 3]" {
		t.Error(lines, err)
	}
}

// A line that met a change of the leader is sent again; once more than the client wants to try, the error is its answer.
func TestBulkMeetsAnElection(t *testing.T) {
	inner := api.New(apitest.Start(t).Backend, api.Options{Bulk: api.BulkLimits{ChunkLines: 1}})
	for _, tc := range []struct {
		failing int32
		want    string
	}{{1, "created created created"}, {99, "created error error"}} {
		var n atomic.Int32
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) <= tc.failing {
				w.Header().Set("Content-Type", "application/x-ndjson")
				fmt.Fprintln(w, `{"line":1,"status":"created","job_id":"j_1"}`)
				fmt.Fprintln(w, `{"line":2,"status":"error","error":{"code":"outcome_unknown","message":"leadership lost"}}`)
				fmt.Fprintln(w, `{"line":3,"status":"error","error":{"code":"unavailable","message":"not tried"}}`)
				return
			}
			inner.ServeHTTP(w, r)
		}))
		var got []string
		in := strings.Repeat(`{"type":"shell","schedule":"@daily","payload":{"command":"date"}}`+"\n", 3)
		err := client.New(srv.URL, client.WithBackoff(time.Millisecond)).BulkCreate(t.Context(), strings.NewReader(in), func(r client.BulkResult) error {
			got = append(got, r.Status)
			return nil
		})
		if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%v %v, and not %q", got, err, tc.want)
		}
		srv.Close()
	}
}

func TestStaleAndRaw(t *testing.T) {
	var query string
	inner := apitest.Start(t).Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		inner.ServeHTTP(w, r)
	}))
	defer srv.Close()
	c := client.New(srv.URL, client.WithStale())
	var raw []byte
	if _, err := c.ListJobs(client.WithRaw(t.Context(), func(b []byte) { raw = b }), client.JobQuery{}); err != nil || query != "stale=true" {
		t.Error(err, query)
	}
	if string(raw) != `{"jobs":[],"next_cursor":""}`+"\n" {
		t.Errorf("%q", raw)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// All pages of the queues are read, each behind the one before.
func TestQueuesOfSeveralPages(t *testing.T) {
	next := map[string]string{"": "b", "b": "c", "c": ""}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := r.URL.Query().Get("cursor")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"queues":[{"name":"q%s"}],"next_cursor":%q}`, at, next[at])
	}))
	defer srv.Close()
	all, err := client.New(srv.Listener.Addr().String()).Queues(t.Context())
	if err != nil || len(all) != 3 || all[0].Name != "q" || all[1].Name != "qb" || all[2].Name != "qc" {
		t.Errorf("%+v, %v", all, err)
	}
}
