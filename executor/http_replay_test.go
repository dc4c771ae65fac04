package executor

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// breaker is a target that answers the first request on a connection and breaks the connection after it read the second: the situation in
// which net/http sends a request again by itself.
type breaker struct {
	l     net.Listener
	reset bool
	wg    sync.WaitGroup
	mu    sync.Mutex
	got   []string // the requests, as "connection method path"
	raw   []*http.Request
}

func newBreaker(t *testing.T, reset bool) *breaker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &breaker{l: l, reset: reset}
	t.Cleanup(func() { l.Close(); b.wg.Wait() })
	b.wg.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() { b.serve(n, c) })
		}
	})
	return b
}

func (b *breaker) serve(n int, c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for i := 1; ; i++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		io.Copy(io.Discard, req.Body)
		b.mu.Lock()
		b.got, b.raw = append(b.got, fmt.Sprintf("%d %s %s", n, req.Method, req.URL.Path)), append(b.raw, req)
		b.mu.Unlock()
		if i == 2 {
			if b.reset {
				c.(*net.TCPConn).SetLinger(0)
			}
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

func TestHTTPNeverSendsTwice(t *testing.T) {
	for _, reset := range []bool{false, true} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE", "PROPFIND", "MADEUP"} {
			for body, value := range map[string]any{"no body": nil, "raw": "text", "json": map[string]int{"a": 1}} {
				t.Run(fmt.Sprintf("%s %s reset=%v", method, body, reset), func(t *testing.T) {
					b := newBreaker(t, reset)
					h := newTestHTTP(t, HTTPOptions{})
					p := map[string]any{"url": "http://" + b.l.Addr().String() + "/first", "method": method, "body": value,
						"headers": map[string]string{"X-Idempotency-Key": "mine"}}
					if r := h.Run(t.Context(), httpJob(t, p)); r.Outcome != job.OutcomeSucceeded {
						t.Fatalf("%+v", r)
					}
					p["url"] = "http://" + b.l.Addr().String() + "/second"
					if r := h.Run(t.Context(), httpJob(t, p)); r.Outcome != job.OutcomeFailed || r.Permanent {
						t.Fatalf("%+v", r)
					}
					b.mu.Lock()
					defer b.mu.Unlock()
					want := fmt.Sprint([]string{"1 " + method + " /first", "1 " + method + " /second"})
					if fmt.Sprint(b.got) != want {
						t.Fatalf("the target saw %q, want %q", b.got, want)
					}
					for _, req := range b.raw {
						if req.Header.Get("Idempotency-Key") == "" || req.Header.Get("X-Idempotency-Key") != "mine" {
							t.Fatalf("keys are missing: %v", req.Header)
						}
						length := req.Header.Get("Content-Length")
						wantsLength := method == "POST" || method == "PUT" || method == "PATCH"
						if value == nil && (length != "" && length != "0" || wantsLength && length != "0") || len(req.TransferEncoding) != 0 {
							t.Fatalf("length %q, encoding %v", length, req.TransferEncoding)
						}
					}
				})
			}
		}
	}
}

// Without the precautions net/http does send twice; should it stop doing so the test above proves nothing.
func TestNetHTTPSendsTwice(t *testing.T) {
	b := newBreaker(t, false)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	for range 2 {
		req, _ := http.NewRequest("POST", "http://"+b.l.Addr().String()+"/", strings.NewReader("x"))
		req.Header.Set("Idempotency-Key", "k")
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.got) != 3 {
		t.Fatalf("the target saw %q", b.got)
	}
}
