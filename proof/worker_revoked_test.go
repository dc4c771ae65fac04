package proof

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// A worker whose token is revoked while it works says so and ends; it used to ask the cluster for ever, and its
// supervisor saw a healthy process.
func TestRevokedWorkerEnds(t *testing.T) {
	beside(t)
	binary, dir := harness.Build(t), t.TempDir()
	data, addr := filepath.Join(dir, "data"), harness.FreeAddr(t)
	spawn(t, nil, binary, "server", "--node-id", "n1", "--listen", addr, "--data-dir", data, "--secure", "--bootstrap",
		"--min-free-disk", "0", "--executors", "none")
	cli := func(args ...string) error {
		cmd := exec.Command(binary, append([]string{"--addr", "unix:" + filepath.Join(data, "admin.sock")}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		return cmd.Run()
	}
	harness.Eventually(t, time.Minute, "the node is ready", func() bool { return cli("status", "--ready") == nil })
	token := filepath.Join(dir, "w.token")
	if err := cli("token", "create", "w", "--role", "worker", "--out", token); err != nil {
		t.Fatal(err)
	}
	// Its shell jobs could read the token: that has to be asked for, or prevented.
	out, err := exec.Command(binary, "worker", "--join", addr, "--token-file", token, "--executors", "shell").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "shell jobs that run as the worker's user can read its token") {
		t.Errorf("%v: %s", err, out)
	}
	w := spawn(t, nil, binary, "worker", "--join", addr, "--token-file", token, "--executors", "shell", "--shell-as-node",
		"--name", "w1")
	harness.Eventually(t, time.Minute, "it registers", func() bool { return strings.Contains(w.said(), "w1 registered") })
	if err := cli("token", "revoke", "w"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.done:
	case <-time.After(time.Minute):
		t.Fatalf("it goes on:\n%s", w.said())
	}
	if code := w.cmd.ProcessState.ExitCode(); code == 0 || strings.Count(w.said(), "registration refused") != 1 ||
		!strings.Contains(w.said(), "error: the cluster refused this worker 10 times: the token ") ||
		!strings.Contains(w.said(), "was revoked at") || !strings.Contains(w.said(), "hint: ") {
		t.Errorf("exit %d:\n%s", code, w.said())
	}
}
