package proof

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestWorkerRestartedInGoodOrder: a worker that was asked to stop has given back its name when its process ends. A
// successor, as service managers start one, need not wait for its lease, which here is longer than the test waits for
// anything.
func TestWorkerRestartedInGoodOrder(t *testing.T) {
	heavy(t)
	n := harness.NewNode(t, harness.Build(t), filepath.Join(t.TempDir(), "data"), "--executors", "none", "--lease", "10m")
	n.Start()
	for _, name := range []string{"a", "b", "c"} {
		w := worker(t, n, "w1", "--executors", "shell")
		awaitRun(t, n, makeRun(t, n, shellJob(name, "true")).RunID, job.RunSucceeded)
		w.signal(syscall.SIGTERM)
		if code := w.exit(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}
