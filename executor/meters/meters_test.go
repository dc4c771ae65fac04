package meters_test

import (
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/carillon-scheduler/carillon/executor/meters"
	"github.com/carillon-scheduler/carillon/job"
)

// A worker's attempts are counted by type and status, from 0 on.
func TestAttempts(t *testing.T) {
	m := meters.New("v0", []job.Type{job.TypeHTTP, job.TypeShell})
	m.Attempt(job.Assignment{Type: job.TypeHTTP}, job.Result{Outcome: job.OutcomeFailed, StartedAt: 1000, FinishedAt: 3500})
	m.Attempt(job.Assignment{Type: job.TypeHTTP}, job.Result{}) // it has not ended
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	for _, want := range []string{
		`worker_attempts_total{status="failed",type="http"} 1`, `worker_attempts_total{status="succeeded",type="http"} 0`,
		`worker_attempts_total{status="canceled",type="shell"} 0`, `worker_attempts_total{status="returned",type="shell"} 0`,
		`worker_attempt_duration_seconds_sum{type="http"} 2.5`, `worker_attempt_duration_seconds_count{type="shell"} 0`} {
		if !strings.Contains(text, "\ncarillon_"+want+"\n") {
			t.Errorf("not in the metrics: carillon_%s", want)
		}
	}
	if !strings.Contains(text, `carillon_build_info{`) {
		t.Error("no build_info")
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	w = httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 404 {
		t.Errorf("%d", w.Code)
	}
}

// An address that is taken is refused, with the flag.
func TestAddressTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := meters.New("v0", nil)
	_, err = m.Listen(l.Addr().String(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) || job.CodeOf(err) != job.CodeInvalid {
		t.Errorf("%v", err)
	}
	stop, err := m.Listen("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop()
}
