package wire

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/carillon-scheduler/carillon/job"
)

// Statuses are what HTTP says for each code; job/errors.go has the same numbers as comments.
var Statuses = map[job.Code]int{
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
	job.CodeStopped:          http.StatusServiceUnavailable,
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
	if s, ok := Statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// WriteProblem answers a request with an error.
func WriteProblem(w http.ResponseWriter, status int, e *job.Error) {
	p := Problem{Type: "urn:carillon:error:" + string(e.Code), Title: http.StatusText(status), Status: status,
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
