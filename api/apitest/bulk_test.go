package apitest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

func line(name string) string { return strings.Replace(spec, "hello", name, 1) + "\n" }

func results(t *testing.T, body string) []wire.BulkResult {
	t.Helper()
	var out []wire.BulkResult
	for l := range strings.Lines(body) {
		var r wire.BulkResult
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			t.Fatalf("%v: %q", err, l)
		}
		out = append(out, r)
	}
	return out
}

// A bad line gets its own error, in its place, and the rest goes on.
func TestBulkPartlyBad(t *testing.T) {
	f := world(t).Backend
	body := line("a") + "\n" + "{broken\n" + line("b") + `{"nam":"x"}` + "\n" + line("daily") + "   \r\n" + line("a") +
		`{"name":"` + strings.Repeat("x", 300<<10) + `"}` + "\n" + `{"job_id":"j_1"}` + "\n" + strings.TrimSpace(line("last"))
	got := results(t, serve(t, f, "POST", "/api/v1/jobs:bulk", nil, body).Body.String())
	want := []string{
		"1 created a", "3 error malformed", "4 created b", "5 error unknown_field", "6 error duplicate_name", "8 exists a",
		"9 error too_large", "10 error unknown_field", "11 created last",
	}
	if len(got) != len(want) {
		t.Fatalf("%d answers, want %d: %+v", len(got), len(want), got)
	}
	for i, r := range got {
		text := fmt.Sprintf("%d %s %s", r.Line, r.Status, r.Name)
		if r.Error != nil {
			text = fmt.Sprintf("%d %s %s", r.Line, r.Status, r.Error.Code)
		}
		if text != want[i] {
			t.Errorf("%q, want %q", text, want[i])
		}
	}
}

func TestBulkChunks(t *testing.T) {
	f := &noted{Backend: apitest.Start(t).Backend}
	var b strings.Builder
	for i := range 1200 {
		b.WriteString(line(fmt.Sprintf("n%d", i)))
	}
	o := api.Options{Bulk: api.BulkLimits{ChunkLines: 1000, ChunkBytes: 256 << 10}}
	got := results(t, serveWith(t, f, o, "POST", "/api/v1/jobs:bulk", nil, b.String()).Body.String())
	if len(got) != 1200 || len(f.requests) != 2 {
		t.Fatalf("%d answers in %d chunks", len(got), len(f.requests))
	}
	for i, r := range got {
		if r.Line != i+1 || r.Status != "created" {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	for _, r := range f.requests {
		if r.Key != "" || r.Client {
			t.Errorf("%+v: a bulk create without a key has none", r)
		}
	}
	// By size.
	f.requests = nil
	fat := strings.Replace(line("fat"), `"type"`, `"tags":{"t":"`+strings.Repeat("y", 200<<10)+`"},"type"`, 1)
	serveWith(t, f, o, "POST", "/api/v1/jobs:bulk", nil, strings.Repeat(fat, 4))
	if len(f.requests) != 2 {
		t.Errorf("%d chunks", len(f.requests))
	}
}

func TestBulkLimits(t *testing.T) {
	o := api.Options{Bulk: api.BulkLimits{Lines: 3}}
	got := results(t, serveWith(t, empty(t).Backend, o, "POST", "/api/v1/jobs:bulk", nil, line("a")+line("b")+line("c")+line("d")+line("e")).Body.String())
	if len(got) != 4 || got[3].Error == nil || got[3].Error.Code != job.CodeTooLarge {
		t.Errorf("%+v", got)
	}
	o.Bulk = api.BulkLimits{Bytes: 300}
	w := serveWith(t, empty(t).Backend, o, "POST", "/api/v1/jobs:bulk", nil, strings.Repeat(line("a"), 10))
	checkProblem(t, w, job.CodeTooLarge)

	// The same without a Content-Length.
	r := httptest.NewRequest("POST", "/api/v1/jobs:bulk", io.MultiReader(strings.NewReader(strings.Repeat(line("a"), 10))))
	r.ContentLength = -1
	w = httptest.NewRecorder()
	api.New(empty(t).Backend, o).ServeHTTP(w, r)
	got = results(t, w.Body.String())
	if last := got[len(got)-1]; len(got) > 4 || last.Error == nil || last.Error.Code != job.CodeTooLarge {
		t.Errorf("%+v", got)
	}
}

// When the backend fails before anything was answered the request fails; later, every line is still answered.
func TestBulkBackendFails(t *testing.T) {
	n := 0
	failAt := 1
	f := hooked{apitest.Start(t).Backend, func(context.Context, string) error {
		if n++; n == failAt {
			return job.Errorf(job.CodeOutcomeUnknown, "", "lost it")
		}
		return nil
	}}
	o := api.Options{Bulk: api.BulkLimits{ChunkLines: 2}}
	body := line("a") + line("b") + line("c") + "broken\n" + line("e") + line("f")
	w := serveWith(t, f, o, "POST", "/api/v1/jobs:bulk", nil, body)
	if w.Code != 503 {
		t.Error(w.Code)
	}
	checkProblem(t, w, job.CodeOutcomeUnknown)

	failAt, n = 2, 0
	got := results(t, serveWith(t, f, o, "POST", "/api/v1/jobs:bulk", nil, body).Body.String())
	want := []job.Code{"", "", job.CodeOutcomeUnknown, job.CodeMalformed, job.CodeUnavailable, job.CodeUnavailable}
	for i, code := range want {
		if i >= len(got) || (code == "") != (got[i].Error == nil) || code != "" && got[i].Error.Code != code {
			t.Fatalf("line %d: want %q, got %+v", i+1, code, got)
		}
	}
	if n != 2 {
		t.Errorf("%d chunks were tried", n)
	}

	f.hook = func(context.Context, string) error { panic("boom") }
	w = serveWith(t, f, o, "POST", "/api/v1/jobs:bulk", nil, body)
	checkProblem(t, w, job.CodeInternal)
}

// The answers come while the lines are still being sent.
func TestBulkIsAnsweredWhileItIsSent(t *testing.T) {
	f := apitest.Start(t).Backend
	srv := httptest.NewServer(api.New(f, api.Options{Bulk: api.BulkLimits{ChunkLines: 2}}))
	defer srv.Close()
	pr, pw := io.Pipe()
	defer pw.Close()
	go io.WriteString(pw, line("a")+line("b")) //nolint:errcheck // the read end tells
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", srv.URL+"/api/v1/jobs:bulk", pr)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	for i := range 2 {
		if l, err := answers.ReadString('\n'); err != nil {
			t.Fatalf("answer %d: %q, %v", i, l, err)
		}
	}
	io.WriteString(pw, line("c")) //nolint:errcheck // the answer tells
	pw.Close()
	rest, err := io.ReadAll(answers)
	if err != nil || strings.Count(string(rest), "\n") != 1 {
		t.Errorf("%q, %v", rest, err)
	}
}

// What breaks off in the middle of a line is not a job, and the answer does not look complete.
func TestBulkHangUp(t *testing.T) {
	f := apitest.Start(t).Backend
	srv := httptest.NewServer(api.New(f, api.Options{}))
	defer srv.Close()
	pr, pw := io.Pipe()
	go func() {
		io.WriteString(pw, line("a")+strings.TrimSpace(line("b"))) //nolint:errcheck // seen in the store
		pw.CloseWithError(io.ErrUnexpectedEOF)
	}()
	if resp, err := srv.Client().Post(srv.URL+"/api/v1/jobs:bulk", "application/x-ndjson", pr); err == nil {
		resp.Body.Close()
		t.Error("an answer to half a request:", resp.Status)
	}
	srv.Close() // waits for the handler
	if _, err := f.GetJob(t.Context(), "b", api.Read{}); job.CodeOf(err) != job.CodeNotFound {
		t.Errorf("half a line became a job: %v", err)
	}
}

// taker answers bulk lines without doing anything.
type taker struct{ api.Backend }

func (taker) BulkCreate(_ context.Context, lines []wire.BulkLine, _ api.Request) ([]wire.BulkResult, error) {
	out := make([]wire.BulkResult, len(lines))
	id := job.ID(1)
	for i, l := range lines {
		out[i] = wire.BulkResult{Line: l.Line, Status: "created", JobID: &id, Name: l.Spec.Name}
	}
	return out, nil
}

// BenchmarkBulk is what the routes themselves cost a line.
func BenchmarkBulk(b *testing.B) {
	h := api.New(taker{none}, api.Options{})
	const n = 5000
	body := strings.Repeat(line("some-job-12345"), n)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		r := httptest.NewRequest("POST", "/api/v1/jobs:bulk", strings.NewReader(body))
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "lines/s")
}

// looker sees whether a line is what its text says, while the next chunk is read into memory that was used before.
type looker struct {
	api.Backend
	t     *testing.T
	lines int
}

func (l *looker) BulkCreate(_ context.Context, lines []wire.BulkLine, _ api.Request) ([]wire.BulkResult, error) {
	out := make([]wire.BulkResult, len(lines))
	for i := range lines {
		l.lines++
		if lines[i].Err != nil {
			out[i] = wire.BulkResult{Line: lines[i].Line, Status: "error", Error: lines[i].Err}
			continue
		}
		runtime.Gosched()
		want := fmt.Sprintf("n%d-%s", lines[i].Line, strings.Repeat("x", lines[i].Line%90))
		if got := lines[i].Spec.Name; got != want || strings.TrimSpace(line(want)) != string(lines[i].Raw) {
			l.t.Errorf("line %d is %q of %q", lines[i].Line, got, lines[i].Raw)
		}
		out[i] = wire.BulkResult{Line: lines[i].Line, Status: "created", Name: lines[i].Spec.Name}
	}
	return out, nil
}

func TestBulkChunksDoNotMix(t *testing.T) {
	const n = 3000
	var b strings.Builder
	for i := range n {
		b.WriteString(line(fmt.Sprintf("n%d-%s", i+1, strings.Repeat("x", (i+1)%90))))
	}
	l := &looker{Backend: none, t: t}
	w := httptest.NewRecorder()
	api.New(l, api.Options{Bulk: api.BulkLimits{ChunkLines: 7}}).ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/jobs:bulk", iotest.HalfReader(strings.NewReader(b.String()))))
	got := results(t, w.Body.String())
	if len(got) != n || l.lines != n {
		t.Fatalf("%d answers of %d lines", len(got), l.lines)
	}
	for i, r := range got {
		if r.Line != i+1 || r.Status != "created" || r.Name != fmt.Sprintf("n%d-%s", i+1, strings.Repeat("x", (i+1)%90)) {
			t.Fatalf("%d: %+v", i, r)
		}
	}
}
