package apitest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
)

// pulls answers pull workers, and counts how often it was asked.
type pulls struct{ calls int }

func (p *pulls) PullPoll(_ context.Context, q job.PullPoll) (job.PullReply, error) {
	p.calls++
	return job.PullReply{Worker: "w", Session: "s", Lease: job.Duration(30e9), Runs: []job.PullRun{{RunID: "r_1.5.m", JobID: 1, Namespace: q.Queue.Namespace, Queue: q.Queue.Name, ScheduledAt: 5, Attempt: 1,
		Fence: 7, Key: "k", Data: fmt.Appendf(nil, `{"max":%d}`, q.Max), Delivery: "at_least_once"}}}, nil
}

func (p *pulls) PullHeartbeat(_ context.Context, b job.PullBeat) (job.PullAnswers, error) {
	p.calls++
	return job.PullAnswers{Runs: []job.PullAnswer{{PullRef: b.Runs[0], Status: job.PullCanceling, Why: "canceled"}}}, nil
}

func (p *pulls) PullReport(_ context.Context, r job.PullReport) (job.PullAnswers, error) {
	p.calls++
	return job.PullAnswers{Runs: []job.PullAnswer{{PullRef: r.Runs[0].PullRef, Status: job.PullOK, Repeated: !r.Failed}}}, nil
}

// What cannot be meant is refused as a whole, with the place in it that is wrong, and reaches no leader.
func TestPullBadInput(t *testing.T) {
	const good = `{"run_id":"r_1.5.m","fence":7}`
	many := strings.Repeat(good+",", job.MaxPullRuns)
	for _, tt := range []struct {
		verb, body string
		status     int
		code       job.Code
		field      string
	}{
		{"poll", `[]`, 400, job.CodeMalformed, ""},
		{"poll", `{"max":3`, 400, job.CodeMalformed, ""},
		{"poll", `{"max":-1}`, 400, job.CodeInvalid, "max"},
		{"poll", `{"max":1001}`, 400, job.CodeInvalid, "max"},
		{"poll", `{"max":"x"}`, 400, job.CodeInvalid, "max"},
		{"poll", `{"wait":"61s"}`, 400, job.CodeInvalid, "wait"},
		{"poll", `{"wait":10}`, 400, job.CodeInvalid, "wait"},
		{"poll", `{"queue":"q"}`, 400, job.CodeUnknownField, "queue"},
		{"poll", `{"tags":{"queue":"p"}}`, 400, job.CodeInvalid, "tags.queue"},
		{"poll", `{"worker":"` + strings.Repeat("x", 201) + `"}`, 400, job.CodeInvalid, "worker"},
		{"poll", `{"worker":"a\u001b[2J"}`, 400, job.CodeInvalid, "worker"},
		{"poll", `{"held":[{"run_id":"r_1.5.m"}]}`, 400, job.CodeInvalid, "held[0].fence"},
		{"heartbeat", ``, 400, job.CodeMalformed, ""},
		{"heartbeat", `{}`, 400, job.CodeInvalid, "runs"},
		{"heartbeat", `{"runs":[]}`, 400, job.CodeInvalid, "runs"},
		{"heartbeat", `{"runs":{}}`, 400, job.CodeInvalid, "runs"},
		{"heartbeat", `{"runs":[` + good + `,{"run_id":"nope","fence":7}]}`, 400, job.CodeInvalid, "runs[1].run_id"},
		{"heartbeat", `{"runs":[` + good + `,{"run_id":"r_1.5.m","fence":-7}]}`, 400, job.CodeInvalid, "runs[1].fence"},
		{"heartbeat", `{"runs":[` + good + `,7]}`, 400, job.CodeInvalid, "runs[1]"},
		{"heartbeat", `{"runs":[` + good + `,` + good + `]}`, 400, job.CodeInvalid, "runs[1]"},
		{"heartbeat", `{"runs":[` + good + `,{"claim":"c_1.5.m.0.7"}]}`, 400, job.CodeInvalid, "runs[1]"},
		{"heartbeat", `{"runs":[{"claim":"r_1.5.m"}]}`, 400, job.CodeInvalid, "runs[0].claim"},
		{"heartbeat", `{"runs":[{"claim":"c_1.5.m.1.7"}]}`, 400, job.CodeInvalid, "runs[0].claim"},
		{"heartbeat", `{"runs":[{"claim":"c_1.5.m.0.7","fence":8}]}`, 400, job.CodeInvalid, "runs[0].claim"},
		{"heartbeat", `{"runs":[{"claim":"c_1.5.m.0.7","run_id":"r_1.6.m"}]}`, 400, job.CodeInvalid, "runs[0].claim"},
		{"heartbeat", `{"runs":[{"claim":7}]}`, 400, job.CodeInvalid, "runs[0].claim"},
		{"heartbeat", `{"runs":[` + many + good + `]}`, 400, job.CodeInvalid, "runs"},
		{"complete", `{"runs":[` + good + `,{"run_id":"r_1.6.m","fence":8,"error":"e"}]}`, 400, job.CodeUnknownField, "runs[1].error"},
		{"complete", `{"runs":[` + good + `,{"run_id":"r_1.6.m","fence":8,"output":{}}]}`, 400, job.CodeInvalid, "runs[1].output"},
		{"complete", `{"runs":[{"run_id":"r_1.5.m","fence":7,"output":"` + strings.Repeat("x", 1<<20) + `"}]}`, 413, job.CodeTooLarge, ""},
		{"fail", `{"runs":[` + good + `]}`, 400, job.CodeInvalid, "runs[0].error"},
		{"fail", `{"runs":[{"run_id":"r_1.5.m","fence":7,"error":"e","delay":"-1s"}]}`, 400, job.CodeInvalid, "runs[0].delay"},
		{"fail", `{"runs":[{"run_id":"r_1.5.m","fence":7,"error":"e","delay":"soon"}]}`, 400, job.CodeInvalid, "runs[0].delay"},
		{"fail", `{"runs":[{"run_id":"r_1.5.m","fence":7,"error":"e","unstarted":true}]}`, 400, job.CodeInvalid, "runs[0].unstarted"},
		{"drop", `{}`, 404, job.CodeNotFound, ""},
	} {
		p := &pulls{}
		w := serveWith(t, none, api.Options{Pull: p}, "POST", "/api/v1/queues/q:"+tt.verb, nil, tt.body)
		name := tt.verb + " " + tt.body[:min(len(tt.body), 80)]
		if w.Code != tt.status || p.calls != 0 {
			t.Errorf("%s: %d, %d calls: %s", name, w.Code, p.calls, w.Body)
			continue
		}
		checkProblem(t, w, tt.code)
		if tt.field != "" && !strings.Contains(w.Body.String(), fmt.Sprintf(`"field":%q`, tt.field)) {
			t.Errorf("%s: the field should be %s: %s", name, tt.field, w.Body)
		}
	}
	w := serveWith(t, none, api.Options{Pull: &pulls{}}, "POST", "/api/v1/queues/a%20b:poll", nil, "")
	if w.Code != 400 || !strings.Contains(w.Body.String(), `"field":"queue"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := serveWith(t, none, api.Options{}, "POST", "/api/v1/queues/q:poll", nil, ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A claim stands for its run and fence; the answer has all three.
func TestPullByClaim(t *testing.T) {
	for verb, body := range map[string]string{
		"heartbeat": `{"runs":[{"claim":"c_1.5.m.0.7"}]}`,
		"complete":  `{"runs":[{"claim":"c_1.5.m.0.7"}]}`,
		"fail":      `{"runs":[{"claim":"c_1.5.m.0.7","run_id":"r_1.5.m","fence":7,"error":"e"}]}`,
	} {
		w := serveWith(t, none, api.Options{Pull: &pulls{}}, "POST", "/api/v1/queues/q:"+verb, nil, body)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"claim":"c_1.5.m.0.7","run_id":"r_1.5.m","fence":7`) {
			t.Errorf("%s: %d %s", verb, w.Code, w.Body)
		}
	}
	of3 := job.ClaimRef{Run: job.RunKey{Job: 3<<job.GroupShift | 1, At: 5, Origin: job.OriginManual}, Group: 3, Fence: 7}
	w := serveWith(t, none, api.Options{Pull: &pulls{}}, "POST", "/api/v1/queues/q:heartbeat", nil,
		`{"runs":[{"claim":"`+of3.String()+`"}]}`)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"run_id":"`+of3.Run.String()+`","fence":7`) {
		t.Errorf("of group 3: %d %s", w.Code, w.Body)
	}
}
