package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// failCall answers a route's error.
func (h *handler) failCall(c *call, err error) {
	if c.started { // a stream cannot take back its 200: break it off so that it does not look complete
		if c.r.Context().Err() == nil && !c.unread { // who reads nothing must not fill the log
			h.opts.Logger.Warn("stream broken off", "path", c.r.URL.Path, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	if why := Revoked(c.r.Context()); why != nil {
		err = why
	}
	var known *job.Error
	if errors.As(err, &known) {
		if c.ifMatch && known.Code == job.CodeVersionConflict {
			wire.WriteProblem(c.w, http.StatusPreconditionFailed, known)
			return
		}
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = c.gaveUp()
	}
	h.fail(c.w, c.r, err)
}

// gaveUp is what a context's end means: the client waited for too long, or no longer waits (and will not read this).
func (c *call) gaveUp() *job.Error {
	if c.route.method == http.MethodGet {
		return job.Errorf(job.CodeUnavailable, "try again, or read with ?stale=true",
			"no answer within %s", c.h.opts.RequestTimeout)
	}
	return job.Errorf(job.CodeOutcomeUnknown, "repeat it with the same Idempotency-Key",
		"no answer within %s: it may or may not have been done", c.h.opts.RequestTimeout)
}

// fail answers any error. What is not a job.Error is ours to explain in the log, not the caller's to read.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var known *job.Error
	if !errors.As(err, &known) {
		if r.Context().Err() == nil {
			h.opts.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		known = job.Errorf(job.CodeInternal, "see the node's log", "something went wrong inside the node")
	}
	status := wire.StatusOf(known.Code)
	if h.opts.Refused != nil && (status == http.StatusBadRequest || status == http.StatusUnauthorized ||
		status == http.StatusForbidden) {
		h.opts.Refused(r, known)
	}
	wire.WriteProblem(w, status, known)
}

// WriteError answers with an error from outside of the routes.
func WriteError(w http.ResponseWriter, err error) {
	known := job.Errorf(job.CodeInternal, "see the node's log", "something went wrong inside the node")
	_ = errors.As(err, &known)
	wire.WriteProblem(w, wire.StatusOf(known.Code), known)
}
