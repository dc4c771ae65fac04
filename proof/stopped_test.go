package proof

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// toEnd runs a command to its end.
func toEnd(t *testing.T, binary string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		t.Error(err)
		return "", "", -1
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// TestStoppedNode: a node is stopped (SIGSTOP): it accepts connections and never answers. No command waits for it for
// ever, and commands and workers that know another node go on with that one, whether the stopped one follows or leads.
func TestStoppedNode(t *testing.T) {
	beside(t)
	binary := harness.Build(t)
	c := harness.NewCluster(t, binary, 3, "--lease", "4s")
	for _, role := range []string{"follower", "leader"} {
		t.Run(role, func(t *testing.T) {
			stopped := c.Leader()
			if role == "follower" {
				stopped = c.Others(stopped)[0]
			}
			var healthy []string
			for _, n := range c.Others(stopped) {
				healthy = append(healthy, n.Addr)
			}
			all := strings.Join(append([]string{stopped.Addr}, healthy...), ",")
			thaw := stopped.Freeze("commands meet a node that is stopped")

			var wg sync.WaitGroup
			for _, args := range [][]string{
				{"status"}, {"jobs"}, {"runs", "export"}, {"backup", filepath.Join(t.TempDir(), "b")},
				{"submit", "--request-timeout", "1s", "--name", "never", "--schedule", "@manual", "--queue", "q"},
			} {
				wg.Go(func() {
					if args[0] != "submit" {
						args = append(args, "--timeout", "1s")
					}
					_, stderr, code := toEnd(t, binary, append(args, "--addr", stopped.Addr)...)
					if code != 5 || !strings.Contains(stderr, "no answer from carillon at http://"+stopped.Addr+" within ") {
						t.Errorf("%s: exit %d: %s", args[0], code, stderr)
					}
					if args[0] == "submit" && !strings.Contains(stderr, "--idempotency-key ") {
						t.Errorf("it does not say how to repeat it safely: %s", stderr)
					}
				})
			}
			wg.Wait()

			w := spawn(t, nil, binary, "worker", "--join", all, "--name", role, "--executors", "queue", "--command", "true",
				"--tags", "for="+role)
			for _, args := range [][]string{
				{"submit", "--name", role, "--schedule", "@manual", "--queue", "q", "--worker", "for=" + role, "--request-timeout",
					"12s"},
				{"jobs", "run", role, "--timeout", "12s"},
				{"backup", filepath.Join(t.TempDir(), "b"), "--timeout", "12s"},
			} {
				if _, stderr, code := toEnd(t, binary, append(args, "--addr", all)...); code != 0 {
					t.Errorf("%s: exit %d: %s", args[0], code, stderr)
				}
			}
			harness.Eventually(t, 60*time.Second, "the worker passes over the stopped node and does the run", func() bool {
				out, _, _ := toEnd(t, binary, "runs", role, "--addr", healthy[0], "--status", job.RunSucceeded.String())
				return strings.Contains(out, "succeeded")
			})
			thaw()
			w.signal(syscall.SIGTERM)
			if code := w.exit(); code != 0 {
				t.Errorf("the worker ended with %d", code)
			}
		})
	}
	// What was sent to a stopped node and given up may be done when that goes on: once.
	c.Same(time.Minute)
	c.StopAndCheck()
}
