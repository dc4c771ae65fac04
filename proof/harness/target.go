package harness

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Seen is one request as the target saw it.
type Seen struct {
	Token    string // the path of the URL: says for which job of the test it is, whatever the headers say
	From     string // the address that it came from
	Arrived  time.Time
	Answered time.Time // zero: the caller was gone before the answer
	Gone     time.Time // when it was seen to be gone
	Status   int

	Key         string
	Job         string
	Run         string
	ScheduledAt string
	Attempt     int
	Fence       uint64
}

// Target is what http jobs call: it writes down every request.
type Target struct {
	URL string

	server  *httptest.Server
	behave  atomic.Pointer[func(Seen) (time.Duration, int)]
	flying  atomic.Int64
	arrived atomic.Int64
	done    atomic.Int64
	mu      sync.Mutex
	seen    []Seen
}

// NewTarget starts a target that answers 200 at once.
func NewTarget(tb testing.TB) *Target {
	tb.Helper()
	return NewTargetAt(tb, "127.0.0.1")
}

// NewTargetAt starts one on an address of this machine.
func NewTargetAt(tb testing.TB, host string) *Target {
	tb.Helper()
	t := &Target{}
	t.Behave(func(Seen) (time.Duration, int) { return 0, http.StatusOK })
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		tb.Fatal(err)
	}
	t.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: t}}
	t.server.Start()
	t.URL = t.server.URL
	tb.Cleanup(func() {
		t.server.CloseClientConnections()
		t.server.Close()
	})
	return t
}

// Behave sets how long the target takes for a request and with what it answers.
func (t *Target) Behave(fn func(Seen) (latency time.Duration, status int)) { t.behave.Store(&fn) }

func (t *Target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := r.Header
	s := Seen{Token: strings.TrimPrefix(r.URL.Path, "/"), Arrived: time.Now(), Key: h.Get("Idempotency-Key"),
		Job: h.Get("Carillon-Job"),
		Run: h.Get("Carillon-Run"), ScheduledAt: h.Get("Carillon-Scheduled-At")}
	s.From, _, _ = net.SplitHostPort(r.RemoteAddr)
	s.Attempt, _ = strconv.Atoi(h.Get("Carillon-Attempt")) // 0 is refused by the audit
	s.Fence, _ = strconv.ParseUint(h.Get("Carillon-Fence"), 10, 64)
	t.mu.Lock()
	i := len(t.seen)
	t.seen = append(t.seen, s)
	t.mu.Unlock()
	t.arrived.Add(1)
	t.flying.Add(1)
	defer t.flying.Add(-1)

	latency, status := (*t.behave.Load())(s)
	if latency > 0 {
		timer := time.NewTimer(latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			t.mu.Lock()
			t.seen[i].Gone = time.Now()
			t.mu.Unlock()
			return
		}
	}
	// Before the answer: with it, it is written down.
	t.mu.Lock()
	t.seen[i].Answered, t.seen[i].Status = time.Now(), status
	t.mu.Unlock()
	t.done.Add(1)
	w.WriteHeader(status)
}

// Seen is every request so far, in the order of arrival.
func (t *Target) Seen() []Seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Seen(nil), t.seen...)
}

// InFlight is how many requests are being answered now, Arrived and Done how many came and were answered.
func (t *Target) InFlight() int { return int(t.flying.Load()) }

// Arrived is how many requests came so far.
func (t *Target) Arrived() int { return int(t.arrived.Load()) }

// Done is how many requests were answered so far.
func (t *Target) Done() int { return int(t.done.Load()) }

// At is the scheduled time in the request's headers.
func (s Seen) At() job.Instant {
	at, err := time.Parse(time.RFC3339Nano, s.ScheduledAt)
	if err != nil {
		return 0
	}
	return job.At(at)
}
