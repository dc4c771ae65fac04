package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// statuses maps codes to what HTTP says; job/errors.go has the same numbers as comments.
var statuses = map[job.Code]int{
	job.CodeInvalid:          http.StatusBadRequest,
	job.CodeUnknownField:     http.StatusBadRequest,
	job.CodeMalformed:        http.StatusBadRequest,
	job.CodeTooLarge:         http.StatusRequestEntityTooLarge,
	job.CodeNotFound:         http.StatusNotFound,
	job.CodeDuplicateName:    http.StatusConflict,
	job.CodeVersionConflict:  http.StatusConflict,
	job.CodeOverlap:          http.StatusConflict,
	job.CodeState:            http.StatusConflict,
	job.CodeKeyReused:        http.StatusUnprocessableEntity,
	job.CodeStale:            http.StatusConflict,
	job.CodeNotLeader:        http.StatusMisdirectedRequest,
	job.CodeOtherGroup:       http.StatusMisdirectedRequest,
	job.CodeNoLeader:         http.StatusServiceUnavailable,
	job.CodeNotReady:         http.StatusServiceUnavailable,
	job.CodeSuperseded:       http.StatusServiceUnavailable,
	job.CodeOutcomeUnknown:   http.StatusServiceUnavailable,
	job.CodeUnavailable:      http.StatusServiceUnavailable,
	job.CodeStorageFull:      http.StatusInsufficientStorage,
	job.CodeDiskLow:          http.StatusInsufficientStorage,
	job.CodeUnauthenticated:  http.StatusUnauthorized,
	job.CodeForbidden:        http.StatusForbidden,
	job.CodeTooManyRequests:  http.StatusTooManyRequests,
	job.CodeMethodNotAllowed: http.StatusMethodNotAllowed,
	job.CodeUnsupportedMedia: http.StatusUnsupportedMediaType,
	job.CodePrecondition:     http.StatusPreconditionFailed,
	job.CodeInternal:         http.StatusInternalServerError,
	job.CodeSessionUnknown:   http.StatusConflict,
	job.CodeUnknownQueue:     http.StatusNotFound,
	job.CodeWorkerNameInUse:  http.StatusConflict,
	job.CodeWorkerForked:     http.StatusConflict,
}

// StatusOf is the HTTP status of a code.
func StatusOf(code job.Code) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// failCall answers a route's error.
func (h *handler) failCall(c *call, err error) {
	if c.started { // a stream cannot take back its 200: break it off so that it does not look complete
		if c.r.Context().Err() == nil {
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
			writeProblem(c.w, http.StatusPreconditionFailed, known)
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
		known = job.Errorf(job.CodeInternal, "the node's log says more", "something went wrong inside the node")
	}
	status := StatusOf(known.Code)
	if h.opts.Refused != nil && (status == http.StatusBadRequest || status == http.StatusUnauthorized ||
		status == http.StatusForbidden) {
		h.opts.Refused(r, known)
	}
	writeProblem(w, status, known)
}

// WriteError answers with an error from outside of the routes.
func WriteError(w http.ResponseWriter, err error) {
	known := job.Errorf(job.CodeInternal, "the node's log says more", "something went wrong inside the node")
	_ = errors.As(err, &known)
	writeProblem(w, StatusOf(known.Code), known)
}

func writeProblem(w http.ResponseWriter, status int, e *job.Error) {
	p := wire.Problem{Type: "urn:carillon:error:" + string(e.Code), Title: http.StatusText(status), Status: status,
		Error: *e}
	body, err := json.Marshal(p)
	if err != nil { // cannot be: strings only
		panic(err)
	}
	header := w.Header()
	header.Del("ETag")
	header.Del("Location")
	header.Set("Content-Type", "application/problem+json")
	switch status {
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", "1")
	case http.StatusTooManyRequests:
		header.Set("Retry-After", cmp.Or(header.Get("Retry-After"), "1"))
	}
	w.WriteHeader(status)
	w.Write(append(body, '\n')) //nolint:errcheck // there is no one to tell
}
