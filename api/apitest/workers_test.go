package apitest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
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
	poll      func(context.Context, job.Poll) (job.PollReply, error)
	heartbeat func(context.Context, job.Heartbeat) (job.HeartbeatReply, error)
	report    func(context.Context, job.Report) (job.ReportReply, error)
	output    func(context.Context, job.Output) (job.OutputReply, error)
}

func (w *workers) Poll(ctx context.Context, q job.Poll) (job.PollReply, error) { return w.poll(ctx, q) }
func (w *workers) Heartbeat(ctx context.Context, q job.Heartbeat) (job.HeartbeatReply, error) {
	return w.heartbeat(ctx, q)
}
func (w *workers) Report(ctx context.Context, q job.Report) (job.ReportReply, error) {
	return w.report(ctx, q)
}
func (w *workers) Output(ctx context.Context, q job.Output) (job.OutputReply, error) {
	return w.output(ctx, q)
}

// failing answers every call with an error.
func failing(err error) *workers {
	return &workers{
		poll:      func(context.Context, job.Poll) (job.PollReply, error) { return job.PollReply{}, err },
		heartbeat: func(context.Context, job.Heartbeat) (job.HeartbeatReply, error) { return job.HeartbeatReply{}, err },
		report:    func(context.Context, job.Report) (job.ReportReply, error) { return job.ReportReply{}, err },
		output:    func(context.Context, job.Output) (job.OutputReply, error) { return job.OutputReply{}, err },
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

// Every message arrives as it was sent, in either format, and so does its answer, in either format. In JSON the answer
// to a poll names the claims.
func TestWorkerMessages(t *testing.T) {
	run := job.RunKey{Job: 1<<63 + 17, At: noon.UnixMilli(), Origin: job.OriginBackfill}
	ref := func(fence uint64) job.Ref { return job.Ref{Fence: fence} }
	var poll job.Poll
	var heartbeat job.Heartbeat
	var report job.Report
	var output job.Output
	polled := func() job.PollReply {
		of := func(fence uint64) job.Ref { return job.Ref{Fence: fence, Run: run} }
		return job.PollReply{Session: "s1.b", Lease: job.Duration(30 * time.Second), Ready: 3, Stop: []job.Stop{{Ref: of(3), Why: job.StopTimeout}, {Ref: of(math.MaxUint64), Why: job.StopCanceled}},
			Watch: []job.Ref{of(4)}, Runs: []job.Assignment{{Run: run, JobName: "nightly", Attempt: 2, Fence: 99, Key: "j_1:17", Type: job.TypeHTTP,
				Payload: json.RawMessage(`{"url":"https://x/?a=1","n":12345678901234567890}`), Timeout: job.Duration(time.Minute), Delivery: "at_most_once", Traceparent: "00-a-b-01", ClaimedAt: job.At(noon)}}}
	}
	// What is answered to whom: who reads JSON gets claims, and nobody the keys of runs besides.
	answered := func(media string) *job.PollReply {
		a := polled()
		named := func(r *job.Ref) {
			if media == wire.MediaJSON {
				r.Claim = job.Ref{Run: r.Run, Fence: r.Fence}.Text()
			}
			r.Run = job.RunKey{}
		}
		named(&a.Stop[0].Ref)
		named(&a.Stop[1].Ref)
		named(&a.Watch[0])
		if media == wire.MediaJSON {
			a.Runs[0].Claim = job.Ref{Run: run, Fence: 99}.Text()
		}
		return &a
	}
	beaten := job.HeartbeatReply{Lease: job.Duration(30 * time.Second), Runs: []job.Answer{{Ref: ref(4), Status: job.StatusStop, Why: job.StopCanceled}}}
	reported := job.ReportReply{Results: []job.Answer{{Ref: ref(99), Status: job.StatusOK, Repeated: true}, {Ref: ref(100), Status: job.StatusGone, Why: "old"}}}
	watched := job.OutputReply{Watched: true}
	w := &workers{
		poll: func(_ context.Context, q job.Poll) (job.PollReply, error) {
			if poll = q; q.From == "" {
				t.Error("a poll came from nowhere")
			}
			poll.From = "" // it is not sent
			return polled(), nil
		},
		heartbeat: func(_ context.Context, q job.Heartbeat) (job.HeartbeatReply, error) {
			heartbeat = q
			return beaten, nil
		},
		report: func(_ context.Context, q job.Report) (job.ReportReply, error) { report = q; return reported, nil },
		output: func(_ context.Context, q job.Output) (job.OutputReply, error) { output = q; return watched, nil },
	}
	for _, tt := range []struct {
		verb      string
		sent, got any
		answer    any
	}{
		{"poll", &job.Poll{Session: "s1.a", Worker: "wörker", Free: 7, Wait: job.Duration(10 * time.Second), Hold: job.Duration(time.Second), Leave: true, Secret: "s", Namespace: "team-a",
			Types: []job.Type{job.TypeHTTP, job.TypeShell}, Tags: map[string]string{"zone": "a"}, Slots: 1280, Version: "v1", Where: "here",
			Node: &job.NodeRef{Cluster: "c", Epoch: 2, Instance: "i", Address: "a:1"}, Shared: true, Told: true}, &poll, answered},
		{"heartbeat", &job.Heartbeat{Session: "s1.a", Runs: []job.Ref{ref(math.MaxUint64), ref(1)}}, &heartbeat, &beaten},
		{"report", &job.Report{Session: "s1.a", Results: []job.Result{{Ref: ref(99), Outcome: job.OutcomeFailed, Permanent: true, TimedOut: true, EgressDenied: true, RetryAfter: job.Duration(time.Hour),
			Error: "status 500: <boom>", Output: "a\nü", StartedAt: job.At(noon), FinishedAt: job.At(noon) + 1}, {Ref: ref(100), Outcome: job.OutcomeReturned}}}, &report, &reported},
		{"output", &job.Output{Session: "s1.a", Ref: ref(99), Offset: 7, Data: []byte("hi")}, &output, &watched},
	} {
		for _, in := range []string{"", "application/json; charset=utf-8", wire.MediaMsgpack} {
			want := wire.MediaJSON
			body, read := text(t, tt.sent), json.Unmarshal
			header := map[string]string{}
			if in != "" {
				header["Content-Type"] = in
			}
			if in == wire.MediaMsgpack {
				want, body, read = in, pack(t, tt.sent), wire.UnmarshalMsgpack
			}
			reflect.ValueOf(tt.got).Elem().SetZero()
			a := serveWith(t, none, api.Options{Workers: w}, "POST", "/api/v1/workers:"+tt.verb, header, body)
			if a.Code != 200 || a.Header().Get("Content-Type") != want {
				t.Fatalf("%s, %q: %d %q %s", tt.verb, in, a.Code, a.Header().Get("Content-Type"), a.Body)
			}
			if !reflect.DeepEqual(tt.got, tt.sent) {
				t.Errorf("%s, %q:\n got %+v\nwant %+v", tt.verb, in, tt.got, tt.sent)
			}
			wanted := tt.answer
			if f, ok := wanted.(func(string) *job.PollReply); ok {
				wanted = f(want)
			}
			answer := reflect.New(reflect.TypeOf(wanted).Elem()).Interface()
			if err := read(a.Body.Bytes(), answer); err != nil || !reflect.DeepEqual(answer, wanted) {
				t.Errorf("%s, %q: %v\n got %+v\nwant %+v", tt.verb, in, err, answer, wanted)
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
			for _, verb := range []string{"poll", "poll?queue=q", "heartbeat", "report?group=7", "output"} {
				for _, media := range []string{wire.MediaJSON, wire.MediaMsgpack} {
					body := `{"runs":[{"fence":1}],"results":[{"fence":1}]}`
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

// Messages of workers to the leader of a group have a limit of their own.
func TestWorkerBodyLimit(t *testing.T) {
	n := empty(t)
	o := api.Options{Workers: n.Options.Workers, MaxBody: 10}
	session := n.Register(t, job.Poll{Worker: "large", Secret: "s", Types: []job.Type{job.TypeHTTP}, Slots: 1}).Session
	beat := func(n int) string {
		return `{"session":"` + session + `","runs":[{"fence":1}],"x":"` + strings.Repeat("x", n) + `"}`
	}
	if w := serveWith(t, none, o, "POST", "/api/v1/workers:heartbeat", nil, beat(4<<20-300)); w.Code != 200 {
		t.Error(w.Code, w.Body)
	}
	for _, verb := range []string{"poll", "heartbeat", "report", "output"} {
		for query, limit := range map[string]string{"": "4194304", "?queue=q": "10"} {
			if verb == "poll" && query == "" {
				limit = "65536"
			}
			w := serveWith(t, none, o, "POST", "/api/v1/workers:"+verb+query, nil, beat(4<<20))
			checkProblem(t, w, job.CodeTooLarge)
			if !strings.Contains(w.Body.String(), limit+" bytes") || strings.Contains(w.Body.String(), "bulk") {
				t.Error(w.Body)
			}
		}
	}
}

// What cannot be meant is refused as a whole, with the field that is wrong, and reaches no leader.
func TestWorkerBadInput(t *testing.T) {
	const good = `{"claim":"c_1.5.m.7"}`
	many := strings.Repeat(good+",", job.MaxItems)
	long := strings.Repeat("x", 1025)
	for _, tt := range []struct {
		call, body string
		code       job.Code
		field      string
	}{
		{"poll", `[]`, job.CodeInvalid, ""},
		{"poll?queue=q", `{"free":3`, job.CodeMalformed, ""},
		{"poll?queue=q", `{"free":-1}`, job.CodeInvalid, "free"},
		{"poll?queue=q", `{"free":1048577}`, job.CodeInvalid, "free"},
		{"poll", `{"free":"x"}`, job.CodeInvalid, "free"},
		{"poll", `{"free":1}`, job.CodeInvalid, "types"},
		{"poll", `{"slots":-1}`, job.CodeInvalid, "slots"},
		{"poll?queue=q", `{"namespace":"other"}`, job.CodeInvalid, "namespace"},
		{"poll?namespace=team-a", `{"namespace":"other"}`, job.CodeInvalid, "namespace"},
		{"poll", `{"namespace":"O T"}`, job.CodeInvalid, "namespace"},
		{"poll", `{"tags":{"k":"` + long + `"}}`, job.CodeInvalid, "tags"},
		{"poll", `{"worker":"` + strings.Repeat("x", 201) + `"}`, job.CodeInvalid, "worker"},
		{"poll?queue=q", `{"worker":"a\u001b[2J"}`, job.CodeInvalid, "worker"},
		{"poll?queue=a%20b", ``, job.CodeInvalid, "queue"},
		{"poll?queue=", ``, job.CodeInvalid, "queue"},
		{"poll?queue=a&queue=b", ``, job.CodeInvalid, "queue"},
		{"heartbeat", ``, job.CodeMalformed, ""},
		{"heartbeat?queue=q", `{}`, job.CodeInvalid, "runs"},
		{"heartbeat", `{"runs":{}}`, job.CodeInvalid, "runs"},
		{"heartbeat", `{"runs":[` + good + `,7]}`, job.CodeInvalid, "runs"},
		{"heartbeat", `{"runs":[{"fence":-7}]}`, job.CodeInvalid, "runs"},
		{"heartbeat", `{"runs":[{"claim":7}]}`, job.CodeInvalid, "runs"},
		{"heartbeat", `{"runs":[` + many + good + `]}`, job.CodeInvalid, "runs"},
		{"report", `{"results":[]}`, job.CodeInvalid, "results"},
		{"report", `{"results":[{"fence":1,"output":{}}]}`, job.CodeInvalid, "results"},
		{"report", `{"results":[` + strings.ReplaceAll(many+good, `"}`, `","outcome":"failed"}`) + `]}`, job.CodeInvalid, "results"},
		{"drop", `{}`, job.CodeNotFound, ""},
	} {
		o := api.Options{Workers: failing(errors.New("the leader was asked"))}
		w := serveWith(t, none, o, "POST", "/api/v1/workers:"+tt.call, nil, tt.body)
		name := tt.call + " " + tt.body[:min(len(tt.body), 80)]
		var p wire.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code != tt.code || p.Field != tt.field {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
			continue
		}
		checkProblem(t, w, tt.code)
	}
}

// What a request says besides its body reaches the leader with it; a claim is read, and what is none makes its item mean
// nothing.
func TestWhatTheLeaderIsAsked(t *testing.T) {
	var poll job.Poll
	var beat job.Heartbeat
	var report job.Report
	var output job.Output
	o := api.Options{Workers: &workers{
		poll: func(_ context.Context, q job.Poll) (job.PollReply, error) {
			poll = q
			return job.PollReply{Runs: []job.Assignment{}}, nil
		},
		heartbeat: func(_ context.Context, q job.Heartbeat) (job.HeartbeatReply, error) {
			beat = q
			return job.HeartbeatReply{Runs: []job.Answer{}}, nil
		},
		report: func(_ context.Context, q job.Report) (job.ReportReply, error) {
			report = q
			return job.ReportReply{Results: []job.Answer{}}, nil
		},
		output: func(_ context.Context, q job.Output) (job.OutputReply, error) {
			output = q
			return job.OutputReply{}, nil
		},
	}}
	tell := func(call, body, want string) {
		t.Helper()
		if w := serveWith(t, none, o, "POST", "/api/v1/workers:"+call, nil, body); w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s", call, w.Code, w.Body)
		}
	}
	const nothing = `{"session":"","lease":"0s","runs":[]}`
	for _, body := range []string{"", "{}", `{"free":1,"namespace":"team-a","types":["http"]}`} {
		tell("poll?queue=mail&namespace=team-a", body, nothing)
		want := job.Poll{Free: 1, Namespace: "team-a", Types: []job.Type{job.TypeQueue}, Tags: map[string]string{"queue": "mail"},
			Queue: job.QueueKey{Namespace: "team-a", Name: "mail"}, From: poll.From}
		if !reflect.DeepEqual(poll, want) {
			t.Errorf("%q: %+v", body, poll)
		}
	}
	tell("poll?queue=mail", `{"free":0,"tags":{"a":"b"}}`, nothing)
	if poll.Free != 0 || poll.Queue.Namespace != job.DefaultNamespace || len(poll.Tags) != 2 || poll.Tags["a"] != "b" {
		t.Errorf("%+v", poll)
	}
	tell("poll", `{"tags":{"queue":"p"}}`, nothing)
	if poll.Free != 0 || poll.Namespace != "" || poll.Queue != (job.QueueKey{}) || poll.Tags["queue"] != "p" {
		t.Errorf("%+v", poll)
	}
	if tell("poll?namespace=team-a", `{}`, nothing); poll.Namespace != "team-a" {
		t.Errorf("%+v", poll)
	}
	run := job.RunKey{Job: 1, At: 5, Origin: job.OriginManual}
	read, none, bare := job.Ref{Claim: "c_1.5.m.7", Run: run, Fence: 7}, job.Ref{Claim: "r_1.5.m"}, job.Ref{Fence: 9}
	const items = `[{"claim":"c_1.5.m.7","fence":3},{"claim":"r_1.5.m","fence":3},{"fence":9}]`
	tell("heartbeat", `{"session":"s","runs":`+items+`}`, `{"lease":"0s","runs":[]}`)
	tell("report?queue=mail", `{"results":`+items+`}`, `{"results":[]}`)
	tell("output", `{"claim":"c_1.5.m.7"}`, `{"watched":false}`)
	if !reflect.DeepEqual(beat.Runs, []job.Ref{read, none, bare}) || output.Ref != read ||
		!reflect.DeepEqual(report.Results, []job.Result{{Ref: read}, {Ref: none}, {Ref: bare}}) {
		t.Errorf("%+v\n%+v\n%+v", beat, report, output)
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
		{"0s", 0, 5 * time.Second, 503}, {"40s", 40 * time.Second, 45 * time.Second, 503}, {"24h", time.Minute, 65 * time.Second, 503},
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
				return job.PollReply{Runs: []job.Assignment{}}, ctx.Err()
			}}
			o := api.Options{Workers: w, RequestTimeout: time.Second}
			begin := time.Now()
			a := serveWith(t, none, o, "POST", "/api/v1/workers:poll", nil, `{"wait":"`+tt.wait+`"}`)
			if took := time.Since(begin); a.Code != 200 || took != tt.given || !strings.Contains(a.Body.String(), `"runs":[]`) {
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
		a := serveWith(t, none, api.Options{Workers: w}, "POST", "/api/v1/workers:report", nil, `{"results":[{"fence":1}]}`)
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

// FuzzWorkers: whatever a worker sends, it gets an answer in the protocol.
func FuzzWorkers(f *testing.F) {
	calls := []string{"poll", "heartbeat?queue=mail", "report", "output", "poll?queue=mail"}
	ref := job.Ref{Fence: 7, Claim: "c_1.5.m.7"}
	for i, m := range []any{
		&job.Poll{Session: "s1.AAAAAAAAAHc", Worker: "w", Free: 5, Types: []job.Type{"http"}, Tags: map[string]string{"a": "b"}, Slots: 1},
		&job.Heartbeat{Session: "s1.AAAAAAAAAHc", Runs: []job.Ref{ref}},
		&job.Report{Results: []job.Result{{Ref: ref, Outcome: job.OutcomeSucceeded, Output: "x", RetryAfter: 5}}},
		&job.Output{Ref: ref, Data: []byte("x")},
		&job.Poll{Worker: "w", Secret: "s"},
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
		w := serveWith(t, none, o, "POST", "/api/v1/workers:"+calls[int(verb)%len(calls)], map[string]string{"Content-Type": media, "Accept": accept}, string(body))
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
