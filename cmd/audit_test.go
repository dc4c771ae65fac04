package cmd

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/job"
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
		if code != exit.Unavailable || strings.Count(out, "\n") != 3 || !strings.Contains(stderr, "exported up to 5; to continue, use --after 5 ") {
			t.Errorf("%s: exit %d: %q %q", what, code, out, stderr)
		}
	}
}

// An export goes on behind the lines of a file, whatever groups they are of. What is wrong with the file is said, and
// nothing is asked for then.
func TestExportBehindAFile(t *testing.T) {
	s := newShell(t)
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("after"))
		w.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprintf(w, `{"seq":%d}`+"\n"+`{"seq":6}`+"\n", uint64(3)<<wire.NumberBits+9)
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "lines")
	for _, tt := range []struct {
		has  string // in the file; "-": there is none
		args []string
		code int
		want string // asked for, or what is wrong
		said string
	}{
		{"-", nil, 0, "", ""},
		{"", nil, 0, "", ""},
		{`{"seq":3}` + "\n" + `{"seq":70368744177667}` + "\n" + `{"seq":5,"x":"y"}` + "\n" + `{"seq":4}` + "\n", nil, 0, "5,70368744177667", ""},
		{"-", []string{"--after", "5,70368744177667"}, exit.Usage, "", "both given"},
		{`{"seq":3}` + "\n" + `{"seq":`, nil, exit.Usage, "", "line 2 of " + file + " is not complete"},
		{`{"seq":3}` + "\nnonsense\n", nil, exit.Usage, "", "line 2 of " + file + " is not a record"},
	} {
		asked = nil
		os.Remove(file)
		if tt.has != "-" {
			if err := os.WriteFile(file, []byte(tt.has), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, what := range []string{"audit", "runs"} {
			asked = nil
			_, stderr, code := s.run("", append([]string{what, "export", "--after-file", file, "--addr", srv.URL}, tt.args...)...)
			if code != tt.code || code == 0 && (len(asked) != 1 || asked[0] != tt.want || stderr != "") || code != 0 && len(asked) > 0 || !strings.Contains(stderr, tt.said) {
				t.Errorf("%q: exit %d, asked for %q, %s", tt.has, code, asked, stderr)
			}
		}
	}
	// Without a file the last line does not say how far each group has come, and the command does.
	if _, stderr, code := s.run("", "audit", "export", "--after", "7", "--addr", srv.URL); code != 0 || stderr != fmt.Sprintf("to continue later, use --after 7,%d\n", uint64(3)<<wire.NumberBits+9) {
		t.Errorf("%d %q", code, stderr)
	}
	if _, stderr, code := s.run("", "runs", "export", "--after", "7,x", "--addr", srv.URL); code != exit.Usage || !strings.Contains(stderr, `--after: "x" is not a sequence number`) {
		t.Errorf("%d %q", code, stderr)
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
			!strings.Contains(stderr, "its last complete line") {
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

// Where there is no room for everything, it is still said who it was.
func TestAuditOfANarrowTerminal(t *testing.T) {
	page := client.AuditPage{Records: []client.AuditRecord{
		{Seq: 1204, At: job.At(time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)), Name: "admin socket of n1", Address: "192.0.2.7",
			Action: "job.create", Namespace: "default", Object: "nightly-report", ID: "j_1f", Outcome: "ok"},
		{Seq: 1203, At: job.At(time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)), Name: "team-a-ci-deploy",
			Address: "2001:db8:0:1:1234:5678:9abc:def0", Action: "token.create", Namespace: "team-a", Object: "ci",
			ID: "6xg529gsmmbw", Outcome: "ok"},
	}}
	for width, all := range map[int]bool{0: true, 100: false} {
		var out bytes.Buffer
		p := &printer{a: &app{}, Printer: output.Printer{W: &out, Zone: time.UTC, Width: width, Now: noon}}
		p.Audit(page)
		for _, want := range []string{"admin socket of n1", "team-a-ci-deploy", "job.create", "token.create", "nightly-report"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in %d columns:\n%s", want, width, out.String())
			}
		}
		for _, less := range []string{"FROM", "192.0.2.7", "(j_1f)"} {
			if strings.Contains(out.String(), less) != all {
				t.Errorf("%q in %d columns:\n%s", less, width, out.String())
			}
		}
	}
}

// A submit whose name is taken looks at the job of that name; that is no second try to make it.
func TestRefusedDuplicateLeavesOneRecord(t *testing.T) {
	s := newShell(t)
	submit := []string{"submit", "--name", "once", "--queue", "q", "--schedule"}
	s.want(exit.OK, "", append(submit, "@manual")...)
	s.want(exit.OK, "", append(submit, "@manual")...) // it is there already
	s.want(exit.Conflict, "", append(submit, "@daily")...)
	stdout, _ := s.want(exit.OK, "", "audit", "export")
	if n := strings.Count(stdout, `"action":"job.create"`); n != 3 {
		t.Errorf("three submits left %d records:\n%s", n, stdout)
	}
}
