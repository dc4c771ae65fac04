package cmd

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/job"
)

// What no worker can carry out is refused as such, with what it can.
func TestWorkerExecutors(t *testing.T) {
	s := newShell(t)
	for _, e := range []string{"foo", "http,foo"} {
		if _, errOut, code := s.run("", "worker", "--executors", e); code != exit.Usage ||
			!strings.Contains(errOut, "--executors") || !strings.Contains(errOut, "hint: use "+strings.Join(job.Types(), ", ")+"\n") {
			t.Errorf("%s: %d %s", e, code, errOut)
		}
	}
}
