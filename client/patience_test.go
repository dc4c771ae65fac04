package client_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A node without a majority waits for a leader before it says that there is none. The client tries again, but a command at a terminal has
// its answer within ten seconds, and it says what was tried.
func TestPatience(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes time.Duration
		opts  []client.Option
		tries int
		note  string
	}{
		{"no leader", 4800 * time.Millisecond, nil, 2, " (gave up after 2 tries in 9.6s)"},
		{"at once", 0, nil, 4, ""},
		{"one try is all there is time for", 9 * time.Second, nil, 1, ""},
		{"more patience", 4800 * time.Millisecond, []client.Option{client.WithTimeout(time.Minute)}, 4, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				h := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					tries++
					time.Sleep(tt.takes)
					const body = `{"status":503,"code":"no_leader","detail":"no leader: 2 of 3 voters are unreachable","remedy":"start one of them"}`
					return &http.Response{StatusCode: 503, Status: "503", Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
				})}
				began := time.Now()
				c := client.New("127.0.0.1:1", append(tt.opts, client.WithHTTPClient(h), client.WithBackoff(time.Nanosecond))...)
				_, err := c.RunJob(t.Context(), "a")
				e, ok := err.(*job.Error)
				if !ok || e.Code != job.CodeNoLeader || e.Remedy != "start one of them" || e.Message != "no leader: 2 of 3 voters are unreachable"+tt.note {
					t.Errorf("%#v", err)
				}
				if tries != tt.tries {
					t.Errorf("%d tries", tries)
				}
				if spent := time.Since(began); len(tt.opts) == 0 && spent > 10*time.Second {
					t.Errorf("it took %s", spent)
				}
			})
		})
	}
}

// A connection broke off after the request was sent, and then no node could be reached: whether the request was done stays unknown, whatever
// is certain about the later tries.
func TestUnknownOutcomeStaysUnknown(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	answer := func(status int, code job.Code) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			body := `{"code":"` + string(code) + `","detail":"no"}`
			return &http.Response{StatusCode: status, Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
	}
	fail := func(err error) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	for _, tt := range []struct {
		name  string
		tries []func(*http.Request) (*http.Response, error)
		want  job.Code
	}{
		{"then no node is there", []func(*http.Request) (*http.Response, error){fail(io.ErrUnexpectedEOF), fail(refused), fail(refused), fail(refused)}, job.CodeOutcomeUnknown},
		{"then there is no leader", []func(*http.Request) (*http.Response, error){fail(refused), answer(503, job.CodeOutcomeUnknown), answer(503, job.CodeNoLeader), fail(refused)}, job.CodeOutcomeUnknown},
		{"then it has no room", []func(*http.Request) (*http.Response, error){fail(io.ErrUnexpectedEOF), answer(503, job.CodeUnavailable)}, job.CodeOutcomeUnknown},
		{"then it is refused", []func(*http.Request) (*http.Response, error){fail(io.ErrUnexpectedEOF), answer(409, job.CodeState)}, job.CodeState},
		{"no node was ever there", []func(*http.Request) (*http.Response, error){fail(refused), fail(refused), fail(refused), fail(refused)}, job.CodeUnavailable},
	} {
		n := 0
		h := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			n++
			return tt.tries[n-1](r)
		})}
		c := client.New("127.0.0.1:1", client.WithHTTPClient(h), client.WithBackoff(time.Nanosecond))
		if _, err := c.RunJob(t.Context(), "a"); job.CodeOf(err) != tt.want || n != len(tt.tries) {
			t.Errorf("%s: %v after %d tries", tt.name, err, n)
		}
	}
}

// The node does what it is asked and dies before it answers, over a connection that was used before. net/http asks again by itself and finds
// no node; the answer is about both.
func TestNodeDiesAfterTheDeed(t *testing.T) {
	inner := apitest.Start(t).Handler()
	var asked atomic.Int32
	var node *httptest.Server
	node = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			inner.ServeHTTP(w, r)
			return
		}
		asked.Add(1)
		node.Listener.Close()
		panic(http.ErrAbortHandler)
	}))
	defer node.Close()
	c := client.New(node.URL, client.WithBackoff(time.Nanosecond))
	if _, err := c.ListJobs(t.Context(), client.JobQuery{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CancelJob(t.Context(), "a"); job.CodeOf(err) != job.CodeOutcomeUnknown || asked.Load() != 1 {
		t.Errorf("%v, after being asked %d times", err, asked.Load())
	}
	if _, err := c.CancelJob(t.Context(), "a"); job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("no node was there from the beginning: %v", err)
	}
}
