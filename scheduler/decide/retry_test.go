package decide

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

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
		{"asked for too much", rule(job.BackoffExponential, sec, 300*sec, 0), 0, 1000 * time.Hour, 0, time.Hour},
		{"asked for too much, and the cap is longer", rule(job.BackoffExponential, sec, 3*time.Hour, 0), 0, 1000 * time.Hour, 0, 3 * time.Hour},
		{"asked for more than the cap, within an hour", rule(job.BackoffImmediate, sec, 60*sec, 0), 0, 50 * time.Minute, 0, 50 * time.Minute},
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
		s.Retry = job.Retry{MaxRetries: new(2), Backoff: job.BackoffImmediate, Jitter: new(0.0)}
	})
	row := func(failures uint16) *store.Row { return &store.Row{Status: job.RunClaimed, Failures: failures} }
	canceling := &store.Row{Status: job.RunCanceling, Cancel: job.ReasonReplaced}
	tests := []struct {
		name string
		r    job.Result
		spec *job.Spec
		row  *store.Row
		want Ending
	}{
		{"retry", job.Result{Outcome: job.OutcomeFailed}, spec, row(1), Ending{Result: fsm.ResultRetry, RetryAt: 1000}},
		{"retry after a timeout", job.Result{Outcome: job.OutcomeFailed, TimedOut: true}, spec, row(1), Ending{Result: fsm.ResultRetry, Reason: job.ReasonTimeout, RetryAt: 1000}},
		{"asked for a delay", job.Result{Outcome: job.OutcomeFailed, RetryAfter: job.Duration(time.Second)}, spec, row(0), Ending{Result: fsm.ResultRetry, RetryAt: 2000}},
		{"no retries left", job.Result{Outcome: job.OutcomeFailed}, spec, row(2), Ending{Result: fsm.ResultDead, Reason: job.ReasonExhausted}},
		{"timed out for the last time", job.Result{Outcome: job.OutcomeFailed, TimedOut: true}, spec, row(2), Ending{Result: fsm.ResultDead, Reason: job.ReasonTimeout}},
		{"permanent", job.Result{Outcome: job.OutcomeFailed, Permanent: true}, spec, row(0), Ending{Result: fsm.ResultDead, Reason: job.ReasonPermanent}},
		{"egress denied", job.Result{Outcome: job.OutcomeFailed, Permanent: true, EgressDenied: true}, spec, row(0),
			Ending{Result: fsm.ResultDead, Reason: job.ReasonEgress}},
		{"returned", job.Result{Outcome: job.OutcomeReturned}, spec, row(2), Ending{Result: fsm.ResultReturned}},
		{"returned while canceling", job.Result{Outcome: job.OutcomeReturned}, spec, canceling, Ending{Result: fsm.ResultCanceled, Reason: job.ReasonReplaced}},
		{"failed while canceling", job.Result{Outcome: job.OutcomeFailed}, spec, canceling, Ending{Result: fsm.ResultCanceled, Reason: job.ReasonReplaced}},
		{"the job is gone", job.Result{Outcome: job.OutcomeFailed}, nil, row(0), Ending{Result: fsm.ResultCanceled, Reason: job.ReasonDeleted}},
		{"stopped unasked", job.Result{Outcome: job.OutcomeCanceled}, spec, row(0), Ending{Result: fsm.ResultRetry, RetryAt: 1000, Note: "the worker stopped the attempt without being told to"}},
		{"an outcome that does not exist", job.Result{}, spec, row(2), Ending{Result: fsm.ResultDead, Reason: job.ReasonExhausted}},
	}
	for _, tt := range tests {
		if got := EndOf(&tt.r, tt.spec, tt.row, 1000, 0.5); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
