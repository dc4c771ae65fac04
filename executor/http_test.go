package executor

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
)

func httpJob(t *testing.T, p map[string]any) job.Assignment {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2027, 3, 1, 9, 0, 0, 250e6, time.UTC)
	return job.Assignment{Run: job.RunKey{Job: 42, At: at.UnixMilli(), Origin: job.OriginSchedule}, JobName: "nightly", Attempt: 2,
		Fence: 77, Key: "j_1a:1803891600", Type: job.TypeHTTP, Payload: b}
}

// onLoopback lets jobs reach the targets of tests.
var onLoopback = func() *egress.Policy {
	p, err := egress.New(egress.Options{Loopback: true})
	if err != nil {
		panic(err)
	}
	return p
}()

func newTestHTTP(t *testing.T, o HTTPOptions) *HTTP {
	o.Egress = cmp.Or(o.Egress, onLoopback)
	h := NewHTTP(o)
	t.Cleanup(h.Close)
	return h
}

// seen is a request as a target got it.
type seen struct {
	*http.Request
	body string
}

// target is a server that keeps what it is sent.
type target struct {
	*httptest.Server
	mu  sync.Mutex
	got []seen
}

func newTarget(t *testing.T, answer http.HandlerFunc) *target {
	s := &target{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, seen{r, string(b)})
		s.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *target) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func TestHTTPRequest(t *testing.T) {
	srv := newTarget(t, nil)
	h := newTestHTTP(t, HTTPOptions{Version: "1.2.3"})
	for name, c := range map[string]struct {
		payload             map[string]any
		method, body, ctype string
	}{
		"nothing":         {map[string]any{}, "GET", "", ""},
		"null body":       {map[string]any{"body": nil}, "GET", "", ""},
		"empty body":      {map[string]any{"body": ""}, "GET", "", ""},
		"raw body":        {map[string]any{"body": "a=1&b=2"}, "POST", "a=1&b=2", ""},
		"json object":     {map[string]any{"body": map[string]any{"a": 1}}, "POST", `{"a":1}`, "application/json"},
		"json number":     {map[string]any{"body": 5}, "POST", "5", "application/json"},
		"own type":        {map[string]any{"body": []int{1}, "headers": map[string]string{"content-type": "application/vnd.x+json"}}, "POST", "[1]", "application/vnd.x+json"},
		"put without":     {map[string]any{"method": "PUT"}, "PUT", "", ""},
		"delete with":     {map[string]any{"method": "DELETE", "body": "x"}, "DELETE", "x", ""},
		"get with a body": {map[string]any{"method": "GET", "body": "q"}, "GET", "q", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.payload["url"] = srv.URL + "/hook?x=1"
			before := len(srv.requests())
			if r := h.Run(t.Context(), httpJob(t, c.payload)); r.Outcome != job.OutcomeSucceeded {
				t.Fatalf("%+v", r)
			}
			if n := len(srv.requests()) - before; n != 1 {
				t.Fatalf("%d requests", n)
			}
			r := last(srv.requests())
			if r.Method != c.method || r.body != c.body || r.Header.Get("Content-Type") != c.ctype || r.URL.String() != "/hook?x=1" {
				t.Fatalf("%s %s %q, type %q", r.Method, r.URL, r.body, r.Header.Get("Content-Type"))
			}
			if len(r.TransferEncoding) != 0 {
				t.Fatalf("sent as %v", r.TransferEncoding)
			}
			for k, v := range map[string]string{"Idempotency-Key": "j_1a:1803891600", "Carillon-Job": "j_1a", "Carillon-Run": httpJob(t, nil).Run.String(),
				"Carillon-Scheduled-At": "2027-03-01T09:00:00.25Z", "Carillon-Attempt": "2", "Carillon-Fence": "77", "User-Agent": "carillon/1.2.3"} {
				if got := r.Header.Get(k); got != v {
					t.Errorf("%s: %q, want %q", k, got, v)
				}
			}
			if tp, ok := r.Header["Traceparent"]; ok {
				t.Errorf("traceparent %q of an attempt that has none", tp)
			}
		})
	}
}

func TestHTTPHeaders(t *testing.T) {
	srv := newTarget(t, nil)
	h := newTestHTTP(t, HTTPOptions{})
	a := httpJob(t, map[string]any{"url": strings.Replace(srv.URL, "http://", "http://ann:secret@", 1),
		"headers": map[string]string{"Host": "inner.example", "X-A": "1", "User-Agent": "mine"}})
	a.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if r := h.Run(t.Context(), a); r.Outcome != job.OutcomeSucceeded {
		t.Fatalf("%+v", r)
	}
	r := last(srv.requests())
	user, pass, _ := r.BasicAuth()
	if r.Host != "inner.example" || r.Header.Get("X-A") != "1" || r.Header.Get("User-Agent") != "mine" ||
		r.Header.Get("traceparent") != a.Traceparent || user != "ann" || pass != "secret" {
		t.Fatalf("%s %v", r.Host, r.Header)
	}
}

func TestHTTPBadPayloads(t *testing.T) {
	h := newTestHTTP(t, HTTPOptions{})
	for name, p := range map[string]map[string]any{
		"no url":         {},
		"another scheme": {"url": "file:///etc/passwd"},
		"unknown field":  {"url": "http://x", "nonsense": 1},
		"connect":        {"url": "http://127.0.0.1:1", "method": "CONNECT"},
	} {
		if r := h.Run(t.Context(), httpJob(t, p)); r.Outcome != job.OutcomeFailed || !r.Permanent {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestHTTPStatus(t *testing.T) {
	var status int
	var header http.Header
	var body string
	srv := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	h := newTestHTTP(t, HTTPOptions{})
	retry := func(v string) http.Header { return http.Header{"Retry-After": {v}} }
	for _, c := range []struct {
		status    int
		expect    any
		lenient   bool
		header    http.Header
		ok        bool
		permanent bool
		after     time.Duration
	}{
		{status: 200, ok: true},
		{status: 299, ok: true},
		{status: 204, expect: 200},
		{status: 404, expect: []any{200, "4xx"}, ok: true},
		{status: 302, header: http.Header{"Location": {"/elsewhere"}}, expect: "300-399", ok: true},
		{status: 304, permanent: true},
		{status: 400, permanent: true},
		{status: 404, permanent: true},
		{status: 404, lenient: true},
		{status: 408}, {status: 425}, {status: 429},
		{status: 500}, {status: 503},
		{status: 503, header: retry("120"), after: 2 * time.Minute},
		{status: 429, header: retry("999999999999"), after: math.MaxInt64 / time.Second * time.Second},
		{status: 429, header: retry("-9223372036854775808")},
		{status: 429, header: retry("soon")},
		{status: 410, header: retry("60"), permanent: true, after: time.Minute},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			status, header, body = c.status, c.header, "the reason"
			p := map[string]any{"url": srv.URL, "retry_client_errors": c.lenient}
			if c.expect != nil {
				p["expect_status"] = c.expect
			}
			r := h.Run(t.Context(), httpJob(t, p))
			if (r.Outcome == job.OutcomeSucceeded) != c.ok || r.Permanent != c.permanent || r.RetryAfter != job.Duration(c.after) {
				t.Fatalf("%+v", r)
			}
			if want := fmt.Sprintf("status %d", c.status); !c.ok && !strings.HasPrefix(r.Error, want) {
				t.Fatalf("error %q", r.Error)
			}
			if c.status >= 400 && (r.Output != "the reason" || !c.ok && !strings.HasSuffix(r.Error, ": the reason")) {
				t.Fatalf("output %q, error %q", r.Output, r.Error)
			}
		})
	}
	status, header, body = 500, nil, strings.Repeat("é", 40<<10)
	r := h.Run(t.Context(), httpJob(t, map[string]any{"url": srv.URL}))
	if len(r.Output) != job.MaxOutputBytes || len(r.Error) > errorBodyBytes+50 || strings.ToValidUTF8(r.Error+r.Output, "") != r.Error+r.Output {
		t.Fatalf("%d bytes of output, error %q", len(r.Output), r.Error)
	}
}

func TestRetryAfterDate(t *testing.T) {
	now := time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, " 5 ": 5 * time.Second,
		now.Add(time.Hour).Format(http.TimeFormat):       time.Hour,
		now.Add(-time.Hour).Format(http.TimeFormat):      0,
		now.Add(100 * time.Hour).Format(http.TimeFormat): 100 * time.Hour,
	} {
		if got := retryAfter(v, now); got != want {
			t.Errorf("%q: %v", v, got)
		}
	}
}

func TestHTTPTargetNotThere(t *testing.T) {
	addr := port.Reserve(t)
	r := newTestHTTP(t, HTTPOptions{}).Run(t.Context(), httpJob(t, map[string]any{"url": "http://u:secret@" + addr}))
	if r.Outcome != job.OutcomeFailed || r.Permanent || !strings.Contains(r.Error, "refused") || strings.Contains(r.Error, "secret") {
		t.Fatalf("%+v", r)
	}
}

func TestHTTPRedirects(t *testing.T) {
	other := newTarget(t, nil)
	first := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/there":
			http.Redirect(w, r, other.URL+"/end", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		}
	})
	h := newTestHTTP(t, HTTPOptions{})
	run := func(p map[string]any) (job.Result, int, int) {
		p["headers"] = map[string]string{"Authorization": "Bearer x", "X-Api-Key": "k", "Accept": "text/plain"}
		a, b := len(first.requests()), len(other.requests())
		r := h.Run(t.Context(), httpJob(t, p))
		return r, len(first.requests()) - a, len(other.requests()) - b
	}
	if r, n, _ := run(map[string]any{"url": first.URL + "/here"}); r.Outcome != job.OutcomeSucceeded || n != 2 {
		t.Errorf("to the same host: %+v, %d requests", r, n)
	}
	if h := last(first.requests()).Header; h.Get("Authorization") != "Bearer x" || h.Get("Carillon-Fence") != "77" {
		t.Errorf("headers on the same host: %v", h)
	}
	if r, n, m := run(map[string]any{"url": first.URL + "/there"}); r.Outcome != job.OutcomeSucceeded || n != 1 || m != 1 {
		t.Errorf("to another host: %+v, %d and %d requests", r, n, m)
	} else {
		for k := range last(other.requests()).Header {
			if k != "User-Agent" && k != "Accept" && k != egress.Header {
				t.Errorf("another host got %s", k)
			}
		}
		if got := last(other.requests()).Host; got != strings.TrimPrefix(other.URL, "http://") {
			t.Errorf("another host was called %s", got)
		}
	}
	if r, n, _ := run(map[string]any{"url": first.URL + "/loop"}); r.Outcome != job.OutcomeFailed || n != 6 || !strings.Contains(r.Error, "more than 5 redirects") {
		t.Errorf("loop: %+v, %d requests", r, n)
	}
	if r, n, _ := run(map[string]any{"url": first.URL + "/file"}); r.Outcome != job.OutcomeFailed || n != 1 || !strings.Contains(r.Error, "not an http") {
		t.Errorf("to a file: %+v, %d requests", r, n)
	}
	for _, p := range []map[string]any{{"method": "POST"}, {"method": "HEAD"}, {"method": "DELETE"}, {"body": "x"}, {"method": "GET", "body": "x"}} {
		p["url"] = first.URL + "/there"
		if r, n, m := run(p); r.Outcome != job.OutcomeFailed || n != 1 || m != 0 || !strings.HasPrefix(r.Error, "status 302 Found: redirects are not followed for ") || !r.Permanent {
			t.Errorf("%v: %+v, %d and %d requests", p, r, n, m)
		}
		p["retry_client_errors"], p["expect_status"] = true, []any{201, "4xx"}
		if r, _, _ := run(p); r.Permanent || !strings.HasPrefix(r.Error, "status 302 Found, expected 201 or 4xx: redirects") {
			t.Errorf("%v: %+v", p, r)
		}
	}
}

func TestSameHost(t *testing.T) {
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"http://a/x", "http://A/y", true},
		{"http://a/x", "http://a:80/y", true},
		{"http://a/x", "https://a/y", true},
		{"https://a/x", "http://a/y", false},
		{"http://a/x", "http://a:8080/y", false},
		{"http://a:8080/x", "https://a/y", false},
		{"https://a/x", "https://b.a/y", false},
	} {
		from, _ := http.NewRequest("GET", c.from, nil)
		to, _ := http.NewRequest("GET", c.to, nil)
		if got := sameHost(from.URL, to.URL); got != c.same {
			t.Errorf("%s to %s: %v", c.from, c.to, got)
		}
	}
}

func TestHTTPTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes are meant to fail
	srv.StartTLS()
	t.Cleanup(srv.Close)
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	strict, knowing := newTestHTTP(t, HTTPOptions{}), newTestHTTP(t, HTTPOptions{RootCAs: pool})
	p := map[string]any{"url": srv.URL}
	if r := strict.Run(t.Context(), httpJob(t, p)); r.Outcome != job.OutcomeFailed || r.Permanent || !strings.Contains(r.Error, "certificate") {
		t.Errorf("unknown authority: %+v", r)
	}
	if r := knowing.Run(t.Context(), httpJob(t, p)); r.Outcome != job.OutcomeSucceeded || r.Output != "HTTP/1.1" {
		t.Errorf("known authority: %+v", r)
	}
	p["insecure_skip_verify"] = true
	if r := strict.Run(t.Context(), httpJob(t, p)); r.Outcome != job.OutcomeSucceeded {
		t.Errorf("unverified: %+v", r)
	}
	delete(p, "insecure_skip_verify") // and the leniency of one job is not that of the next
	if r := strict.Run(t.Context(), httpJob(t, p)); r.Outcome != job.OutcomeFailed {
		t.Errorf("unknown authority again: %+v", r)
	}
}

// A response that never ends: fast, slowly, or not even beginning.
func TestHTTPEndlessResponses(t *testing.T) {
	srv := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/silent":
			<-r.Context().Done()
		case "/trickle":
			io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/stalls":
			io.WriteString(w, strings.Repeat("x", job.MaxOutputBytes))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/flood":
			block := []byte(strings.Repeat("x", 32<<10))
			for {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}
	})
	h := newTestHTTP(t, HTTPOptions{})
	run := func(path string, timeout time.Duration) job.Result {
		ctx, stop := context.WithTimeoutCause(t.Context(), timeout, worker.ErrTimeout)
		defer stop()
		return h.Run(ctx, httpJob(t, map[string]any{"url": srv.URL + path}))
	}
	for path, output := range map[string]string{"/silent": "", "/trickle": "begun"} {
		r := run(path, 50*time.Millisecond)
		if r.Outcome != job.OutcomeFailed || !strings.HasSuffix(r.Error, "timed out") ||
			r.Output != output && r.Output != "" { // on a busy machine 50 ms may not suffice to get that far
			t.Errorf("%s: %+v", path, r)
		}
	}
	// What is kept was all read: the answer is known, and the rest is given up on.
	for _, path := range []string{"/flood", "/stalls"} {
		if r := run(path, time.Minute); r.Outcome != job.OutcomeSucceeded || len(r.Output) != job.MaxOutputBytes {
			t.Errorf("%s: %v %q, %d bytes", path, r.Outcome, r.Error, len(r.Output))
		}
	}
}

func TestHTTPBrokenResponse(t *testing.T) {
	srv := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r := newTestHTTP(t, HTTPOptions{}).Run(t.Context(), httpJob(t, map[string]any{"url": srv.URL}))
	if r.Outcome != job.OutcomeFailed || r.Permanent || r.Output != "half" || !strings.Contains(r.Error, "connection broke") {
		t.Fatalf("%+v", r)
	}
}

func TestHTTPConnectionsAreReused(t *testing.T) {
	var mu sync.Mutex
	conns := 0
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("x", 20<<10)) // more than is kept
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if s == http.StateNew {
			conns++
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	h := newTestHTTP(t, HTTPOptions{})
	for range 10 {
		if r := h.Run(t.Context(), httpJob(t, map[string]any{"url": srv.URL, "method": "POST"})); r.Outcome != job.OutcomeSucceeded {
			t.Fatalf("%+v", r)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if conns != 1 {
		t.Fatalf("%d connections", conns)
	}
}
