package apitest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
)

// A 10 MB body is refused without being read, whether its length is announced or not, and the client gets to see why.
func TestTenMegabytes(t *testing.T) {
	srv := httptest.NewServer(api.New(empty(t).Backend, api.Options{}))
	defer srv.Close()
	big := bytes.Repeat([]byte("x"), 10<<20)
	for name, body := range map[string]io.Reader{"announced": bytes.NewReader(big), "chunked": io.MultiReader(bytes.NewReader(big))} {
		resp, err := srv.Client().Post(srv.URL+"/api/v1/jobs", "application/json", body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 413 || !strings.Contains(string(text), "1048576") || !resp.Close {
			t.Errorf("%s: %s %s", name, resp.Status, text)
		}
	}
	// Another request is served as if nothing had been.
	if resp, err := srv.Client().Get(srv.URL + "/healthz"); err != nil || resp.StatusCode != 200 {
		t.Error(err)
	}
}

// With Expect: 100-continue (curl sends it) nothing of the body travels.
func TestTenMegabytesExpectContinue(t *testing.T) {
	srv := httptest.NewServer(api.New(empty(t).Backend, api.Options{}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10485760\r\nExpect: 100-continue\r\n\r\n")
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(status, "413") {
		t.Errorf("%q, %v", status, err)
	}
}

// A client that hangs up ends the backend's context, and no error is logged about it.
func TestHangUp(t *testing.T) {
	var log bytes.Buffer
	entered, ended := make(chan struct{}), make(chan error, 1)
	f := hooked{none, func(ctx context.Context, _ string) error {
		close(entered)
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}
	srv := httptest.NewServer(api.New(f, api.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}))
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+"/api/v1/jobs", strings.NewReader(spec))
	go func() {
		<-entered
		cancel()
	}()
	if resp, err := srv.Client().Do(r); err == nil {
		resp.Body.Close()
		t.Error("an answer without a client")
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(10 * time.Second):
		t.Error("the backend was not told")
	}
	srv.Close()
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}
}

func TestRequestTimeout(t *testing.T) {
	f := hooked{none, func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	o := api.Options{RequestTimeout: 10 * time.Millisecond}
	checkProblem(t, serveWith(t, f, o, "GET", "/api/v1/jobs/x", nil, ""), "unavailable")
	checkProblem(t, serveWith(t, f, o, "POST", "/api/v1/jobs", nil, spec), "outcome_unknown")
	checkProblem(t, serveWith(t, f, o, "POST", "/api/v1/jobs:bulk", nil, spec), "outcome_unknown")
	checkProblem(t, serveWith(t, f, o, "GET", "/api/v1/runs:export", nil, ""), "unavailable")
}

// A body that does not come is not waited for without end.
func TestSlowBody(t *testing.T) {
	srv := httptest.NewServer(api.New(empty(t).Backend, api.Options{RequestTimeout: 50 * time.Millisecond}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	conn.SetReadDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // the read tells
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(status, "400") {
		t.Errorf("%q, %v", status, err)
	}
}

// An export whose backend fails in the middle breaks off; it does not look complete.
func TestExportBreaksOff(t *testing.T) {
	n := 0
	f := hooked{lines{none, 600}, func(context.Context, string) error {
		if n++; n == 2 {
			return io.ErrUnexpectedEOF
		}
		return nil
	}}
	srv := httptest.NewServer(api.New(f, api.Options{}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL + "/api/v1/runs:export")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a broken export looks complete")
	}
}

// A panic after the answer has begun closes the connection.
func TestPanicInAStream(t *testing.T) {
	n := 0
	f := hooked{lines{none, 600}, func(context.Context, string) error {
		if n++; n == 2 {
			panic("boom")
		}
		return nil
	}}
	srv := httptest.NewServer(api.New(f, api.Options{}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL + "/api/v1/runs:export")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a broken export looks complete")
	}
}

// The deadline of a stream's write is not left for the next request on the connection.
func TestDeadlinesDoNotOutliveTheRequest(t *testing.T) {
	f := lines{apitest.Start(t).Backend, 1}
	srv := httptest.NewServer(api.New(f, api.Options{RequestTimeout: 50 * time.Millisecond}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, request := range []string{
		"GET /api/v1/runs:export HTTP/1.1\r\nHost: localhost\r\n\r\n",
		fmt.Sprintf("POST /api/v1/jobs:bulk HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(spec), spec),
		fmt.Sprintf("POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(spec), spec),
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		fmt.Fprint(conn, request)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%.30q: %v", request, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		time.Sleep(80 * time.Millisecond) // the connection idles for longer than the deadline
	}
}

// A bulk create beyond its limits is answered in full although the rest of it is never read.
func TestBulkBeyondItsLimits(t *testing.T) {
	srv := httptest.NewServer(api.New(empty(t).Backend, api.Options{Bulk: api.BulkLimits{Lines: 3, ChunkLines: 2}}))
	defer srv.Close()
	body := strings.Repeat("{}\n", 3<<20)
	resp, err := srv.Client().Post(srv.URL+"/api/v1/jobs:bulk", "application/x-ndjson", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || strings.Count(string(text), "\n") != 4 || !strings.Contains(string(text), "too_large") {
		t.Errorf("%v: %s", err, text)
	}
}
