package scheduler

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

func testSpec(sched string, edit func(*job.Spec)) *job.Spec {
	s := &job.Spec{Type: job.TypeShell, Schedule: sched, Payload: []byte(`{"command":"true"}`)}
	if edit != nil {
		edit(s)
	}
	s.Normalize()
	return s
}

func TestRetryDelay(t *testing.T) {
	sec := time.Second
	rule := func(backoff string, base, limit time.Duration, jitter float64) job.Retry {
		return job.Retry{Backoff: backoff, Base: job.Duration(base), Cap: job.Duration(limit), Jitter: &jitter}
	}
	tests := []struct {
		name     string
		rule     job.Retry
		failures int
		asked    time.Duration
		random   float64
		want     time.Duration
	}{
		{"immediate", rule(job.BackoffImmediate, sec, 60*sec, 0), 5, 0, 0, 0},
		{"immediate, asked to wait", rule(job.BackoffImmediate, sec, 60*sec, 0), 5, 7 * sec, 0, 7 * sec},
		{"linear first", rule(job.BackoffLinear, 2*sec, 60*sec, 0), 0, 0, 0, 2 * sec},
		{"linear third", rule(job.BackoffLinear, 2*sec, 60*sec, 0), 2, 0, 0, 6 * sec},
		{"linear capped", rule(job.BackoffLinear, 2*sec, 60*sec, 0), 500, 0, 0, 60 * sec},
		{"exponential first", rule(job.BackoffExponential, sec, 300*sec, 0), 0, 0, 0, sec},
		{"exponential fourth", rule(job.BackoffExponential, sec, 300*sec, 0), 3, 0, 0, 8 * sec},
		{"exponential capped", rule(job.BackoffExponential, sec, 300*sec, 0), 1000, 0, 0, 300 * sec},
		{"jitter makes it shorter", rule(job.BackoffExponential, 10*sec, 300*sec, 0.5), 0, 0, 0.5, 7500 * time.Millisecond},
		{"asked for more", rule(job.BackoffExponential, sec, 300*sec, 0.2), 0, 90 * sec, 0.9, 90 * sec},
		{"asked for less", rule(job.BackoffExponential, 100*sec, 300*sec, 0), 0, 9 * sec, 0, 100 * sec},
		{"asked for too much", rule(job.BackoffExponential, sec, 300*sec, 0), 0, 1000 * time.Hour, 0, 24 * time.Hour},
		{"no overflow", rule(job.BackoffLinear, 8*365*24*time.Hour, 9*365*24*time.Hour, 0), 1000, 0, 0, 9 * 365 * 24 * time.Hour},
	}
	for _, tt := range tests {
		if got := retryDelay(tt.rule, tt.failures, tt.asked, tt.random); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestEndOfAnAttempt(t *testing.T) {
	spec := testSpec("@manual", func(s *job.Spec) {
		s.Retry = job.Retry{MaxRetries: ptr(2), Backoff: job.BackoffImmediate, Jitter: ptr(0.0)}
	})
	row := func(failures uint16) *store.Row { return &store.Row{Status: job.RunClaimed, Failures: failures} }
	canceling := &store.Row{Status: job.RunCanceling, Cancel: job.ReasonReplaced}
	tests := []struct {
		name string
		r    job.Result
		spec *job.Spec
		row  *store.Row
		want ending
	}{
		{"retry", job.Result{Outcome: job.OutcomeFailed}, spec, row(1), ending{result: fsm.ResultRetry, retryAt: 1000}},
		{"retry after a timeout", job.Result{Outcome: job.OutcomeFailed, TimedOut: true}, spec, row(1), ending{result: fsm.ResultRetry, reason: job.ReasonTimeout, retryAt: 1000}},
		{"asked for a delay", job.Result{Outcome: job.OutcomeFailed, RetryAfter: job.Duration(time.Second)}, spec, row(0), ending{result: fsm.ResultRetry, retryAt: 2000}},
		{"no retries left", job.Result{Outcome: job.OutcomeFailed}, spec, row(2), ending{result: fsm.ResultDead, reason: job.ReasonExhausted}},
		{"timed out for the last time", job.Result{Outcome: job.OutcomeFailed, TimedOut: true}, spec, row(2), ending{result: fsm.ResultDead, reason: job.ReasonTimeout}},
		{"permanent", job.Result{Outcome: job.OutcomeFailed, Permanent: true}, spec, row(0), ending{result: fsm.ResultDead, reason: job.ReasonPermanent}},
		{"egress denied", job.Result{Outcome: job.OutcomeFailed, Permanent: true, EgressDenied: true}, spec, row(0),
			ending{result: fsm.ResultDead, reason: job.ReasonEgress}},
		{"returned", job.Result{Outcome: job.OutcomeReturned}, spec, row(2), ending{result: fsm.ResultReturned}},
		{"returned while canceling", job.Result{Outcome: job.OutcomeReturned}, spec, canceling, ending{result: fsm.ResultCanceled, reason: job.ReasonReplaced}},
		{"failed while canceling", job.Result{Outcome: job.OutcomeFailed}, spec, canceling, ending{result: fsm.ResultCanceled, reason: job.ReasonReplaced}},
		{"the job is gone", job.Result{Outcome: job.OutcomeFailed}, nil, row(0), ending{result: fsm.ResultCanceled, reason: job.ReasonDeleted}},
		{"stopped unasked", job.Result{Outcome: job.OutcomeCanceled}, spec, row(0), ending{result: fsm.ResultRetry, retryAt: 1000, note: "the worker stopped the attempt without being told to"}},
		{"an outcome that does not exist", job.Result{}, spec, row(2), ending{result: fsm.ResultDead, reason: job.ReasonExhausted}},
	}
	for _, tt := range tests {
		if got := endOf(&tt.r, tt.spec, tt.row, 1000); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestTruncationKeepsText(t *testing.T) {
	for _, s := range []string{"", "abc", "aé", "éé", "日本語", "a\xff\xfeb", "\xc3"} {
		for n := range 8 {
			for _, got := range []string{headOf(s, n), tailOf(s, n)} {
				if len(got) > n || !utf8.ValidString(got) {
					t.Errorf("%q cut to %d: %q", s, n, got)
				}
			}
		}
	}
}

// A schedule is shared between jobs only if it means the same for all of them.
func TestSharedSchedulesMeanTheSame(t *testing.T) {
	c := newCatalog()
	after := time.UnixMilli(1_800_000_000_000)
	for _, expr := range []string{"*/5 * * * *", "H * * * *", "H(0-29) 3 * * *", "0 9 * * THU", "@every 97s", "@hourly", "2027-03-01T09:00:00Z", "DTSTART:20270301T090000 RRULE:FREQ=DAILY"} {
		for _, jitter := range []time.Duration{0, time.Hour} {
			for id := job.ID(1); id < 50; id++ {
				i := &info{id: id, def: store.Definition{Spec: *testSpec(expr, func(s *job.Spec) { s.Jitter = job.Duration(jitter) })}}
				if bad := c.compile(i); bad != "" {
					t.Fatal(bad)
				}
				own, err := Compile(&i.def.Spec, id)
				if err != nil {
					t.Fatal(err)
				}
				a, ok1 := i.sched.Next(after)
				b, ok2 := own.Next(after)
				if ok1 != ok2 || !a.Equal(b) || i.sched.Delay() != own.Delay() {
					t.Fatalf("%q of %s: %s+%s, alone %s+%s", expr, id, a, i.sched.Delay(), b, own.Delay())
				}
			}
		}
	}
}

func TestQueueTakesBackWhatItGave(t *testing.T) {
	var q fifo
	for i := range 5000 {
		q.push(item{runs: uint32(i)})
	}
	for i := range 3000 {
		if it := q.pop(); it.runs != uint32(i) {
			t.Fatalf("%d at %d", it.runs, i)
		}
	}
	for i := 2999; i >= 0; i-- {
		q.unpop(item{runs: uint32(i)})
	}
	for i := range 5000 {
		if it := q.pop(); it.runs != uint32(i) {
			t.Fatalf("%d at %d", it.runs, i)
		}
	}
	if q.len() != 0 {
		t.Error("not empty")
	}
}
