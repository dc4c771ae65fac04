//go:build linux

package executor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// Where commands are to be kept apart from the process, a Shell that could not do so is refused with the flag and the
// remedy.
func TestShellApartIsRefused(t *testing.T) {
	private := t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	refused := func(o ShellOptions, field, says string) {
		t.Helper()
		o.Apart = true
		s, err := NewShell(o)
		if err == nil {
			s.Close()
			t.Errorf("%+v was taken", o)
			return
		}
		if e, ok := err.(*job.Error); !ok || e.Field != field || !strings.Contains(err.Error(), says) || e.Remedy == "" {
			t.Errorf("%+v: %v", o, err)
		}
	}
	refused(ShellOptions{}, "--shell-user", "may not run as the node's own user")
	refused(ShellOptions{AsNode: true}, "--shell-as-node", "may become a voter")
	refused(ShellOptions{AsNode: true, User: []string{unprivileged}}, "--shell-as-node", "may become a voter")
	if os.Geteuid() != 0 {
		refused(ShellOptions{User: []string{unprivileged}}, "--shell-user", "does not run as root")
		t.Skip("the rest is about users that only root can run commands as")
	}
	refused(ShellOptions{User: []string{"no-such-user"}}, "--shell-user", "no-such-user")
	refused(ShellOptions{User: []string{"root"}}, "--shell-user", "root could read")
	refused(ShellOptions{User: []string{unprivileged}, Users: []string{"root"}}, "--shell-users", "root could read")
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	refused(ShellOptions{User: []string{unprivileged}, Private: open}, "--data-dir", "other users can open")
	if err := os.Chown(private, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	refused(ShellOptions{User: []string{unprivileged}, Private: private}, "--shell-user", "nobody could read")
}

// A command that is kept apart has the user's rights, home and groups. It has nothing of the process: no variable, no
// file of its directory, no socket there. As the process itself, which was all there was, it has all of that.
func TestShellApart(t *testing.T) {
	onlyRoot(t)
	t.Setenv("CARILLON_TOKEN", "ct1.secret-of-the-process")
	dir := t.TempDir()
	private := filepath.Join(dir, "data")
	if err := errors.Join(os.Mkdir(private, 0o700), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(private, "cluster.pem")
	if err := os.WriteFile(key, []byte("secret-of-the-cluster"), 0o644); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(private, "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	script := fmt.Sprintf("env; id -u; id -G; cat %s; ls %s; tr '\\0' '\\n' </proc/%d/environ; echo HOME=$HOME", key,
		private, os.Getpid())
	apart := newTestShell(t, ShellOptions{User: []string{unprivileged}, Apart: true, Private: private, Cgroup: "none"})
	r := apart.Run(t.Context(), shellJob(t, job.ShellPayload{Command: script}))
	for _, bad := range []string{"secret-of", "admin.sock\n", "\n0\n"} {
		if strings.Contains(r.Output, bad) {
			t.Errorf("the command got %q:\n%s", bad, r.Output)
		}
	}
	if !strings.Contains(r.Output, "\n65534\n65534\n") || strings.Count(r.Output, "Permission denied")+
		strings.Count(r.Output, "cannot open") < 3 {
		t.Errorf("%s\n%s", r.Error, r.Output)
	}
	same := newTestShell(t, ShellOptions{Cgroup: "none"})
	r = same.Run(t.Context(), shellJob(t, job.ShellPayload{Command: script}))
	for _, what := range []string{"secret-of-the-cluster", "admin.sock"} {
		if !strings.Contains(r.Output, what) {
			t.Errorf("the test shows nothing: as the process itself it does not get %q:\n%s", what, r.Output)
		}
	}
}
