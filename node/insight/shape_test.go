package insight

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/job"
)

func TestErrorsOfOneCauseHaveOneShape(t *testing.T) {
	for want, all := range map[string][]string{
		"dial tcp <addr>: connection refused": {"dial tcp 10.0.0.7:5432: connection refused",
			"dial tcp 127.0.0.1:80: connection refused", "dial tcp [::1]:9: connection refused"},
		"status 502 after <n>ms":  {"status 502 after 13ms", " status 502 after 7.5ms\nwith a body"},
		"status 503 after <n>ms":  {"status 503 after 1ms"},
		"exit status 1":           {"exit status 1"},
		"exit status 3":           {"exit status 3"},
		"exit code: 137, pid <n>": {"exit code: 137, pid 4711", "exit code: 137, pid 12"},
		"killed by signal 34":     {"killed by signal 34"},
		"HTTP 500 for user <n>":   {"HTTP 500 for user 7", "HTTP 500 for user 812"},
		"status code=404":         {"status code=404"},
		"status <n> of order <n>, status <n>ms": {"status 20261 of order 3, status 502ms",
			"status 4711 of order 500, status 1ms"}, // no codes
		"no user <text>": {`no user "anna"`, "no user 'bob 7'", "no user `x`"},
		"trace <hex> failed": {"trace deadbeefdeadbeef failed", "trace 0x1F failed",
			"trace 123e4567-e89b-12d3-a456-426614174000 failed"},
		"late at <time>": {"late at 2026-11-16T12:00:00Z", "late at 2026-11-16 12:00:00.5+01:00"},
		"x":              {"  \n x", "x\n\ny"},
		"":               {"", " \n "},
	} {
		for _, text := range all {
			if got := Shape(text); got != want {
				t.Errorf("%q has the shape %q, want %q", text, got, want)
			}
		}
	}
	if got := Shape(strings.Repeat("ä", 5000)); len(got) > maxShape+utf8.UTFMax || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
	keys := map[string]bool{}
	for _, k := range []string{GroupKey("a", 0, "x"), GroupKey("b", 0, "x"), GroupKey("a", job.ReasonTimeout, "x"), GroupKey("a", 0, "y")} {
		keys[k] = true
	}
	if len(keys) != 4 || !keys[GroupKey("a", 0, "x")] {
		t.Errorf("%v", keys)
	}
}
