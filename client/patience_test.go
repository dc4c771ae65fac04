package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		{"nobody leads", 4800 * time.Millisecond, nil, 2, " (given up after 2 tries in 9.6s)"},
		{"at once", 0, nil, 4, ""},
		{"one try is all there is time for", 9 * time.Second, nil, 1, ""},
		{"more patience", 4800 * time.Millisecond, []client.Option{client.WithPatience(time.Minute)}, 4, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				h := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					tries++
					time.Sleep(tt.takes)
					const body = `{"status":503,"code":"no_leader","detail":"nobody leads: 2 of 3 voters are unreachable","remedy":"start one of them"}`
					return &http.Response{StatusCode: 503, Status: "503", Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
				})}
				began := time.Now()
				c := client.New("127.0.0.1:1", append(tt.opts, client.WithHTTPClient(h), client.WithBackoff(time.Nanosecond))...)
				_, err := c.RunJob(t.Context(), "a")
				e, ok := err.(*job.Error)
				if !ok || e.Code != job.CodeNoLeader || e.Remedy != "start one of them" || e.Message != "nobody leads: 2 of 3 voters are unreachable"+tt.note {
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
