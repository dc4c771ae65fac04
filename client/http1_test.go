package client_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
)

// Requests with TLS go over HTTP/1.1, and those that follow some that were made at once use their connections: a
// handshake costs a node more than the request.
func TestConnectionsWithTLSAreKept(t *testing.T) {
	t.Parallel()
	const atOnce = 8
	var mu sync.Mutex
	from := map[string]bool{}
	var together sync.WaitGroup
	together.Add(atOnce)
	first := true
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		from[r.RemoteAddr] = true
		wait := first
		mu.Unlock()
		if r.ProtoMajor != 1 {
			t.Errorf("a request over %s", r.Proto)
		}
		if wait {
			together.Done()
			together.Wait()
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"queues":[]}`)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	c := client.New(srv.Listener.Addr().String(), client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			if _, err := c.Queues(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	mu.Lock()
	first = false
	mu.Unlock()
	for range 4 * atOnce {
		if _, err := c.Queues(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(from) != atOnce {
		t.Errorf("%d connections, want %d", len(from), atOnce)
	}
}
