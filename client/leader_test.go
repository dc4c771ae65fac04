package client_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// leakCheck fails a test that leaves goroutines behind.
func leakCheck(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// node is an HTTP server that counts its requests, with something in front of its API.
type node struct {
	addr  string // host:port
	srv   *httptest.Server
	calls atomic.Int64
	front atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool] // true: answered
}

// before sets what is asked before the API; nil: nothing.
func (n *node) before(f func(w http.ResponseWriter, r *http.Request) bool) { n.front.Store(&f) }

func (n *node) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.calls.Add(1)
		if f := n.front.Load(); f != nil && *f != nil && (*f)(w, r) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

// startNodes starts nodes of one cluster; the first one leads.
func startNodes(t *testing.T, n int) (*cluster, []*node) {
	t.Helper()
	leakCheck(t)
	cluster := newCluster(t)
	nodes := make([]*node, n)
	for i := range nodes {
		nd := &node{}
		nd.srv = httptest.NewUnstartedServer(nil)
		nd.addr = nd.srv.Listener.Addr().String()
		leader := func() string { // this node's knowledge is always of today
			if l := cluster.leads(); l != nd.addr {
				return l
			}
			return ""
		}
		nd.srv.Config.Handler = nd.serve(api.New(none, api.Options{Workers: cluster.on(nd.addr), Leader: leader}))
		nd.srv.Start()
		t.Cleanup(nd.srv.Close)
		nodes[i] = nd
	}
	cluster.lead(nodes[0].addr)
	return cluster, nodes
}

func newLeader(t *testing.T, nodes []*node, opts ...client.LeaderOption) *client.Leader {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.addr)
	}
	l := client.NewLeader(addrs, opts...)
	t.Cleanup(l.Close)
	return l
}

// deadAddr is an address where nothing listens.
func deadAddr(t *testing.T) string {
	t.Helper()
	return port.Reserve(t)
}

// open opens a session.
func open(t *testing.T, l *client.Leader) string {
	t.Helper()
	r, err := l.Poll(t.Context(), job.Poll{Worker: "w", Secret: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return r.Session
}

func wantCode(t *testing.T, err error, code job.Code) {
	t.Helper()
	if job.CodeOf(err) != code || err == nil {
		t.Errorf("%v (%s), want %s", err, job.CodeOf(err), code)
	}
}

func took(nodes []*node) (out []int64) {
	for _, n := range nodes {
		out = append(out, n.calls.Swap(0))
	}
	return out
}

// All four calls work, in msgpack.
func TestLeaderCalls(t *testing.T) {
	cluster, nodes := startNodes(t, 1)
	nodes[0].before(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Content-Type") != client.MediaMsgpack || r.ProtoMajor != 1 ||
			r.Header["Idempotency-Key"] != nil || r.URL.RawQuery != "group=0" {
			t.Errorf("%s %s %v", r.Proto, r.URL, r.Header)
		}
		return false
	})
	l := newLeader(t, nodes)
	p := job.Poll{Session: open(t, l), Types: []job.Type{job.TypeHTTP}, Free: 1, Wait: job.Duration(10 * time.Second)}
	cluster.add(1)
	reply, err := l.Poll(t.Context(), p)
	if err != nil || len(reply.Runs) != 1 || reply.Session == p.Session || reply.Lease <= 0 {
		t.Fatalf("%+v, %v", reply, err)
	}
	a, session := reply.Runs[0], reply.Session
	at := time.Date(2026, 11, 2, 11, 59, 59, 0, time.UTC).UnixMilli()
	want := job.Assignment{Run: job.RunKey{Job: 1, At: at, Origin: job.OriginSchedule}, JobName: "job-1", Attempt: 1,
		Fence: a.Fence, Key: a.Key, Type: job.TypeHTTP, Payload: json.RawMessage(payload), Timeout: a.Timeout,
		Delivery: "at_least_once", Traceparent: a.Traceparent, ClaimedAt: job.At(apitest.Noon)}
	if !reflect.DeepEqual(a, want) || a.Fence == 0 || a.Key == "" || a.Timeout <= 0 {
		t.Fatalf("%+v, want %+v", a, want)
	}
	ref := job.Ref{Fence: a.Fence}
	beat, err := l.Heartbeat(t.Context(), job.Heartbeat{Session: session, Runs: []job.Ref{ref}})
	if err != nil || len(beat.Runs) != 1 || beat.Runs[0] != (job.Answer{Ref: ref, Status: job.StatusOK}) {
		t.Errorf("%+v, %v", beat, err)
	}
	if out, err := l.Output(t.Context(), job.Output{Session: session, Ref: ref}); err != nil || out.Watched {
		t.Errorf("%+v, %v", out, err)
	}
	result := job.Result{Ref: ref, Outcome: job.OutcomeFailed, Error: "x", StartedAt: a.ClaimedAt,
		FinishedAt: a.ClaimedAt}
	reported, err := l.Report(t.Context(), job.Report{Session: session, Results: []job.Result{result}})
	if err != nil || len(reported.Results) != 1 || reported.Results[0] != (job.Answer{Ref: ref, Status: job.StatusOK}) {
		t.Errorf("%+v, %v", reported, err)
	}
	if h := cluster.history(); len(h) != 1 || h[0].Status != job.RunDead || h[0].Fence != a.Fence ||
		h[0].Error != "x" || h[0].StartedAt != a.ClaimedAt || h[0].FinishedAt != a.ClaimedAt {
		t.Errorf("%+v", h)
	}
	if _, err := l.Poll(t.Context(), job.Poll{Session: session, Leave: true}); err != nil {
		t.Error(err)
	}
	_, err = l.Heartbeat(t.Context(), job.Heartbeat{Session: "x"})
	wantCode(t, err, job.CodeInvalid)
}

// The leader is found through any node, remembered, and found again when it moves.
func TestLeaderMoves(t *testing.T) {
	cluster, nodes := startNodes(t, 3)
	l := newLeader(t, nodes[2:]) // knows one node only
	session := open(t, l)
	if got := took(nodes); got[0] != 1 || got[1] != 0 || got[2] != 1 {
		t.Errorf("the search took %v", got)
	}
	beat := func(want job.Code) {
		t.Helper()
		_, err := l.Heartbeat(t.Context(), job.Heartbeat{Session: session})
		if want != "" {
			wantCode(t, err, want)
		} else if err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		beat("")
	}
	if got := took(nodes); got[0] != 3 || got[2] != 0 {
		t.Errorf("the leader is not remembered: %v", got)
	}
	cluster.lead(nodes[1].addr)
	beat("")
	if got := took(nodes); got[0] != 1 || got[1] != 1 || got[2] != 0 {
		t.Errorf("the move took %v", got)
	}
	beat("")
	if got := took(nodes); got[1] != 1 || got[0] != 0 {
		t.Errorf("the new leader is not remembered: %v", got)
	}
	cluster.lead("")
	beat(job.CodeNoLeader)
	if got := took(nodes); got[1] != 1 || got[2] != 1 {
		t.Errorf("%v", got)
	}
	cluster.lead(nodes[2].addr)
	beat("")
}

// A long poll ends when its leader steps down, and is the next leader's, which answers with a session of its own.
func TestPollMeetsANewLeader(t *testing.T) {
	cluster, nodes := startNodes(t, 2)
	l := newLeader(t, nodes)
	p := job.Poll{Session: open(t, l), Types: []job.Type{job.TypeHTTP}, Free: 1, Wait: job.Duration(time.Minute)}
	polling := make(chan struct{}, 1)
	nodes[0].before(func(http.ResponseWriter, *http.Request) bool { polling <- struct{}{}; return false })
	go func() {
		<-polling
		cluster.lead(nodes[1].addr)
	}()
	r, err := l.Poll(t.Context(), p)
	if err != nil || r.Session == p.Session || len(r.Runs) != 0 || l.Current() != "http://"+nodes[1].addr {
		t.Errorf("%+v, %v", r, err)
	}
}

func hintTo(addr string) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if addr != "" {
			w.Header().Set("Carillon-Leader", addr)
		}
		problem(w, 421, job.CodeNotLeader)
		return true
	}
}

func problem(w http.ResponseWriter, status int, code job.Code) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"t","title":"t","status":%d,"code":%q,"detail":"no"}`, status, code)
}

// A wrong hint costs one try; the others are asked all the same.
func TestWrongHints(t *testing.T) {
	_, nodes := startNodes(t, 3)
	l := newLeader(t, []*node{nodes[1], nodes[2], nodes[0]})
	for name, hint := range map[string]string{"no node there": deadAddr(t), "itself": nodes[1].addr, "none": "",
		"not an address": "::::", "a path": nodes[2].addr + "/x", "another": nodes[2].addr} {
		t.Run(name, func(t *testing.T) {
			nodes[1].before(hintTo(hint))
			nodes[2].before(hintTo("")) // knows nothing
			nodes[0].before(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/api/v1/workers:poll" {
					problem(w, 421, job.CodeNotLeader) // so that the next search begins at the beginning
					return true
				}
				return false
			})
			took(nodes)
			open(t, l)
			if got := took(nodes); got[0] != 1 || got[1] != 1 || got[2] != 1 {
				t.Errorf("took %v", got)
			}
			if _, err := l.Heartbeat(t.Context(), job.Heartbeat{}); err == nil {
				t.Error("no leader")
			}
		})
	}
}

// Nodes that send a worker around in circles are each asked once, and a chain without end is given up.
func TestHintLoopIsBounded(t *testing.T) {
	_, nodes := startNodes(t, 3)
	l := newLeader(t, nodes)
	for i, n := range nodes {
		n.before(hintTo(nodes[(i+1)%3].addr))
	}
	_, err := l.Heartbeat(t.Context(), job.Heartbeat{})
	wantCode(t, err, job.CodeNotLeader)
	if got := took(nodes); got[0] != 1 || got[1] != 1 || got[2] != 1 {
		t.Errorf("took %v", got)
	}

	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8")
	}
	all, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(all.Addr().String())
	var n atomic.Int64
	nodes[0].before(func(w http.ResponseWriter, r *http.Request) bool {
		return hintTo(fmt.Sprintf("127.0.0.%d:%s", n.Add(1)+1, port))(w, r) // always a new one
	})
	srv := &http.Server{Handler: nodes[0].serve(http.NotFoundHandler())}
	go srv.Serve(all) //nolint:errcheck // ends with the test
	defer srv.Close()
	took(nodes)
	_, err = newLeader(t, nodes[:1]).Heartbeat(t.Context(), job.Heartbeat{})
	wantCode(t, err, job.CodeNotLeader)
	if got := took(nodes[:1]); got[0] != 4 {
		t.Errorf("a chain was followed for %d steps", got[0])
	}
}

// A node that is down is passed over, and is not the first to be asked the next time.
func TestNodeDown(t *testing.T) {
	cluster, nodes := startNodes(t, 3)
	l := newLeader(t, nodes)
	session := open(t, l)
	nodes[0].srv.Close()
	// The others do not know yet.
	_, err := l.Heartbeat(t.Context(), job.Heartbeat{Session: session})
	wantCode(t, err, job.CodeUnavailable) // not "not_leader": the session goes on
	if got := took(nodes); got[1] != 1 || got[2] != 1 {
		t.Errorf("took %v", got)
	}
	cluster.lead("")
	_, err = l.Heartbeat(t.Context(), job.Heartbeat{Session: session})
	wantCode(t, err, job.CodeNoLeader)
	cluster.lead(nodes[2].addr)
	open(t, l)
	for _, n := range nodes[1:] {
		n.srv.Close()
	}
	_, err = l.Report(t.Context(), job.Report{Session: session})
	wantCode(t, err, job.CodeUnavailable)
	if !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
}

// What a node says is what the worker's loop gets to see.
func TestLeaderErrors(t *testing.T) {
	_, nodes := startNodes(t, 2)
	l := newLeader(t, nodes)
	for _, tt := range []struct {
		code  job.Code
		asked int64 // nodes
	}{
		{job.CodeSessionUnknown, 1}, {job.CodeStale, 1}, {job.CodeWorkerNameInUse, 1}, {job.CodeWorkerForked, 1},
		{job.CodeInvalid, 1}, {job.CodeInternal, 1}, {job.CodeOutcomeUnknown, 1}, {job.CodeUnauthenticated, 1},
		{job.CodeNotLeader, 2}, {job.CodeNoLeader, 2}, {job.CodeNotReady, 2}, {job.CodeUnavailable, 2},
	} {
		t.Run(string(tt.code), func(t *testing.T) {
			for _, n := range nodes {
				n.before(func(w http.ResponseWriter, _ *http.Request) bool {
					problem(w, wire.StatusOf(tt.code), tt.code)
					return true
				})
			}
			_, err := l.Heartbeat(t.Context(), job.Heartbeat{})
			wantCode(t, err, tt.code)
			var e *job.Error
			if !errors.As(err, &e) || e.Message != "no" {
				t.Errorf("%#v", err)
			}
			if got := took(nodes); got[0]+got[1] != tt.asked {
				t.Errorf("asked %v", got)
			}
		})
	}
	t.Run("a leader that takes over", func(t *testing.T) {
		nodes[0].before(func(w http.ResponseWriter, _ *http.Request) bool {
			problem(w, 503, job.CodeNotReady)
			return true
		})
		nodes[1].before(hintTo(nodes[0].addr))
		_, err := l.Heartbeat(t.Context(), job.Heartbeat{})
		wantCode(t, err, job.CodeNotReady)
	})
	for name, f := range map[string]http.HandlerFunc{
		"something else": http.NotFound,
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+nodes[1].addr+"/x", http.StatusTemporaryRedirect)
		},
		"a proxy": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
		"garbage": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/msgpack")
			fmt.Fprint(w, "garbage")
		},
		"a page": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"half": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			fmt.Fprint(w, "x")
		},
		"a dead line": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, nodes)
			nodes[0].before(func(w http.ResponseWriter, r *http.Request) bool { f(w, r); return true })
			nodes[1].before(hintTo(""))
			took(nodes)
			_, err := l.Heartbeat(t.Context(), job.Heartbeat{})
			wantCode(t, err, job.CodeNotLeader)
			if got := took(nodes); got[0] != 1 || got[1] != 1 {
				t.Errorf("asked %v", got)
			}
			_, err = client.NewLeader([]string{nodes[0].addr}).Heartbeat(t.Context(), job.Heartbeat{})
			wantCode(t, err, job.CodeOutcomeUnknown)
		})
	}
	t.Run("addresses", func(t *testing.T) {
		for _, addrs := range [][]string{{"127.0.0.1:1", "ftp://x"}, {"a b"}, {"unix:/x"}} {
			_, err := client.NewLeader(addrs).Poll(t.Context(), job.Poll{})
			wantCode(t, err, job.CodeInvalid)
		}
	})
}

// hang keeps requests until the test is over, or their client gives up.
func hang(t *testing.T) func(w http.ResponseWriter, r *http.Request) bool {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	return func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-over:
		case <-r.Context().Done():
		}
		return true
	}
}

// A node that takes requests and does not answer is noticed, and the others are asked.
func TestHungNode(t *testing.T) {
	cluster, nodes := startNodes(t, 2)
	l := newLeader(t, nodes)
	l.Hurry(200 * time.Millisecond)
	session := open(t, l)
	nodes[0].before(hang(t))
	cluster.lead(nodes[1].addr)
	for name, call := range map[string]func(context.Context) error{
		"heartbeat": func(ctx context.Context) error {
			_, err := l.Heartbeat(ctx, job.Heartbeat{Session: session})
			return err
		},
		"report": func(ctx context.Context) error { _, err := l.Report(ctx, job.Report{Session: session}); return err },
		"poll": func(ctx context.Context) error {
			_, err := l.Poll(ctx, job.Poll{Session: session, Wait: job.Duration(50 * time.Millisecond)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes[1].before(hintTo(nodes[0].addr))
			wantCode(t, call(t.Context()), job.CodeOutcomeUnknown) // of the one that the other takes for the leader
			nodes[1].before(nil)
			took(nodes)
			if err := call(t.Context()); err != nil {
				t.Error(err)
			}
			if got := took(nodes); got[0] != 0 {
				t.Errorf("the hung node was asked first again: %v", got)
			}

			// The caller's own time limit counts too.
			one := newLeader(t, nodes[:1])
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := one.Heartbeat(ctx, job.Heartbeat{})
			if wantCode(t, err, job.CodeOutcomeUnknown); !strings.Contains(err.Error(), nodes[0].addr) {
				t.Error(err)
			}
		})
	}
}

// A poll that its worker gives up says nothing about the node.
func TestGivenUpPoll(t *testing.T) {
	_, nodes := startNodes(t, 2)
	l := newLeader(t, nodes)
	session := open(t, l)
	polling := make(chan struct{}, 1)
	nodes[0].before(func(http.ResponseWriter, *http.Request) bool { polling <- struct{}{}; return false })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-polling; cancel() }()
	_, err := l.Poll(ctx, job.Poll{Session: session, Wait: job.Duration(time.Minute)})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := l.Current(); got != "http://"+nodes[0].addr {
		t.Errorf("the leader is %q", got)
	}
	if got := took(nodes); got[1] != 0 {
		t.Errorf("another node was asked: %v", got)
	}
}

// Polls that wait do not keep heartbeats and reports from getting through, and connections are used again.
func TestCallsDoNotWaitForEachOther(t *testing.T) {
	_, nodes := startNodes(t, 1)
	var conns sync.Map
	nodes[0].before(func(_ http.ResponseWriter, r *http.Request) bool { conns.Store(r.RemoteAddr, true); return false })
	l := newLeader(t, nodes)
	session := open(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	calls.Go(func() {
		_, err := l.Poll(ctx, job.Poll{Session: session, Wait: job.Duration(time.Minute)})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	var quick sync.WaitGroup
	for i := range 4 {
		quick.Go(func() {
			for n := range 50 {
				if _, err := l.Heartbeat(ctx, job.Heartbeat{Session: session}); err != nil {
					t.Error(err)
				}
				result := job.Result{Ref: job.Ref{Fence: uint64(i*100 + n + 1)}, Outcome: job.OutcomeSucceeded}
				if _, err := l.Report(ctx, job.Report{Session: session, Results: []job.Result{result}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	quick.Wait()
	cancel()
	calls.Wait()
	n := 0
	conns.Range(func(any, any) bool { n++; return true })
	if n > 6 {
		t.Errorf("%d connections for 5 callers", n)
	}
}

// A connection that breaks off after the leader took a report in: net/http, or the worker's loop, reports again, and
// the fence tells that it is not new.
func TestReportTwice(t *testing.T) {
	cluster, nodes := startNodes(t, 1)
	l := newLeader(t, nodes)
	session := open(t, l)
	h := api.New(none, api.Options{Workers: cluster.on(nodes[0].addr)})
	var lose atomic.Int64
	nodes[0].before(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, ":report") && lose.Add(-1) >= 0 {
			h.ServeHTTP(httptest.NewRecorder(), r) // done, but without an answer
			panic(http.ErrAbortHandler)
		}
		return false
	})
	cluster.add(2)
	var runs []job.Assignment
	for len(runs) < 2 {
		r, err := l.Poll(t.Context(), job.Poll{Session: session, Types: []job.Type{job.TypeHTTP}, Free: 2 - len(runs),
			Wait: job.Duration(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		runs, session = append(runs, r.Runs...), r.Session
	}
	report := func(a job.Assignment) (job.ReportReply, error) {
		result := job.Result{Ref: job.Ref{Fence: a.Fence}, Outcome: job.OutcomeSucceeded}
		return l.Report(t.Context(), job.Report{Session: session, Results: []job.Result{result}})
	}
	again := func(reply job.ReportReply, a job.Assignment) bool {
		return len(reply.Results) == 1 && reply.Results[0].Fence == a.Fence && reply.Results[0].Status == job.StatusGone
	}
	// On a connection that was in use before: net/http sends it again.
	lose.Store(1)
	reply, err := report(runs[0])
	if err != nil || !again(reply, runs[0]) {
		t.Errorf("%+v, %v", reply, err)
	}
	// On a new one it does not; the worker's loop does.
	l.Close()
	lose.Store(1)
	if _, err := report(runs[1]); job.CodeOf(err) != job.CodeOutcomeUnknown {
		t.Error(err)
	}
	if reply, err = report(runs[1]); err != nil || !again(reply, runs[1]) {
		t.Errorf("%+v, %v", reply, err)
	}
	for i, r := range cluster.history() {
		if n := cluster.reported[r.Fence]; i >= 2 || r.Status != job.RunSucceeded || n != 2 {
			t.Errorf("%+v, reported %d times", r, n)
		}
	}
}

func TestLeaderTLS(t *testing.T) {
	leakCheck(t)
	cluster := newCluster(t)
	var addrs []string
	var trust *tls.Config
	for range 2 {
		srv := httptest.NewUnstartedServer(nil)
		addr := srv.Listener.Addr().String()
		srv.Config.Handler = api.New(none, api.Options{Workers: cluster.on(addr), Leader: cluster.leads})
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.StartTLS()
		defer srv.Close()
		addrs = append(addrs, addr)
		trust = srv.Client().Transport.(*http.Transport).TLSClientConfig
		srv.Client().CloseIdleConnections()
	}
	cluster.lead(addrs[1])
	trust.NextProtos = []string{"carillon-raft"} // a config that serves both
	l := client.NewLeader(addrs[:1], client.WithTLS(trust))
	defer l.Close()
	session := open(t, l) // the hint is followed under TLS too
	if _, err := l.Heartbeat(t.Context(), job.Heartbeat{Session: session}); err != nil {
		t.Error(err)
	}
	if trust.NextProtos[0] != "carillon-raft" {
		t.Error("the caller's config was changed")
	}
	other := client.NewLeader(addrs, client.WithTLS(nil))
	defer other.Close()
	_, err := other.Heartbeat(t.Context(), job.Heartbeat{})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v", err)
	}
}
