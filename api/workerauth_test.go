package api

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// leader notes what it is asked, and gives out one run.
type leader struct {
	poll job.Poll
	beat job.Heartbeat
}

var (
	ofN1    = job.Session{Worker: "n1", Serial: 1}.String()
	itsRun  = job.RunKey{Job: 1, At: 5, Origin: job.OriginManual}
	itsName = job.Ref{Run: itsRun, Fence: 7}.Text()
)

func (l *leader) Poll(_ context.Context, p job.Poll) (job.PollReply, error) {
	l.poll = p
	ref := job.Ref{Run: itsRun, Fence: 7}
	return job.PollReply{Session: ofN1, Runs: []job.Assignment{{Run: itsRun, Fence: 7}}, Stop: []job.Stop{{Ref: ref}}, Watch: []job.Ref{ref}}, nil
}

func (l *leader) Heartbeat(_ context.Context, h job.Heartbeat) (a job.HeartbeatReply, _ error) {
	l.beat = h
	return a, nil
}

func (*leader) Report(context.Context, job.Report) (a job.ReportReply, _ error) { return a, nil }
func (*leader) Output(context.Context, job.Output) (a job.OutputReply, _ error) { return a, nil }

// tell sends a message of a worker, and reads the answer into out.
func (l *leader) tell(t *testing.T, id *Identity, call, body string, out any) wire.Problem {
	t.Helper()
	r := httptest.NewRequest("POST", prefix+"/workers:"+call, strings.NewReader(body))
	if id != nil {
		r = r.WithContext(WithIdentity(r.Context(), *id))
	}
	w := httptest.NewRecorder()
	New(nil, Options{Workers: l, SessionKeys: func() ([][]byte, error) { return [][]byte{[]byte("key")}, nil }}).ServeHTTP(w, r)
	var p wire.Problem
	if w.Code != 200 {
		out = &p
	}
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			t.Fatalf("%s: %d %s", call, w.Code, w.Body)
		}
	}
	return p
}

// A node has one worker, whose sessions have its name and no seal; it takes part in its groups, and in no queue.
func TestTheWorkerOfANode(t *testing.T) {
	const node = `"node":{"cluster":"c","epoch":1,"instance":"i","address":"a:1"}`
	ofN2 := job.Session{Worker: "n2", Serial: 1}.String()
	for _, c := range []struct {
		call, body string
		ok         bool
	}{
		{"poll", `{"worker":"n1",` + node + `}`, true},
		{"poll?group=3", `{"worker":"n1","session":"` + ofN1 + `",` + node + `}`, true},
		{"poll", `{"worker":"n1"}`, false},
		{"poll", `{"worker":"n2",` + node + `}`, false},
		{"poll", `{"worker":"n1","session":"` + ofN2 + `",` + node + `}`, false},
		{"poll", `{"worker":"n1","session":"mine",` + node + `}`, false},
		{"poll?queue=mail", `{"worker":"n1",` + node + `}`, false},
		{"heartbeat", `{"session":"` + ofN1 + `","runs":[{"fence":7}]}`, true},
		{"heartbeat", `{"session":"` + ofN2 + `","runs":[{"fence":7}]}`, false},
		{"heartbeat", `{"session":"` + ofN1 + `","runs":[{"claim":"` + itsName + `"}]}`, false},
		{"report", `{"results":[{"claim":"` + itsName + `","outcome":"succeeded"}]}`, false},
		{"output", `{"fence":7}`, false},
	} {
		if p := (&leader{}).tell(t, &Identity{Node: "n1"}, c.call, c.body, nil); c.ok != (p.Code == "") || !c.ok && p.Code != job.CodeForbidden {
			t.Errorf("%s %s: %+v", c.call, c.body, p)
		}
	}
}

// What a token is given it has to give back, seal and all; what it says its worker is called is its own name for it.
func TestTheWorkerOfAToken(t *testing.T) {
	l, id := &leader{}, &Identity{Token: "t1", Name: "mailer"}
	id.Worker.Secrets = []string{"one"}
	var a job.PollReply
	if p := l.tell(t, id, "poll?queue=mail", "", &a); p.Code != "" || !regexp.MustCompile(`^worker-[a-z0-9]{8}@t1$`).MatchString(l.poll.Worker) || len(l.poll.Secrets) != 1 {
		t.Errorf("%+v, %+v", p, l.poll)
	}
	claim := a.Runs[0].Claim
	if !strings.HasPrefix(claim, itsName+".") || a.Stop[0].Claim != claim || a.Watch[0].Claim != claim || !strings.HasPrefix(a.Session, ofN1+".") {
		t.Errorf("%+v", a)
	}
	if p := l.tell(t, id, "poll", `{"worker":"w","session":"`+a.Session+`"}`, nil); p.Code != "" || l.poll.Worker != "w@t1" || l.poll.Session != ofN1 {
		t.Errorf("%+v, %+v", p, l.poll)
	}
	if p := l.tell(t, id, "poll", `{"session":"`+a.Session+`"}`, nil); p.Code != "" || l.poll.Worker != "" {
		t.Errorf("%+v, %+v", p, l.poll)
	}
	beat := `{"session":"` + a.Session + `","runs":[{"fence":9},{"claim":"` + claim + `"}]}`
	want := []job.Ref{{Fence: 9}, {Claim: claim, Run: itsRun, Fence: 7}}
	if p := l.tell(t, id, "heartbeat", beat, nil); p.Code != "" || l.beat.Session != ofN1 || l.beat.Runs[0] != want[0] || l.beat.Runs[1] != want[1] {
		t.Errorf("%+v, %+v", p, l.beat)
	}
	other := &Identity{Token: "t2", Name: "other"}
	if p := l.tell(t, other, "heartbeat", beat, nil); p.Code != job.CodeSessionUnknown {
		t.Errorf("%+v", p)
	}
	if p := l.tell(t, other, "heartbeat", `{"runs":[{"fence":9},{"claim":"`+claim+`"}]}`, nil); p.Code != job.CodeForbidden || p.Field != "claim" {
		t.Errorf("%+v", p)
	}
	if p := l.tell(t, other, "output", `{"claim":"`+itsName+`"}`, nil); p.Code != job.CodeForbidden || p.Field != "claim" {
		t.Errorf("%+v", p)
	}
	if p := l.tell(t, other, "poll", `{"worker":"`+strings.Repeat("x", maxWorkerName+1)+`"}`, nil); p.Code != job.CodeInvalid || p.Field != "worker" {
		t.Errorf("%+v", p)
	}
	// Who is not asked for a token has no seals either.
	if l.tell(t, nil, "poll", `{"types":["http"],"free":1}`, &a); a.Session != ofN1 || a.Runs[0].Claim != itsName || l.poll.Worker != "" {
		t.Errorf("%+v", a)
	}
}

// A token for queues is for runs of the type queue, unless it says more: those of other types are in no queue.
func TestQueuesOfATokenAreForQueueRuns(t *testing.T) {
	for _, c := range []struct {
		types, queues []string
		asks          job.Type
		ok            bool
	}{
		{nil, []string{"mail"}, job.TypeQueue, true},
		{nil, []string{"mail"}, job.TypeHTTP, false},
		{[]string{"queue", "http"}, []string{"mail"}, job.TypeHTTP, true},
		{[]string{"queue"}, nil, job.TypeHTTP, false},
		{nil, nil, job.TypeHTTP, true},
	} {
		id := &Identity{Name: "mailer"}
		id.Worker.Types, id.Worker.Queues = c.types, c.queues
		err := id.grants(&job.Poll{Worker: "w", Free: 1, Types: []job.Type{c.asks}})
		if c.ok != (err == nil) || err != nil && job.CodeOf(err) != job.CodeForbidden {
			t.Errorf("types %v, queues %v, asks for %s: %v", c.types, c.queues, c.asks, err)
		}
	}
}
