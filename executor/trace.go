package executor

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
)

var traceparentRE = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceparent is the trace context that a target gets: the run's own, or a new one.
func traceparent(given string) string {
	if traceparentRE.MatchString(given) {
		return given
	}
	var id [24]byte
	rand.Read(id[:]) // never fails
	return "00-" + hex.EncodeToString(id[:16]) + "-" + hex.EncodeToString(id[16:]) + "-01"
}
