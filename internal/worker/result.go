package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// shape makes what a runner returned fit for the log: an attempt that was stopped says why, and nothing is too long or
// not text. A success stands even if its context ended meanwhile: the work is done.
func shape(ctx context.Context, r job.Result, timeout time.Duration) job.Result {
	if r.Outcome != job.OutcomeSucceeded {
		if r.Outcome != job.OutcomeFailed && r.Error == "" {
			r.Error = fmt.Sprintf("the runner returned the outcome %d", r.Outcome)
		}
		r.Outcome = job.OutcomeFailed
		if cause := context.Cause(ctx); cause != nil {
			r = stopped(r, cause, timeout)
		}
	}
	r.RetryAfter = max(r.RetryAfter, 0) // the leader bounds it
	r.Error, r.Output = job.Head(r.Error, job.MaxErrorBytes), job.Tail(r.Output, job.MaxOutputBytes)
	return r
}

// stopped turns the failure of an attempt that was stopped into one that says so.
func stopped(r job.Result, cause error, timeout time.Duration) job.Result {
	detail := r.Error
	r.Permanent, r.EgressDenied, r.RetryAfter = false, false, 0
	r.Error = cause.Error()
	switch {
	case errors.Is(cause, ErrTimeout):
		r.TimedOut = true
		r.Error += " after " + timeout.String()
	case errors.Is(cause, ErrCanceled):
		r.Outcome = job.OutcomeCanceled
	case errors.Is(cause, ErrLeaseLost):
		return r
	}
	if detail != "" && !strings.Contains(detail, cause.Error()) {
		r.Error += ": " + detail
	}
	return r
}
