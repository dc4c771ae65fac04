package decide

import (
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// minAskedCap is how long a delay a target, or the worker of a queue, may ask for whatever the job's cap is: what is
// told to come back later needs more time than ordinary failures. Beyond that and the cap a run would be held up for
// as long as a stranger likes.
const minAskedCap = time.Hour

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
	return max(d, min(asked, max(limit, minAskedCap)))
}

// Ending is what a result means for its run.
type Ending struct {
	Result  fsm.Result
	Reason  job.Reason
	RetryAt int64
	Note    string // replaces an error that says nothing
}

// EndOf applies a job's retry rule to a result that is not a success; what becomes of the run is done in apply
// (fsm/runs.go). spec is nil if the job is gone, row if no worker has the run. random, in [0, 1), is for the jitter.
func EndOf(r *job.Result, spec *job.Spec, row *store.Row, now int64, random float64) Ending {
	canceling := row != nil && row.Status == job.RunCanceling
	switch {
	case r.Outcome == job.OutcomeReturned && !canceling:
		return Ending{Result: fsm.ResultReturned}
	case canceling:
		return Ending{Result: fsm.ResultCanceled, Reason: row.Cancel}
	case spec == nil || row == nil:
		return Ending{Result: fsm.ResultCanceled, Reason: job.ReasonDeleted}
	}
	e := Ending{Result: fsm.ResultRetry}
	if r.Outcome == job.OutcomeCanceled && r.Error == "" {
		// It was not asked to, so it is a failure: an occurrence must not be dropped on a worker's word.
		e.Note = "the worker stopped the attempt without being told to"
	}
	if r.TimedOut {
		e.Reason = job.ReasonTimeout
	}
	switch {
	case r.EgressDenied:
		return Ending{Result: fsm.ResultDead, Reason: job.ReasonEgress, Note: e.Note}
	case r.Permanent:
		return Ending{Result: fsm.ResultDead, Reason: job.ReasonPermanent, Note: e.Note}
	case int(row.Failures) >= spec.Retry.Limit():
		e.Result = fsm.ResultDead
		if e.Reason == job.ReasonNone {
			e.Reason = job.ReasonExhausted
		}
		return e
	}
	d := retryDelay(spec.Retry, int(row.Failures), time.Duration(r.RetryAfter), random)
	e.RetryAt = now + d.Milliseconds()
	return e
}
