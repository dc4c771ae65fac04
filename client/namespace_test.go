package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// What lives in namespaces is asked for in the client's; what does not is asked for as before.
func TestRequestsNameTheNamespace(t *testing.T) {
	asked := make(chan string, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path + " " + strings.Join(r.URL.Query()["namespace"], ",")
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer srv.Close()
	ctx := t.Context()
	c := New(srv.URL, WithNamespace("team-a"), WithAttempts(1))
	want := func(line string) {
		t.Helper()
		if got := <-asked; got != line {
			t.Errorf("%q, want %q", got, line)
		}
	}
	_, _ = c.GetJob(ctx, "x")
	want("GET /api/v1/jobs/x team-a")
	_, _ = c.PurgeDead(ctx, DeadQuery{All: true})
	want("DELETE /api/v1/dead team-a")
	_, _ = c.Preview(ctx, PreviewRequest{})
	want("POST /api/v1/schedule:preview team-a")
	_, _ = c.In("*").Calendars(ctx)
	want("GET /api/v1/calendars *")
	_, _ = c.In("").Runs(ctx, RunQuery{})
	want("GET /api/v1/runs ")
	_, _ = c.Status(ctx)
	want("GET /api/v1/status ")
	_ = c.Ready(ctx)
	want("GET /readyz ")

	ctx, cancel := context.WithCancel(ctx)
	worker := Worker{Addrs: []string{srv.URL}, Queue: "mail", Namespace: "team-b",
		Handler: func(context.Context, *Run) error { return nil }}
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	want("POST /api/v1/workers:poll team-b")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	worker.Namespace = "Team B"
	if err := worker.Run(t.Context()); job.CodeOf(err) != job.CodeInvalid {
		t.Error(err)
	}
}
