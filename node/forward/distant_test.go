package forward

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// place is a node that has a replica of a group, as far as HTTP shows.
type place struct {
	*httptest.Server
	leads atomic.Bool
	asked atomic.Int32 // for what only a leader answers
}

func newPlace(t *testing.T, name string) *place {
	p := &place{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(HeaderForwarded) != "here" || r.Header.Get(wire.GroupHeader) != "2" {
			t.Errorf("forwarded by %q to group %q", r.Header.Get(HeaderForwarded), r.Header.Get(wire.GroupHeader))
		}
		if kindOf(r) == proxyAgain {
			if p.asked.Add(1); !p.leads.Load() {
				api.WriteError(w, job.Errorf(job.CodeNotLeader, "", "not me"))
				return
			}
		}
		io.Copy(w, io.MultiReader(strings.NewReader(name+" "), r.Body))
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *place) addr() string { return p.Listener.Addr().String() }

// A node without a replica finds the leader when it is asked for something, and the next one when that has changed; what
// any replica can answer, one does that is there; and what was forwarded goes no further.
func TestForwardWithoutAReplica(t *testing.T) {
	a, b, gone := newPlace(t, "a"), newPlace(t, "b"), httptest.NewServer(nil)
	gone.Close()
	var asks atomic.Int32
	tr := NewDistant(TrackerOptions{Self: "here", Interval: time.Hour}, func(context.Context) (string, string) {
		asks.Add(1)
		for id, p := range map[string]*place{"a": a, "b": b} {
			if p.leads.Load() {
				return id, p.addr()
			}
		}
		return "", ""
	})
	defer tr.Leave()
	f := New(Options{Self: "here", Group: 2, Tracker: tr, Logger: slog.New(slog.DiscardHandler),
		Having: func() []string { return []string{gone.Listener.Addr().String(), a.addr(), b.addr()} },
		Dial: func(timeout, _ time.Duration) func(context.Context, string, string) (net.Conn, error) {
			return (&net.Dialer{Timeout: timeout}).DialContext
		}})
	defer f.Close()
	do := func(method, path, body string, header ...string) (int, string, http.Header) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		return w.Code, w.Body.String(), w.Header()
	}
	expect := func(what string, status int, text string, got int, body string) {
		t.Helper()
		if got != status || !strings.HasPrefix(body, text) {
			t.Errorf("%s: %d %s", what, got, body)
		}
	}
	status, body, _ := do("GET", "/api/v1/jobs?stale=true", "")
	expect("a stale read while none leads", 200, "a", status, body)
	status, body, _ = do("POST", "/api/v1/workers:poll", "{}")
	if expect("a worker while none leads", 503, "", status, body); !strings.Contains(body, "group 2: ") {
		t.Errorf("a worker is not told which group none leads: %s", body)
	}
	a.leads.Store(true)
	status, body, _ = do("POST", "/api/v1/jobs", "x")
	expect("a create", 200, "a x", status, body)
	n := asks.Load()
	status, body, _ = do("POST", "/api/v1/jobs", "y")
	if expect("another", 200, "a y", status, body); asks.Load() != n {
		t.Error("the others were asked again who leads")
	}
	a.leads.Store(false)
	b.leads.Store(true)
	status, body, _ = do("POST", "/api/v1/jobs", "z")
	expect("a create after the leader changed", 200, "b z", status, body)
	status, body, _ = do("GET", "/api/v1/events", "")
	expect("events", 200, "b", status, body)
	status, body, h := do("POST", "/api/v1/workers:poll", "{}")
	if expect("a worker", 421, "", status, body); h.Get(wire.LeaderHeader) != b.addr() {
		t.Errorf("a worker is told of %q", h.Get(wire.LeaderHeader))
	}
	asked := b.asked.Load()
	status, body, _ = do("POST", "/api/v1/jobs", "w", HeaderForwarded, "there")
	expect("what was forwarded", 421, "", status, body)
	status, body, _ = do("GET", "/api/v1/jobs?stale=true", "", HeaderForwarded, "there")
	if expect("a stale read that was forwarded", 421, "", status, body); b.asked.Load() != asked {
		t.Error("it was forwarded again")
	}
}
