package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// A node that has had too much says for how long to stay away. The client does, and does not go to the next node
// instead; with less time than that it says so.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	var asked, other atomic.Int64
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%2 == 0 {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"queues":[]}`)
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintf(w, `{"code":%q,"detail":"too many","remedy":"wait"}`, job.CodeTooManyRequests)
	}))
	defer busy.Close()
	next := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { other.Add(1) }))
	defer next.Close()
	began := time.Now()
	c := client.New(busy.URL+","+next.URL, client.WithBackoff(time.Millisecond))
	if _, err := c.Queues(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); asked.Load() != 2 || other.Load() != 0 || took < time.Second {
		t.Errorf("asked %d times, %d times elsewhere, in %s", asked.Load(), other.Load(), took)
	}
	_, err := client.New(busy.URL, client.WithTimeout(500*time.Millisecond)).Queues(t.Context())
	if job.CodeOf(err) != job.CodeTooManyRequests || asked.Load() != 3 {
		t.Errorf("with less time: %v, asked %d times", err, asked.Load())
	}
}
