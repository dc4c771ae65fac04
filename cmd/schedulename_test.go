package cmd

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/exit"
)

// What H, @every and jitter mean depends on the job. Without one it says so, and with a name it shows the times that
// this job will have.
func TestScheduleOfANamedJob(t *testing.T) {
	s := newShell(t)
	s.want(exit.OK, "", "submit", "--name", "first", "--schedule", "@manual", "--shell", "date")
	s.want(exit.OK, "", "submit", "--name", "hashed", "--schedule", "H H * * *", "--shell", "date")
	out, stderr, code := s.run("", "schedule", "next", "H H * * *", "--count", "1")
	if code != exit.OK || !strings.Contains(stderr, "--name JOB") || strings.Contains(out, "note") {
		t.Errorf("exit %d: %s %s", code, out, stderr)
	}
	next, stderr := s.want(exit.OK, "", "schedule", "next", "H H * * *", "--count", "1", "--name", "hashed")
	if stderr != "" || next == out {
		t.Errorf("%s, without a name %s: %s", next, out, stderr)
	}
	shown, _ := s.want(exit.OK, "", "jobs", "get", "hashed", "--json")
	if at := strings.TrimSpace(next); !strings.Contains(shown, `"next_run_at":"`+at+`"`) {
		t.Errorf("%s, and the job has %s", at, shown)
	}
	if _, stderr := s.want(exit.OK, "", "schedule", "next", "5 4 * * *", "--count", "1"); stderr != "" {
		t.Errorf("of times that depend on no job: %s", stderr)
	}
	if _, stderr := s.want(exit.NotFound, "", "schedule", "next", "H * * * *", "--name", "none"); stderr == "" {
		t.Error("no error")
	}
}
