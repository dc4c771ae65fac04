package duplex_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/duplex"
)

// An answer that begins before the body has ended is the last of its connection, and what follows is no request; one
// that begins after it leaves the connection to the next request.
func TestAnAnswerBeforeTheEndIsTheLast(t *testing.T) {
	for name, c := range map[string]struct {
		read  bool // all of the body, before the answer
		sent  string
		close bool
	}{
		"after the end":        {true, "Content-Length: 4\r\n\r\nbody", false},
		"after the last chunk": {true, "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", false},
		"before the end":       {false, "Content-Length: 400\r\n\r\nbody", true},
		"before the last chunk": {false, "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
			true},
		"after a broken chunk": {true, "Transfer-Encoding: chunked\r\n\r\nno length\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan string, 4)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests <- r.Method
				x := duplex.Begin(w, r)
				defer x.End()
				if c.read {
					_, _ = io.Copy(io.Discard, x.R.Body)
				}
				fmt.Fprint(x.W, "answer")
			}))
			defer srv.Close()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+c.sent)
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "answer" || resp.Close != c.close {
				t.Errorf("%q, close %v, %v", body, resp.Close, err)
			}
			fmt.Fprint(conn, "DELETE / HTTP/1.1\r\nHost: x\r\n\r\n")
			if next, err := http.ReadResponse(in, nil); (err != nil) != c.close {
				t.Errorf("the next request: %v, %v", next, err)
			}
			if got := <-requests; got != "POST" {
				t.Errorf("%s came first", got)
			}
			if n := len(requests); c.close && n != 0 {
				t.Error("what followed was taken for a request")
			}
		})
	}
}

// Who asks for the end of a connection hears the answer to a body that was not read, and no reset.
func TestAnAnswerBeforeTheEndIsHeard(t *testing.T) {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusRequestEntityTooLarge) })
	srv := httptest.NewServer(duplex.Heard(refuse))
	defer srv.Close()
	for range 20 {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n%050000d", 0)
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 413 ") {
			t.Fatalf("%q, %v", answer, err)
		}
		conn.Close()
	}
}
