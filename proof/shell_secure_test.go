package proof

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// letIn opens directories of a test to other users: what is kept from them is so by its own rights.
func letIn(t *testing.T, dirs ...string) {
	t.Helper()
	for _, d := range dirs {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// Who may write shell jobs tries to become an admin of a secure cluster: by the keys and tokens in the data directory,
// by the admin socket, by the environment of the node. Before commands had to run as another user, each of these worked;
// now a node that would let them is not started, and on the others none does.
func TestShellJobGetsNoKeys(t *testing.T) {
	beside(t)
	if os.Geteuid() != 0 {
		t.Skip("commands run as another user only if the node runs as root")
	}
	binary, dir := harness.Build(t), t.TempDir()
	letIn(t, filepath.Dir(binary), dir, filepath.Dir(dir))
	data := filepath.Join(dir, "data")
	args := func(more ...string) []string {
		return append([]string{"server", "--node-id", "n1", "--listen", harness.FreeAddr(t), "--data-dir", data, "--secure",
			"--bootstrap", "--min-free-disk", "0", "--executors", "shell"}, more...)
	}
	for _, bad := range [][]string{
		{"--shell-user", "on a secure cluster shell jobs may not run as the node's own user"},
		{"--shell-as-node", "a node of a secure cluster may become a voter", "--shell-as-node"},
		{"--shell-user", "root could read the node's private files", "--shell-user", "root"},
	} {
		out, err := exec.Command(binary, args(bad[2:]...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), bad[0]+": ") || !strings.Contains(string(out), bad[1]) ||
			!strings.Contains(string(out), "hint: ") {
			t.Errorf("%q: %v: %s", bad, err, out)
		}
	}
	node := spawn(t, []string{"CARILLON_SMTP_PASSWORD=word-of-the-node"}, binary, args("--shell-user", "nobody,team-a=daemon")...)
	socket := "unix:" + filepath.Join(data, "admin.sock")
	cli := func(args ...string) ([]byte, error) {
		cmd := exec.Command(binary, append([]string{"--addr", socket}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		return cmd.Output()
	}
	harness.Eventually(t, time.Minute, "the node is ready", func() bool {
		_, err := cli("status", "--ready")
		return err == nil
	})
	script := fmt.Sprintf("id -un; env; ls %[1]s; cat %[1]s/keys/cluster.pem %[1]s/admin.token %[1]s/node.json; "+
		"tr '\\0' '\\n' </proc/%[2]d/environ; ls -l /proc/%[2]d/fd; %[3]s --addr %[4]s token list; true",
		data, node.cmd.Process.Pid, binary, socket)
	carryOut := func(namespace, script string, flags ...string) []byte {
		t.Helper()
		if out, err := cli(append([]string{"submit", "-n", namespace, "--name", "attack", "--at", "now", "--max-retries", "0",
			"--shell", script}, flags...)...); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		var run job.Run
		harness.Eventually(t, time.Minute, "the command has ended", func() bool {
			out, err := cli("runs", "attack", "-n", namespace, "--json")
			var page client.RunPage
			if err != nil || json.Unmarshal(out, &page) != nil || len(page.Runs) == 0 {
				return false
			}
			run = page.Runs[0]
			return run.Status == job.RunSucceeded || run.Status == job.RunDead
		})
		out, err := cli("runs", "get", run.RunID, "-n", namespace, "--json")
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return out
	}
	out := carryOut("default", script)
	if !strings.Contains(string(out), `nobody\n`) {
		t.Fatalf("%s", out)
	}
	for _, what := range []string{"PRIVATE KEY", "ct1.", "instance", "word-of-the-node", "socket:[", "STATUS"} {
		if strings.Contains(string(out), what) {
			t.Errorf("the command got %q:\n%s", what, out)
		}
	}

	// A namespace has its user, and its secrets go to no command that runs as a user of others.
	for _, namespace := range []string{"team-a", "team-b"} {
		set := exec.Command(binary, "--addr", socket, "secret", "set", "key", "-n", namespace)
		set.Env, set.Stdin = append(os.Environ(), "HOME="+dir), strings.NewReader("correct-horse-battery")
		if out, err := set.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	if out := carryOut("team-a", "id -un", "--env", "K=secret://key"); !strings.Contains(string(out), `daemon\n`) {
		t.Errorf("%s", out)
	}
	if out := carryOut("team-b", "id -un", "--env", "K=secret://key"); !strings.Contains(string(out), "--shell-user team-b=USER") {
		t.Errorf("%s", out)
	}
}

// The memory and the environment of a secure node are its own: another process of the same user can neither trace it nor
// read what the system shows of it. That worked before, and does for a plain node.
func TestSecureNodeIsNotDumpable(t *testing.T) {
	beside(t)
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("two processes of another user need root, and what is looked at is Linux's")
	}
	binary, dir := harness.Build(t), t.TempDir()
	letIn(t, filepath.Dir(binary), dir, filepath.Dir(dir))
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	for mode, flags := range map[string][]string{"secure": {"--secure"}, "plain": nil} {
		data := filepath.Join(dir, mode)
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(data, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary, append([]string{"server", "--node-id", "n1", "--listen", harness.FreeAddr(t), "--data-dir",
			data, "--bootstrap", "--min-free-disk", "0"}, flags...)...)
		cmd.Env = []string{"CARILLON_SMTP_PASSWORD=word-of-the-node"}
		cmd.SysProcAttr = nobody
		if err := cmd.Start(); err != nil {
			t.Skipf("the binary cannot be run as another user: %v", err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		harness.Eventually(t, time.Minute, mode+" node is ready", func() bool {
			return exec.Command(binary, "--addr", "unix:"+filepath.Join(data, "admin.sock"), "status", "--ready").Run() == nil
		})
		peek := exec.Command("cat", fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid))
		peek.SysProcAttr = nobody
		out, err := peek.CombinedOutput()
		if got := strings.Contains(string(out), "word-of-the-node"); got != (mode == "plain") {
			t.Errorf("%s: read by its own user: %v (%v: %s)", mode, got, err, out)
		}
	}
}
