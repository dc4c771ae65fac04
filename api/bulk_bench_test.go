package api_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// allCreated is a backend that creates everything in no time.
type allCreated struct {
	api.Backend
	next job.ID
}

func (a *allCreated) BulkCreate(_ context.Context, lines []wire.BulkLine, _ api.Request) ([]wire.BulkResult, error) {
	out := make([]wire.BulkResult, len(lines))
	for i := range lines {
		a.next++
		id := a.next
		out[i] = wire.BulkResult{Line: lines[i].Line, Status: "created", JobID: &id, Name: lines[i].Spec.Name}
		if lines[i].Err != nil {
			return nil, lines[i].Err
		}
	}
	return out, nil
}

type nowhere struct{ h http.Header }

func (n nowhere) Header() http.Header         { return n.h }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

// BenchmarkBulkLines is what the API itself does for a bulk create: lines, JSON, answers.
func BenchmarkBulkLines(b *testing.B) {
	const lines = 10_000
	line := []byte(`{"name":"9e3779b97f4a7c15-idle-0","type":"http","schedule":"17 43 10 * * *","payload":{"url":"http://127.0.0.1:9/reports/daily","method":"POST","headers":{"Content-Type":"application/json"},"body":{"account":123456,"kind":"daily"}}}` + "\n")
	body := bytes.Repeat(line, lines)
	h := api.New(&allCreated{}, api.Options{})
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/api/v1/jobs:bulk", bytes.NewReader(body))
		h.ServeHTTP(nowhere{http.Header{}}, r)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/job")
}
