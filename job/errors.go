package job

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Code is the stable name of an error. It survives the wire: clients may switch on it.
type Code string

// The codes. They are part of the API; do not rename one.
const (
	CodeInvalid          Code = "invalid"                // 400: a field is wrong; Field names it
	CodeUnknownField     Code = "unknown_field"          // 400
	CodeMalformed        Code = "malformed"              // 400: not JSON, not msgpack, trailing data
	CodeTooLarge         Code = "too_large"              // 413
	CodeNotFound         Code = "not_found"              // 404
	CodeDuplicateName    Code = "duplicate_name"         // 409
	CodeVersionConflict  Code = "version_conflict"       // 409 (412 with If-Match)
	CodeOverlap          Code = "overlap"                // 409: a manual run of a job that may not overlap
	CodeState            Code = "wrong_state"            // 409: the job or run is not in a state that allows this
	CodeKeyReused        Code = "idempotency_key_reused" // 422: the same Idempotency-Key with another request
	CodeStale            Code = "stale"                  // 409: an old fence, term or session
	CodeNotLeader        Code = "not_leader"             // 421
	CodeNoLeader         Code = "no_leader"              // 503: there is no leader right now; nothing was changed
	CodeNotReady         Code = "not_ready"              // 503: this node is starting, stopping or holding
	CodeStopped          Code = "stopped"                // 503: this node takes no part in the cluster any more
	CodeOutcomeUnknown   Code = "outcome_unknown"        // 503: it may have been done; repeat it with the same key
	CodeUnavailable      Code = "unavailable"            // 503: overloaded or something is missing; nothing changed
	CodeStorageFull      Code = "storage_full"           // 507
	CodeDiskLow          Code = "disk_low"               // 507: the leader's disk is almost full; nothing is created
	CodeUnauthenticated  Code = "unauthenticated"        // 401: no token, or one that is not valid
	CodeForbidden        Code = "forbidden"              // 403: the token is not for this
	CodeTooManyRequests  Code = "too_many_requests"      // 429: a limit of a token or an address; wait for Retry-After
	CodeMethodNotAllowed Code = "method_not_allowed"     // 405
	CodeUnsupportedMedia Code = "unsupported_media"      // 415
	CodePrecondition     Code = "precondition_failed"    // 412
	CodeInternal         Code = "internal"               // 500
	CodeSessionUnknown   Code = "session_unknown"        // 409: the leader does not know this session; register again
	CodeUnknownQueue     Code = "unknown_queue"          // 404: no job uses the queue and it is not declared
	CodeWorkerNameInUse  Code = "worker_name_in_use"     // 409: a living worker has that name
	CodeOtherGroup       Code = "other_group"            // 421: between nodes only, see OtherGroup
	CodeWorkerForked     Code = "worker_forked"          // 409: two processes speak as one worker; both are refused
)

// Error is what every layer says when something is refused: a stable code, the field at fault and the way out of it.
type Error struct {
	Code    Code   `json:"code" codec:"c"`
	Field   string `json:"field,omitempty" codec:"f,omitempty"`
	Message string `json:"detail" codec:"m"`
	Remedy  string `json:"remedy,omitempty" codec:"r,omitempty"`
}

func (e *Error) Error() string {
	s := e.Message
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// Is makes errors.Is compare by code, so that an error that crossed the wire is still recognised.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Field == "" || t.Field == e.Field)
}

// Errorf makes an error without a field.
func Errorf(code Code, remedy, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// OtherGroup is what the home of a name says about a job that lives in another group: ask there.
func OtherGroup(group uint32) *Error {
	return &Error{Code: CodeOtherGroup, Field: strconv.FormatUint(uint64(group), 10),
		Message: fmt.Sprintf("the job is in group %d", group), Remedy: "ask that group"}
}

// InOther is the group that OtherGroup names.
func (e *Error) InOther() (group uint32, ok bool) {
	n, err := strconv.ParseUint(e.Field, 10, 32)
	return uint32(n), e.Code == CodeOtherGroup && err == nil
}

// InGroup is the error with the name of the group that it is about.
func (e *Error) InGroup(group uint32) *Error {
	named, name := *e, GroupNames(group)+": "
	if !strings.HasPrefix(e.Message, name) {
		named.Message = name + e.Message
	}
	return &named
}

// GroupNames are Raft groups as messages name them.
func GroupNames(groups ...uint32) string {
	text := "group"
	if len(groups) > 1 {
		text = "groups"
	}
	for i, g := range groups {
		if i > 0 {
			text += ","
		}
		text += " " + strconv.FormatUint(uint64(g), 10)
	}
	return text
}

// Invalid makes the error for a field with a wrong value.
func Invalid(field, remedy, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// CodeOf is the code of an error, CodeInternal if it carries none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}
