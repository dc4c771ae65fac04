package cmd

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/exit"
)

// The leader is killed in the middle of an export: that does not look like its end, and it can be gone on with.
func TestExportThatBreaksOff(t *testing.T) {
	s := newShell(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for seq := 3; seq <= 5; seq++ {
			fmt.Fprintf(w, `{"seq":%d,"at":"2026-11-16T00:00:00Z","action":"job.create","kind":"job","outcome":"ok"}`+"\n", seq)
		}
		fmt.Fprint(w, `{"seq":6,"at":"2026-11-16T0`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	for _, what := range []string{"audit", "runs"} {
		out, stderr, code := s.run("", what, "export", "--after", "2", "--addr", strings.TrimPrefix(srv.URL, "http://"))
		if code != exit.Unavailable || strings.Count(out, "\n") != 3 || !strings.Contains(stderr, "exported up to 5; go on with --after 5 ") {
			t.Errorf("%s: exit %d: %q %q", what, code, out, stderr)
		}
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// What could not be written is not said to be exported.
func TestExportThatCannotBeWritten(t *testing.T) {
	s := newShell(t)
	s.populate()
	for _, what := range []string{"audit", "runs"} {
		var errOut bytes.Buffer
		a := s.app()
		root := a.root()
		root.SetOut(full{})
		root.SetErr(&errOut)
		a.args = []string{what, "export"}
		code, stderr := a.execute(t.Context(), root, &errOut), errOut.String()
		if code != exit.Failure || !strings.Contains(stderr, "no space left") || strings.Contains(stderr, "exported up to") ||
			!strings.Contains(stderr, "its last whole line") {
			t.Errorf("%s: exit %d: %q", what, code, stderr)
		}
	}
}

// Names come from outside. A record stays in its line, and no terminal obeys it.
func TestAuditShowsNoControls(t *testing.T) {
	s := newShell(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"records":[{"seq":7,"at":"2026-11-16T00:00:00Z","name":"ci\u001b]0;x\u0007","address":"192.0.2.7",`+
			`"action":"job.create","kind":"job","object":"a\nb\u009b2J","namespace":"default","outcome":"ok"}]}`)
	}))
	defer srv.Close()
	out, stderr, code := s.run("", "audit", "--addr", strings.TrimPrefix(srv.URL, "http://"))
	if code != 0 || strings.ContainsAny(out, "\x1b\x07\u009b") || strings.Count(out, "\n") != 2 || !strings.Contains(out, "192.0.2.7") {
		t.Errorf("exit %d: %q %s", code, out, stderr)
	}
}
