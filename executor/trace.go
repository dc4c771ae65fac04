package executor

import "regexp"

var traceparentRE = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceparent is the trace context that a target gets: that of the attempt, or none. One that is made up here would be
// a parent that is never exported.
func traceparent(given string) string {
	if traceparentRE.MatchString(given) {
		return given
	}
	return ""
}
