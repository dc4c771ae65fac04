package forward

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixedRaft is a raft that names one leader and never another.
type fixedRaft struct{ id, addr string }

func (r fixedRaft) LeaderWithID() (raft.ServerAddress, raft.ServerID) {
	return raft.ServerAddress(r.addr), replica.ID(r.id, replica.First)
}
func (r fixedRaft) State() raft.RaftState             { return raft.Follower }
func (r fixedRaft) LastContact() time.Time            { return time.Time{} }
func (r fixedRaft) RegisterObserver(*raft.Observer)   {}
func (r fixedRaft) DeregisterObserver(*raft.Observer) {}

// newForwarder is that of a node n1 whose raft names a leader.
func newForwarder(t *testing.T, leader Raft, local http.Handler) *Forwarder {
	tr := NewTracker(TrackerOptions{Self: "n1"})
	tr.Watch(leader)
	f := New(Options{Self: "n1", Tracker: tr, Local: local, Logger: slog.New(slog.DiscardHandler),
		ErrorLog: log.New(io.Discard, "", 0),
		Dial: func(timeout, keepAlive time.Duration) func(context.Context, string, string) (net.Conn, error) {
			return (&net.Dialer{Timeout: timeout, KeepAlive: keepAlive}).DialContext
		}})
	t.Cleanup(f.Close)
	return f
}

// A worker that names a queue is carried to the leader, and a poll is not repeated. Others ask the leader themselves.
func TestKindsOfRequests(t *testing.T) {
	for target, want := range map[string]kind{
		"POST /api/v1/workers:poll": answerHere, "POST /api/v1/workers:report?group=3": answerHere,
		"POST /api/v1/workers:poll?queue=q": proxyPoll, "POST /api/v1/workers:heartbeat?namespace=n&queue=q": proxyAgain,
		"POST /api/v1/workers:report?queue=": proxyAgain, "OPTIONS /api/v1/workers:poll?queue=q": answerHere,
		"POST /api/v1/jobs": proxyAgain, "GET /api/v1/jobs?stale=true": answerStale, "GET /healthz": answerHere,
	} {
		method, path, _ := strings.Cut(target, " ")
		if got := kindOf(httptest.NewRequest(method, path, nil)); got != want {
			t.Errorf("%s is of kind %d, want %d", target, got, want)
		}
	}
}

// A leader does what it is asked, and dies before it answers, over a connection that was used before. net/http asks
// again by itself if the request has a key and no body, and finds no node. That is no reason to say that nothing was
// changed.
func TestLeaderDiesAfterTheDeed(t *testing.T) {
	for name, headers := range map[string]map[string]string{"the client's key": {"Idempotency-Key": "mine"},
		"none": nil} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			var leader *httptest.Server
			leader = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1); r.Method == http.MethodGet {
					return
				}
				leader.Listener.Close()
				panic(http.ErrAbortHandler)
			}))
			defer leader.Close()
			f := newForwarder(t, fixedRaft{"n2", leader.Listener.Addr().String()}, nil)
			l := f.t.Leader()

			read := &request{f: f, w: httptest.NewRecorder(),
				r: httptest.NewRequest(http.MethodGet, "/api/v1/jobs/a", nil)}
			if !read.sendToLeader(l) {
				t.Fatal("the leader did not answer a read")
			}
			r := httptest.NewRequest(http.MethodPost, "/api/v1/jobs/a:cancel", nil)
			for k, v := range headers {
				r.Header.Set(k, v)
			}
			c := &request{f: f, w: httptest.NewRecorder(), r: r, key: "k"}
			if c.sendToLeader(l) || !c.sent || asked.Load() != 2 {
				t.Errorf("asked %d times, and taken for something that never left (%v)", asked.Load(), c.err)
			}
			without := &request{f: f, w: httptest.NewRecorder(), r: r, key: "k"}
			if without.sendToLeader(l) || without.sent {
				t.Error("no node was there from the beginning, and it is taken for sent")
			}
		})
	}
}

// A stream whose leader is none any more before it has answered: who asked any node for it hears that no node leads,
// and not which does not.
func TestStreamLosesItsLeaderEarly(t *testing.T) {
	const line = `{"name":"l1","type":"queue","schedule":"@manual","payload":{"queue":"q"}}` + "\n"
	check := func(what string, w *httptest.ResponseRecorder) {
		t.Helper()
		if p := w.Body.String(); w.Code != 503 || !strings.Contains(p, string(job.CodeNoLeader)) ||
			w.Header().Get(wire.LeaderHeader) != "" ||
			!strings.Contains(p, "the leadership changed") {
			t.Errorf("%s: %d %v %s", what, w.Code, w.Header(), p)
		}
	}
	third := fixedRaft{"n3", "127.0.0.1:9"}
	follower := httptest.NewServer(newForwarder(t, third, http.NotFoundHandler()))
	defer follower.Close()
	for _, method := range []string{"POST", "GET"} {
		path := map[string]string{"POST": "/api/v1/jobs:bulk", "GET": "/api/v1/runs:export"}[method]
		ask := func() *http.Request {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(line))
			r.Header.Set("Content-Type", "application/x-ndjson")
			return r
		}
		// News of the election have not come: it is sent to a node that does not lead.
		w := httptest.NewRecorder()
		newForwarder(t, fixedRaft{"n2", follower.Listener.Addr().String()}, nil).ServeHTTP(w, ask())
		check(method+" sent to a follower", w)
		// This node leads when it comes, and does not when it is looked at.
		w = httptest.NewRecorder()
		lost := newForwarder(t, fixedRaft{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.LeaderHeader, third.addr)
			api.WriteError(w, errNotLeader(Leader{ID: third.id, Addr: third.addr}))
		}))
		lost.t.SetEpoch(&Epoch{Term: 1})
		lost.ServeHTTP(w, ask())
		check(method+" at a leader that was", w)
		// Everything else comes through as it is.
		w = httptest.NewRecorder()
		other := newForwarder(t, fixedRaft{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			api.WriteError(w, job.Errorf(job.CodeOutcomeUnknown, "", "half of it"))
		}))
		other.t.SetEpoch(&Epoch{Term: 1})
		other.ServeHTTP(w, ask())
		if w.Code != 503 || !strings.Contains(w.Body.String(), "half of it") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// A token may be revoked before its request's body is read: the deadline of the body takes the place of the one that
// ends the request, so that no goroutine waits for a body that may never come.
func TestNoBodyIsReadOfARevokedToken(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(job.Errorf(job.CodeUnauthenticated, "", "revoked"))
	body := &readNote{}
	local := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		api.WriteError(w, err)
	})
	w := httptest.NewRecorder()
	newForwarder(t, fixedRaft{"n2", "127.0.0.1:1"}, local).ServeHTTP(w,
		httptest.NewRequestWithContext(ctx, "POST", "/api/v1/jobs", body))
	if w.Code != http.StatusUnauthorized || body.read {
		t.Errorf("%d %s; read: %v", w.Code, w.Body, body.read)
	}
}

// readNote notes that it was read.
type readNote struct{ read bool }

func (b *readNote) Read([]byte) (int, error) { b.read = true; return 0, io.EOF }
