package harness

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// t0 is when the hand-made history begins.
var t0 = time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC)

func at(ms int) time.Time     { return t0.Add(time.Duration(ms) * time.Millisecond) }
func inst(ms int) job.Instant { return job.At(at(ms)) }

// small is evidence in which everything is as it should be: a one-off whose first attempt was lost when n1 was killed,
// another one that took the time of its timeout once, and a create that was never answered and whose job exists.
func small() *Evidence {
	spec := func(token, name string) *job.Spec {
		retries := 3
		return &job.Spec{Name: name, Type: job.TypeHTTP, Schedule: inst(1000).String(),
			Payload: []byte(fmt.Sprintf(`{"url":"http://target/%s"}`, token)),
			Timeout: job.Duration(time.Second), Retry: job.Retry{MaxRetries: &retries, Backoff: job.BackoffImmediate}}
	}
	made := func(id job.ID, s *job.Spec) job.Job { return job.Job{ID: id, Spec: *s, Version: 1, CreatedAt: inst(1)} }
	one, two := job.RunKey{Job: 1, At: int64(inst(1000)), Origin: job.OriginSchedule},
		job.RunKey{Job: 2, At: int64(inst(1000)), Origin: job.OriginSchedule}
	record := func(seq uint64, k job.RunKey, worker string, attempt int, fence uint64, status job.RunStatus,
		reason job.Reason, claimed, finished int) job.Run {
		return job.Run{Seq: seq, RunID: k.String(), JobID: k.Job, ScheduledAt: job.Instant(k.At), Origin: k.Origin,
			Attempt: attempt, Fence: fence, Worker: worker,
			Status: status, Reason: reason, ClaimedAt: inst(claimed), FinishedAt: inst(finished)}
	}
	request := func(token string, k job.RunKey, attempt int, fence uint64, arrived int) Seen {
		return Seen{Token: token, From: "10.0.0.1", Arrived: at(arrived), Key: job.IdempotencyKey("", "", k),
			Job: k.Job.String(), Run: k.String(), ScheduledAt: job.Instant(k.At).String(), Attempt: attempt, Fence: fence}
	}
	answered := func(s Seen, ms int) Seen { s.Answered, s.Status = at(ms), 200; return s }
	gone := func(s Seen, ms int) Seen { s.Gone = at(ms); return s }
	b := &Evidence{
		Calls: []checker.Call{
			{Kind: checker.CallCreate, Outcome: checker.OK, Invoke: inst(0), Return: inst(2), Job: 1, Name: "one",
				Spec: spec("one", "one")},
			{Kind: checker.CallCreate, Invoke: inst(0), Spec: spec("two", "")},
			{Kind: checker.CallCreate, Invoke: inst(0), Name: "never", Spec: spec("never", "never")},
		},
		Faults: []Outage{{Node: "n1", Sent: at(1050), Dead: at(1060), Ready: at(1500)}},
		Seen: []Seen{gone(request("one", one, 1, 1, 1010), 1061), answered(request("one", one, 2, 3, 1510), 1520),
			gone(request("two", two, 1, 2, 1012), 2013), answered(request("two", two, 2, 4, 2030), 2040)},
		Final: checker.Final{At: inst(9000), Jobs: []job.Job{made(1, spec("one", "one")), made(2, spec("two", ""))},
			History: []job.Run{
				record(1, one, "n1", 1, 1, job.RunFailed, job.ReasonWorkerLost, 1001, 1400),
				record(2, one, "n2", 2, 3, job.RunSucceeded, 0, 1500, 1521),
				record(3, two, "n2", 1, 2, job.RunFailed, job.ReasonTimeout, 1002, 2012),
				record(4, two, "n2", 2, 4, job.RunSucceeded, 0, 2020, 2041),
			}},
	}
	for i := range b.Final.Jobs {
		b.Final.Jobs[i].Status = job.StatusCompleted
	}
	return b
}

func TestBooksOfAnHonestHistory(t *testing.T) {
	b := small()
	in, problems := b.Input()
	r := checker.Check(&in)
	if problems = append(problems, b.Excuses()...); len(problems) > 0 || r.Err() != nil {
		t.Fatal(problems, r.Err())
	}
	if r.Jobs != 2 || r.Repeated != 2 || r.LostWorkers != 1 || len(in.Effects) != 4 {
		t.Error(r)
	}
	if got := in.Calls[1].Job; got != 2 {
		t.Errorf("the create without an answer made %s", got)
	}
	if o := in.Effects[2].Outcome; o != checker.TimedOut {
		t.Errorf("the request that ran into its timeout %s", o)
	}
	b.Workers = map[string]string{"10.0.0.1": "n9"}
	if in, _ = b.Input(); in.Effects[0].Worker != "n9" {
		t.Errorf("a request of n9's address is of %s", in.Effects[0].Worker)
	}
}

// TestBooksFindWhatTheCheckerCannotKnow, and what it is kinder about.
func TestBooksFindWhatTheCheckerCannotKnow(t *testing.T) {
	for _, c := range []struct {
		name  string
		wrong func(b *Evidence)
		want  string
	}{
		{"a job that was never created", func(b *Evidence) { b.Final.Jobs[1].Payload = []byte(`{"url":"http://target/x"}`) },
			"was invented"},
		{"a job made twice", func(b *Evidence) { b.Final.Jobs[1].Payload = b.Final.Jobs[0].Payload }, "was created twice"},
		{"another number", func(b *Evidence) { b.Calls[0].Job = 7 }, "was acknowledged as j_7"},
		{"a test that promises twice", func(b *Evidence) { b.Calls[2].Spec = b.Calls[1].Spec }, "the test created two twice"},
		{"a request of another job", func(b *Evidence) { b.Seen[1].Token = "two" }, "got a request of run"},
		{"a request to an unknown place", func(b *Evidence) { b.Seen[1].Token = "x" }, "whose job calls one"},
		{"headers that disagree", func(b *Evidence) { b.Seen[1].ScheduledAt = inst(2000).String() }, "got a request of run"},
		{"no run", func(b *Evidence) { b.Seen[1].Run = "x" }, "got a request of run"},
		{"no key", func(b *Evidence) { b.Seen[1].Key = "" }, `with key ""`},
		{"no fence", func(b *Evidence) { b.Seen[1].Fence = 0 }, "fence 0"},
		{"lost though another was killed", func(b *Evidence) { b.Faults[0].Node = "n2" }, "lost its worker n1"},
		{"lost before the kill", func(b *Evidence) { b.Faults[0].Sent = at(1401); b.Faults[0].Dead = at(1402) },
			"lost its worker n1"},
		{"begun after the kill", func(b *Evidence) { b.Final.History[0].ClaimedAt = inst(1100) }, "lost its worker n1"},
		{"lost over a short pause", func(b *Evidence) { b.Faults[0].Paused = true }, "lost its worker n1"},
		{"lost over a short cut", func(b *Evidence) { b.Faults[0].Cut = true }, "lost its worker n1"},
		{"never begun, claimed while it was dead: right",
			func(b *Evidence) { b.Final.History[0].ClaimedAt = inst(1100); b.Seen = b.Seen[1:] }, ""},
		{"lost over a long cut: right", func(b *Evidence) { b.Faults[0].Cut = true; b.Lease = 20 * time.Millisecond }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := small()
			c.wrong(b)
			_, problems := b.Input()
			if all := strings.Join(append(problems, b.Excuses()...), "\n"); c.want == "" && all != "" ||
				!strings.Contains(all, c.want) {
				t.Errorf("not %q but %q", c.want, all)
			}
		})
	}
}

// TestUnheardAnswers: a target that said that it went well is contradicted only by a worker that cannot have heard it.
func TestUnheardAnswers(t *testing.T) {
	for _, c := range []struct {
		name     string
		answered int
		status   job.RunStatus
		reason   job.Reason
		faults   []Outage
		want     checker.EffectOutcome
	}{
		{"heard", 1520, job.RunSucceeded, 0, nil, checker.Succeeded},
		{"canceled at the same moment", 1520, job.RunCanceled, job.ReasonCanceled, nil, checker.Canceled},
		{"canceled long after", 1520 - 3000, job.RunCanceled, job.ReasonCanceled, nil, checker.Succeeded},
		{"at the end of its time", 1520, job.RunFailed, job.ReasonTimeout, nil, checker.TimedOut},
		{"stood still until its time was over", 1515, job.RunFailed, job.ReasonTimeout,
			[]Outage{{Node: "n2", Paused: true, Sent: at(1512), Dead: at(1518)}}, checker.TimedOut},
		{"failed", 1520, job.RunFailed, 0, nil, checker.Succeeded},
		{"failed while it stood still", 1520, job.RunFailed, 0,
			[]Outage{{Node: "n2", Paused: true, Sent: at(1515), Dead: at(1518)}}, checker.Canceled},
		{"failed while another stood still", 1520, job.RunFailed, 0,
			[]Outage{{Node: "n1", Paused: true, Sent: at(1515), Dead: at(1518)}}, checker.Succeeded},
		{"failed before it stood still", 1520, job.RunFailed, 0,
			[]Outage{{Node: "n2", Paused: true, Sent: at(1600), Dead: at(1700)}}, checker.Succeeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := small()
			b.Final.History[1].Status, b.Final.History[1].Reason = c.status, c.reason
			b.Seen[1].Answered, b.Faults = at(c.answered), c.faults
			in, _ := b.Input()
			e := in.Effects[1]
			if e.Outcome != c.want {
				t.Errorf("it %s", e.Outcome)
			}
			if e.Outcome == checker.TimedOut && e.End < b.Final.History[1].FinishedAt {
				t.Errorf("its worker had it until %s, not until %s", b.Final.History[1].FinishedAt, e.End)
			}
		})
	}
}

func TestFaultsOfBooks(t *testing.T) {
	b := &Evidence{Faults: []Outage{
		{Node: "n2", Sent: at(50), Dead: at(60), Ready: at(60), Cut: true},
		{Node: "n1", Sent: at(100), Dead: at(110)}, // died again before it was ready
		{Node: "n1", Sent: at(200), Dead: at(210), Ready: at(300)},
		{Node: "n1", Sent: at(400), Dead: at(500), Ready: at(500), Paused: true},
		{Node: "n1", Sent: at(600), Dead: at(700), Ready: at(710), Stopped: true},
		{Node: "n1", Sent: at(800), Dead: at(810)},
	}}
	want := []checker.Fault{
		{Kind: checker.FaultKill, Node: "n1", From: inst(100), To: inst(200)},
		{Kind: checker.FaultKill, Node: "n1", From: inst(200), To: inst(301)},
		{Kind: checker.FaultPause, Node: "n1", From: inst(400), To: inst(501)},
		{Kind: checker.FaultStop, Node: "n1", From: inst(600), To: inst(711)},
		{Kind: checker.FaultKill, Node: "n1", From: inst(800)},
		{Kind: checker.FaultCut, Node: "n2", From: inst(50), To: inst(61)},
	}
	if in, _ := b.Input(); !reflect.DeepEqual(in.Faults, want) {
		t.Errorf("%v", in.Faults)
	}
}

func TestOutages(t *testing.T) {
	log := `time=2026-11-15T08:21:06.452Z level=INFO msg="scheduler serving" term=3 inherited_sessions=3 outages=[2026-11-15T08:21:10.391Z/2026-11-15T08:21:11.6Z]
time=2026-11-15T08:21:07.452Z level=INFO msg="scheduler serving" term=4 inherited_sessions=0 outages=[]
time=2026-11-15T08:21:08.452Z level=INFO msg="hold ended; the leader stamps again" outages="[2026-11-15T08:21:10.391Z/2026-11-15T08:21:11.6Z 2026-11-15T08:22:00Z/2026-11-15T08:23:00Z]"
`
	got, err := Outages([]byte(log), []byte(log))
	first := checker.Outage{From: 1794730870391, To: 1794730871600}
	if err != nil || len(got) != 2 || got[0] != first || got[1].To-got[1].From != 60_000 {
		t.Error(got, err)
	}
	if _, err := Outages([]byte("outages=[yesterday/today]")); err == nil {
		t.Error("nonsense is read")
	}
}
