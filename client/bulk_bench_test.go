package client_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
)

// canned answers every request alike.
type canned []byte

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/x-ndjson"}}, Body: io.NopCloser(bytes.NewReader(c)), Request: r}, nil
}

// BenchmarkBulkCreate is what a client does for a bulk create: it cuts requests, and reads answers.
func BenchmarkBulkCreate(b *testing.B) {
	const lines = 10_000
	line := []byte(`{"name":"9e3779b97f4a7c15-idle-0","type":"http","schedule":"17 43 10 * * *","payload":{"url":"http://127.0.0.1:9/reports/daily","method":"POST","headers":{"Content-Type":"application/json"},"body":{"account":123456,"kind":"daily"}}}` + "\n")
	body := bytes.Repeat(line, lines)
	var answer []byte
	for i := range lines {
		answer = fmt.Appendf(answer, `{"line":%d,"status":"created","job_id":"j_%x","name":"9e3779b97f4a7c15-idle-%d"}`+"\n", i+1, i+1, i)
	}
	c := client.New("127.0.0.1:1", client.WithHTTPClient(&http.Client{Transport: canned(answer)}))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		err := c.BulkCreate(b.Context(), bytes.NewReader(body), func(r client.BulkResult) error {
			if n++; r.JobID == nil {
				return r.Error
			}
			return nil
		})
		if err != nil || n != lines {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/job")
}
