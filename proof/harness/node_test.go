package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// spoken is a test that keeps what it is told.
type spoken struct {
	testing.TB
	text strings.Builder
}

func (s *spoken) Logf(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }

// What is shown of a node's log after a failure is its end, within bounds: where a long output is cut, the words of the
// failure must still be there.
func TestLogOfAFailureIsBounded(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path := filepath.Join(t.TempDir(), "node.log")
	var log strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&log, "line %d %s\n", i, strings.Repeat("x", 5*i))
	}
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	tb := &spoken{TB: t}
	(&Node{ID: "n1", tb: tb, logPath: path}).explain()
	said := tb.text.String()
	if len(said) > 10_000 {
		t.Errorf("%d bytes are shown", len(said))
	}
	for line, want := range map[string]bool{"line 999 ": true, "line 960 ": true, "line 959 ": false} {
		if strings.Contains(said, line) != want {
			t.Errorf("%q is shown: %t", line, !want)
		}
	}
	_, file, _ := strings.Cut(strings.TrimSpace(said), " is in ")
	if whole, err := os.ReadFile(file); err != nil || string(whole) != log.String() {
		t.Errorf("%d bytes are kept of %d, %v", len(whole), log.Len(), err)
	}
}
