package cmd

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/exit"
)

// deaf is a listener that accepts and never answers, as a stopped process does.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String() // the kernel accepts
}

// No command waits for ever for a node that accepts and does not answer, and a list of addresses goes on to one that
// does.
func TestTimeoutAndAddresses(t *testing.T) {
	s := newShell(t)
	s.populate()
	stopped := deaf(t)
	for _, args := range [][]string{
		{"jobs"}, {"status"}, {"runs", "hello"}, {"runs", "export"}, {"dead"}, {"queues"}, {"cluster", "members"},
		{"jobs", "pause", "hello"}, {"backup", t.TempDir() + "/b"},
	} {
		_, stderr, code := s.run("", append(args, "--addr", stopped, "--timeout", "50ms")...)
		if code != exit.Unavailable || !strings.Contains(stderr, "no answer from carillon at http://"+stopped) {
			t.Errorf("%v: exit %d: %s", args, code, stderr)
		}
	}
	if _, stderr, code := s.run("", "jobs", "pause", "hello", "--addr", stopped, "--timeout",
		"50ms"); code != exit.Unavailable ||
		!strings.Contains(stderr, "outcome unknown") || !strings.Contains(stderr, "hint: repeat it with --idempotency-key ") {
		t.Errorf("a change without an answer: exit %d: %s", code, stderr)
	}
	s.env["CARILLON_TIMEOUT"] = "600ms"
	if out, stderr, code := s.run("", "jobs", "pause", "hello", "--addr", stopped+","+s.addr); code != 0 ||
		!strings.Contains(out, "hello") {
		t.Errorf("exit %d: %s %s", code, out, stderr)
	}
	for _, tt := range []struct {
		want string
		env  string
		args []string
	}{
		{"CARILLON_TIMEOUT", "soon", []string{"jobs"}},
		{"--timeout", "", []string{"jobs", "--timeout", "-1s"}},
		{"--request-timeout", "", []string{"submit", "--request-timeout", "-1s", "--schedule", "@manual", "--shell", "true"}},
		{"--addr", "", []string{"cluster", "leave", "--addr", "a,b"}},
		{"addr", "", []string{"jobs", "--addr", "a,,b"}},
	} {
		s.env["CARILLON_TIMEOUT"] = tt.env
		if _, stderr, code := s.run("", tt.args...); code != exit.Usage || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit %d: %s", tt.args, code, stderr)
		}
	}
	// The job's own timeout is not the request's.
	if out, stderr, code := s.run("", "submit", "--timeout", "1h", "--schedule", "@manual", "--shell", "true",
		"--json"); code != 0 || !strings.Contains(out, `"timeout":"1h0m0s"`) {
		t.Errorf("exit %d: %s %s", code, out, stderr)
	}
}

// With --json a program can read what went wrong, wherever the flag stands.
func TestErrorsAreJSON(t *testing.T) {
	s := newShell(t)
	for _, tt := range []struct {
		code string
		exit int
		args []string
	}{
		{"not_found", exit.NotFound, []string{"jobs", "get", "nope", "--json"}},
		{"invalid", exit.Usage, []string{"--json", "jobs", "--nonsense"}},
		{"invalid", exit.Usage, []string{"jobs", "--nonsense", "--json"}},
		{"invalid", exit.Usage, []string{"nonsense", "--json"}},
		{"invalid", exit.Usage, []string{"jobs", "get", "--json"}},
		{"invalid", exit.Usage, []string{"jobs", "get", "", "--json"}},
		{"invalid", exit.Usage, []string{"submit", "--json", "--schedule", "@manual", "--shell", "true", "--header", "x"}},
		{"unavailable", exit.Unavailable, []string{"jobs", "--json", "--addr", deaf(t), "--timeout", "50ms"}},
	} {
		out, stderr, code := s.run("", tt.args...)
		var e struct {
			Code, Detail string
			ExitCode     int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(stderr), &e); err != nil || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: %v: %q", tt.args, err, stderr)
		}
		if out != "" || e.Code != tt.code || e.Detail == "" || code != tt.exit || e.ExitCode != code {
			t.Errorf("%v: exit %d, %+v, %q", tt.args, code, e, out)
		}
	}
	stdin := "{\"name\":\"x\",\n\"typ\":\"shell\"}"
	if _, stderr, _ := s.run(stdin, "submit", "-", "--json"); !strings.Contains(stderr, `"where":"standard input:1"`) ||
		!strings.Contains(stderr, `"field":"typ"`) {
		t.Error(stderr)
	}
}
