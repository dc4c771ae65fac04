package apitest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// workers answers each call with what the test says.
type workers struct {
	register  func(context.Context, job.Register) (job.Session, error)
	poll      func(context.Context, job.Poll) (job.PollReply, error)
	heartbeat func(context.Context, job.Heartbeat) (job.HeartbeatReply, error)
	report    func(context.Context, job.Report) (job.ReportReply, error)
}

func (w *workers) Register(ctx context.Context, q job.Register) (job.Session, error) {
	return w.register(ctx, q)
}
func (w *workers) Poll(ctx context.Context, q job.Poll) (job.PollReply, error) { return w.poll(ctx, q) }
func (w *workers) Heartbeat(ctx context.Context, q job.Heartbeat) (job.HeartbeatReply, error) {
	return w.heartbeat(ctx, q)
}
func (w *workers) Output(context.Context, job.Output) (job.OutputReply, error) {
	return job.OutputReply{Watched: true}, nil
}

func (w *workers) Report(ctx context.Context, q job.Report) (job.ReportReply, error) {
	return w.report(ctx, q)
}

// failing answers every call with an error.
func failing(err error) *workers {
	return &workers{
		register:  func(context.Context, job.Register) (job.Session, error) { return job.Session{}, err },
		poll:      func(context.Context, job.Poll) (job.PollReply, error) { return job.PollReply{}, err },
		heartbeat: func(context.Context, job.Heartbeat) (job.HeartbeatReply, error) { return job.HeartbeatReply{}, err },
		report:    func(context.Context, job.Report) (job.ReportReply, error) { return job.ReportReply{}, err },
	}
}

func pack(t testing.TB, v any) string {
	t.Helper()
	b, err := wire.MarshalMsgpack(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every message arrives as it was sent, in either format, and so does its answer, in either format.
func TestWorkerMessages(t *testing.T) {
	ref := job.SessionRef{Worker: "wörker", Incarnation: 1<<40 + 1, Term: 3}
	run := job.RunKey{Job: 1<<63 + 17, At: noon.UnixMilli(), Origin: job.OriginBackfill}
	held := []job.Held{{Run: run, Fence: math.MaxUint64, StartedAt: job.At(noon)}, {Run: run, Fence: 1}}
	var register job.Register
	var poll job.Poll
	var heartbeat job.Heartbeat
	var report job.Report
	session := job.Session{SessionRef: ref, TTL: job.Duration(30 * time.Second)}
	polled := job.PollReply{Cancel: []uint64{3, math.MaxUint64}, Assignments: []job.Assignment{{Number: 13, Term: 3, Run: run, JobName: "nightly", Attempt: 2, Fence: 99, Key: "j_1:17",
		Type: job.TypeHTTP, Payload: json.RawMessage(`{"url":"https://x/?a=1&b=<2>","n":12345678901234567890}`), Timeout: job.Duration(time.Minute), Delivery: "at_most_once", Traceparent: "00-a-b-01", ClaimedAt: job.At(noon)}}}
	beaten := job.HeartbeatReply{Cancel: []uint64{4}}
	reported := job.ReportReply{Acks: []job.Ack{{Fence: 99}, {Fence: 100, Stale: true}}}
	w := &workers{
		register: func(_ context.Context, q job.Register) (job.Session, error) { register = q; return session, nil },
		poll:     func(_ context.Context, q job.Poll) (job.PollReply, error) { poll = q; return polled, nil },
		heartbeat: func(_ context.Context, q job.Heartbeat) (job.HeartbeatReply, error) {
			if heartbeat = q; q.From == "" {
				t.Error("a heartbeat came from nowhere")
			}
			heartbeat.From = "" // it is not sent
			return beaten, nil
		},
		report: func(_ context.Context, q job.Report) (job.ReportReply, error) { report = q; return reported, nil },
	}
	for _, tt := range []struct {
		verb      string
		sent, got any
		answer    any
	}{
		{"register", &job.Register{Worker: "w", Secret: "s", Incarnation: 5, Types: []job.Type{job.TypeHTTP, job.TypeShell}, Tags: map[string]string{"zone": "a"}, Slots: 1280, Held: held, Version: "v1"}, &register, &session},
		{"poll", &job.Poll{Session: ref, Acked: 12, Free: 7, Wait: job.Duration(10 * time.Second)}, &poll, &polled},
		{"heartbeat", &job.Heartbeat{Session: ref, Acked: 12, Free: 7, Held: held, Number: 3, Nonce: 1 << 63}, &heartbeat, &beaten},
		{"report", &job.Report{Session: ref, Results: []job.Result{{Run: run, Fence: 99, Outcome: job.OutcomeFailed, Permanent: true, TimedOut: true, RetryAfter: job.Duration(time.Hour),
			Error: "status 500: <boom>", Output: "a\nü", StartedAt: job.At(noon), FinishedAt: job.At(noon) + 1}, {Run: run, Fence: 100, Outcome: job.OutcomeReturned}}}, &report, &reported},
	} {
		for _, in := range []string{"", "application/json; charset=utf-8", wire.MediaMsgpack} {
			for accept, want := range map[string]string{"": in, "*/*": in, wire.MediaJSON: wire.MediaJSON, wire.MediaMsgpack: wire.MediaMsgpack, "text/html": in,
				"text/html, application/msgpack;q=0.1": wire.MediaMsgpack, "application/msgpack;q=0, application/json": wire.MediaJSON, "application/json, application/msgpack": in} {
				if want != wire.MediaMsgpack {
					want = wire.MediaJSON
				}
				body := text(t, tt.sent)
				if in == wire.MediaMsgpack {
					body = pack(t, tt.sent)
				}
				reflect.ValueOf(tt.got).Elem().SetZero()
				header := map[string]string{"Content-Type": in, "Accept": accept}
				for k, v := range header {
					if v == "" {
						delete(header, k)
					}
				}
				a := serveWith(t, none, api.Options{Workers: w}, "POST", "/api/v1/workers:"+tt.verb, header, body)
				if a.Code != 200 || a.Header().Get("Content-Type") != want {
					t.Fatalf("%s, %q to %q: %d %q %s", tt.verb, in, accept, a.Code, a.Header().Get("Content-Type"), a.Body)
				}
				if !reflect.DeepEqual(tt.got, tt.sent) {
					t.Errorf("%s, %q:\n got %+v\nwant %+v", tt.verb, in, tt.got, tt.sent)
				}
				answer := reflect.New(reflect.TypeOf(tt.answer).Elem()).Interface()
				read := json.Unmarshal
				if want == wire.MediaMsgpack {
					read = wire.UnmarshalMsgpack
				}
				if err := read(a.Body.Bytes(), answer); err != nil || !reflect.DeepEqual(answer, tt.answer) {
					t.Errorf("%s, %q to %q: %v\n got %+v\nwant %+v", tt.verb, in, accept, err, answer, tt.answer)
				}
			}
		}
	}
}

func TestWorkerErrors(t *testing.T) {
	at := func(addr string) func() string { return func() string { return addr } }
	refuse := func(code job.Code) error { return job.Errorf(code, "", "no") }
	for _, tt := range []struct {
		name   string
		o      api.Options
		status int
		code   job.Code
		leader string
	}{
		{"not served", api.Options{Leader: at("h:1")}, 503, job.CodeNotReady, ""},
		{"not leader", api.Options{Workers: failing(refuse(job.CodeNotLeader)), Leader: at("h:1")}, 421, job.CodeNotLeader, "h:1"},
		{"not leader, which is unknown", api.Options{Workers: failing(refuse(job.CodeNotLeader)), Leader: at("")}, 421, job.CodeNotLeader, ""},
		{"not leader, none known", api.Options{Workers: failing(refuse(job.CodeNotLeader))}, 421, job.CodeNotLeader, ""},
		{"no leader here, but there", api.Options{Workers: failing(refuse(job.CodeNoLeader)), Leader: at("[::1]:1")}, 421, job.CodeNotLeader, "[::1]:1"},
		{"no leader at all", api.Options{Workers: failing(refuse(job.CodeNoLeader)), Leader: at("")}, 503, job.CodeNoLeader, ""},
		{"not ready", api.Options{Workers: failing(refuse(job.CodeNotReady)), Leader: at("h:1")}, 503, job.CodeNotReady, ""},
		{"session unknown", api.Options{Workers: failing(refuse(job.CodeSessionUnknown)), Leader: at("h:1")}, 409, job.CodeSessionUnknown, ""},
		{"stale", api.Options{Workers: failing(refuse(job.CodeStale))}, 409, job.CodeStale, ""},
		{"name in use", api.Options{Workers: failing(refuse(job.CodeWorkerNameInUse))}, 409, job.CodeWorkerNameInUse, ""},
		{"took too long", api.Options{Workers: failing(context.DeadlineExceeded)}, 503, job.CodeOutcomeUnknown, ""},
		{"anything else", api.Options{Workers: failing(errors.New("boom"))}, 500, job.CodeInternal, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, verb := range []string{"register", "poll", "heartbeat", "report"} {
				for _, media := range []string{wire.MediaJSON, wire.MediaMsgpack} {
					body := `{}`
					if media == wire.MediaMsgpack {
						body = "\x80"
					}
					w := serveWith(t, none, tt.o, "POST", "/api/v1/workers:"+verb, map[string]string{"Content-Type": media, "Accept": media}, body)
					checkProblem(t, w, tt.code) // always JSON
					if w.Code != tt.status || w.Header().Get("Carillon-Leader") != tt.leader || len(w.Header().Values("Carillon-Leader")) > 1 {
						t.Errorf("%s: %d, %q", verb, w.Code, w.Header().Values("Carillon-Leader"))
					}
				}
			}
		})
	}
}

// Messages of workers have a limit of their own.
func TestWorkerBodyLimit(t *testing.T) {
	n := empty(t)
	o := api.Options{Workers: n.Options.Workers, MaxBody: 10}
	session := text(t, n.Register(t, job.Register{Worker: "large", Secret: "s", Types: []job.Type{job.TypeHTTP}, Slots: 1}).Session)
	beat := func(n int) string {
		return `{"session":` + session + `,"x":"` + strings.Repeat("x", n) + `"}`
	}
	if w := serveWith(t, none, o, "POST", "/api/v1/workers:heartbeat", nil, beat(4<<20-100)); w.Code != 200 {
		t.Error(w.Code, w.Body)
	}
	for _, verb := range []string{"register", "poll", "heartbeat", "report"} {
		w := serveWith(t, none, o, "POST", "/api/v1/workers:"+verb, nil, beat(4<<20))
		checkProblem(t, w, job.CodeTooLarge)
		if !strings.Contains(w.Body.String(), "4194304") || strings.Contains(w.Body.String(), "bulk") {
			t.Error(w.Body)
		}
	}
}

// A poll waits for as long as it says, but not for ever, whatever the limit of other requests is.
func TestPollWaits(t *testing.T) {
	for _, tt := range []struct {
		wait   string
		given  time.Duration // what the leader is asked for
		lasts  time.Duration // of a leader that does not keep to it
		status int
	}{
		{"0s", 0, 5 * time.Second, 503}, {"-3s", 0, 5 * time.Second, 503}, {"40s", 40 * time.Second, 45 * time.Second, 503}, {"24h", time.Minute, 65 * time.Second, 503},
	} {
		synctest.Test(t, func(t *testing.T) {
			var deaf bool
			w := &workers{poll: func(ctx context.Context, p job.Poll) (job.PollReply, error) {
				if time.Duration(p.Wait) != tt.given {
					t.Errorf("%s: the leader is asked to wait for %s", tt.wait, p.Wait)
				}
				if deaf {
					<-ctx.Done()
					return job.PollReply{}, ctx.Err()
				}
				time.Sleep(time.Duration(p.Wait))
				return job.PollReply{}, ctx.Err()
			}}
			o := api.Options{Workers: w, RequestTimeout: time.Second}
			begin := time.Now()
			a := serveWith(t, none, o, "POST", "/api/v1/workers:poll", nil, `{"wait":"`+tt.wait+`"}`)
			if took := time.Since(begin); a.Code != 200 || took != tt.given || strings.TrimSpace(a.Body.String()) != "{}" {
				t.Errorf("%s: %d %s after %s", tt.wait, a.Code, a.Body, took)
			}
			deaf, begin = true, time.Now()
			a = serveWith(t, none, o, "POST", "/api/v1/workers:poll", nil, `{"wait":"`+tt.wait+`"}`)
			if took := time.Since(begin); a.Code != tt.status || took != tt.lasts {
				t.Errorf("%s, deaf: %d after %s", tt.wait, a.Code, took)
			}
		})
	}
}

// The other calls have the limit of all requests.
func TestWorkerRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &workers{report: func(ctx context.Context, _ job.Report) (job.ReportReply, error) {
			<-ctx.Done()
			return job.ReportReply{}, ctx.Err()
		}}
		begin := time.Now()
		a := serveWith(t, none, api.Options{Workers: w}, "POST", "/api/v1/workers:report", nil, `{}`)
		checkProblem(t, a, job.CodeOutcomeUnknown)
		if took := time.Since(begin); took != 30*time.Second {
			t.Error(took)
		}
	})
}

// leakCheck fails a test that leaves goroutines behind.
func leakCheck(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// A poll ends when its worker hangs up, and the leader knows.
func TestPollEndsWithItsClient(t *testing.T) {
	leakCheck(t)
	entered, ended := make(chan struct{}), make(chan error, 1)
	w := &workers{poll: func(ctx context.Context, _ job.Poll) (job.PollReply, error) {
		close(entered)
		<-ctx.Done()
		ended <- ctx.Err()
		return job.PollReply{}, ctx.Err()
	}}
	srv := httptest.NewServer(api.New(none, api.Options{Workers: w}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	r, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+"/api/v1/workers:poll", strings.NewReader(`{"wait":"1m"}`))
	if resp, err := srv.Client().Do(r); err == nil {
		resp.Body.Close()
		t.Error("an answer without a client")
	}
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the leader was not told")
	}
}

// A worker that does not read its answer does not keep a goroutine of the node, and one that reads may go on on its connection
// for longer than a write may take.
func TestWorkerThatDoesNotRead(t *testing.T) {
	b := empty(t).Backend
	leakCheck(t)
	var size atomic.Int64
	w := &workers{poll: func(context.Context, job.Poll) (job.PollReply, error) {
		return job.PollReply{Assignments: []job.Assignment{{Payload: make([]byte, size.Load())}}}, nil
	}}
	done := make(chan struct{}, 10)
	h := api.New(b, api.Options{Workers: w, RequestTimeout: 100 * time.Millisecond})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		done <- struct{}{}
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4 << 10) //nolint:errcheck // only makes the test smaller
	in := bufio.NewReader(conn)
	const poll = "POST /api/v1/workers:poll HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\nContent-Length: 1\r\n\r\n\x80"
	for _, request := range []string{poll, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", poll} {
		io.WriteString(conn, request) //nolint:errcheck // the read tells
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.ContentLength != int64(len(body)) {
			t.Errorf("%d %s", resp.ContentLength, body)
		}
		<-done
		time.Sleep(120 * time.Millisecond) // past the deadline of the answer
	}
	size.Store(16 << 20)
	io.WriteString(conn, poll) //nolint:errcheck // it is not read
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("the node waits for a worker that does not read")
	}
}

// FuzzWorkers: whatever a worker sends, it gets an answer in the protocol.
func FuzzWorkers(f *testing.F) {
	verbs := []string{"register", "poll", "heartbeat", "report"}
	ref := job.SessionRef{Worker: "w", Incarnation: 1, Term: 1}
	run := job.RunKey{Job: 1, At: 5, Origin: job.OriginManual}
	for i, m := range []any{
		&job.Register{Worker: "w", Types: []job.Type{"http"}, Tags: map[string]string{"a": "b"}, Slots: 1, Held: []job.Held{{Run: run, Fence: 7}}},
		&job.Poll{Session: ref, Acked: 1, Free: 5},
		&job.Heartbeat{Session: ref, Held: []job.Held{{Run: run, Fence: 7, StartedAt: 5}}},
		&job.Report{Session: ref, Results: []job.Result{{Run: run, Fence: 7, Outcome: job.OutcomeSucceeded, Output: "x", RetryAfter: 5}}},
	} {
		f.Add(uint8(i), true, wire.MediaJSON, []byte(pack(f, m)))
		f.Add(uint8(i), false, wire.MediaMsgpack, []byte(text(f, m)))
	}
	o := api.Options{Workers: world(f).Options.Workers}
	f.Fuzz(func(t *testing.T, verb uint8, packed bool, accept string, body []byte) {
		if len(body) > 1<<16 || bytes.Contains(body, []byte("wait")) {
			return
		}
		media := wire.MediaJSON
		if packed {
			media = wire.MediaMsgpack
		}
		w := serveWith(t, none, o, "POST", "/api/v1/workers:"+verbs[verb%4], map[string]string{"Content-Type": media, "Accept": accept}, string(body))
		switch {
		case w.Code == 200 && w.Header().Get("Content-Type") == wire.MediaJSON:
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("not JSON: %q", w.Body)
			}
		case w.Code == 200:
			var v map[string]any
			if err := wire.UnmarshalMsgpack(w.Body.Bytes(), &v); err != nil {
				t.Errorf("not msgpack: %v: %q", err, w.Body)
			}
		case w.Code >= 500:
			t.Errorf("%d %s", w.Code, w.Body)
		default:
			checkProblem(t, w, "")
		}
	})
}
