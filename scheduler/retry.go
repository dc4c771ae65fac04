package scheduler

import (
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// maxRetryAfter bounds the delay that a target may ask for.
const maxRetryAfter = 24 * time.Hour

// retryDelay is how long to wait after a failed attempt, when failures attempts failed before it. random is in [0, 1).
func retryDelay(r job.Retry, failures int, asked time.Duration, random float64) time.Duration {
	base, limit := time.Duration(r.Base), time.Duration(r.Cap)
	var d time.Duration
	switch r.Backoff {
	case job.BackoffImmediate:
	case job.BackoffLinear:
		if n := time.Duration(failures + 1); base > 0 && n > limit/base {
			d = limit
		} else {
			d = base * n
		}
	default:
		d = base
		for range failures {
			if d >= limit/2 {
				d = limit
				break
			}
			d *= 2
		}
	}
	d = min(d, limit)
	if r.Jitter != nil {
		// Downwards: the cap stays a cap, and jobs that failed together do not come back together.
		d -= time.Duration(float64(d) * min(max(*r.Jitter, 0), 1) * random)
	}
	return max(d, min(asked, maxRetryAfter))
}

// ending is what a result means for its run.
type ending struct {
	result  fsm.Result
	reason  job.Reason
	retryAt int64
	note    string // replaces an error that says nothing
}

// endOf applies a job's retry rule to a result that is not a success; what becomes of the run is done in apply
// (fsm/runs.go). spec is nil if the job is gone, row if no worker has the run.
func endOf(r *job.Result, spec *job.Spec, row *store.Row, now int64) ending {
	canceling := row != nil && row.Status == job.RunCanceling
	switch {
	case r.Outcome == job.OutcomeReturned && !canceling:
		return ending{result: fsm.ResultReturned}
	case canceling:
		return ending{result: fsm.ResultCanceled, reason: row.Cancel}
	case spec == nil || row == nil:
		return ending{result: fsm.ResultCanceled, reason: job.ReasonDeleted}
	}
	e := ending{result: fsm.ResultRetry}
	if r.Outcome == job.OutcomeCanceled && r.Error == "" {
		// It was not asked to, so it is a failure: an occurrence must not be dropped on a worker's word.
		e.note = "the worker stopped the attempt without being told to"
	}
	if r.TimedOut {
		e.reason = job.ReasonTimeout
	}
	switch {
	case r.EgressDenied:
		return ending{result: fsm.ResultDead, reason: job.ReasonEgress, note: e.note}
	case r.Permanent:
		return ending{result: fsm.ResultDead, reason: job.ReasonPermanent, note: e.note}
	case int(row.Failures) >= spec.Retry.Limit():
		e.result = fsm.ResultDead
		if e.reason == job.ReasonNone {
			e.reason = job.ReasonExhausted
		}
		return e
	}
	d := retryDelay(spec.Retry, int(row.Failures), time.Duration(r.RetryAfter), rand.Float64())
	e.retryAt = now + d.Milliseconds()
	return e
}

// headOf is the beginning of a text, at most n bytes of valid UTF-8; tailOf is its end.
func headOf(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func tailOf(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}
