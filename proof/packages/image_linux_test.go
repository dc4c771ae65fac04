package packages

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// There is no container engine where the tests run: the root file system is assembled as deploy/Dockerfile.shell says,
// and its command is process 1 of a namespace, as the image's user.

// start runs the image with arguments, until the test ends.
func (m *machine) start(entrypoint []string, args ...string) {
	m.t.Helper()
	var log bytes.Buffer
	const script = `mount --make-rprivate / && mount -t proc proc "$0/proc" && exec chroot --userspec=65532:65532 "$0" "$@"`
	c := exec.Command("sh", append(append([]string{"-ec", script, m.dir}, entrypoint...), args...)...)
	c.Env, c.Dir, c.Stdout, c.Stderr = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "/", &log, &log
	// It is process 1: when it ends, so do all others.
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if m.t.Failed() {
			m.t.Logf("%s", log.String())
		}
	})
}

// states are those of the processes with a name, which is that of this test's copy of a program.
func states(name string) (found string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range dirs {
		if stat, err := os.ReadFile(path); err == nil {
			if _, rest, ok := strings.Cut(string(stat), " ("+name+") "); ok {
				found += rest[:1]
			}
		}
	}
	return found
}

// A shell job runs in the image as its user. What a command leaves behind is reaped, which carillon itself as process 1
// would not do.
func TestShellImage(t *testing.T) {
	needs(t, "debootstrap")
	image := instructions(t, "deploy/Dockerfile.shell")
	var entrypoint []string
	if err := json.Unmarshal([]byte(image["ENTRYPOINT"][0]), &entrypoint); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name       string
		entrypoint []string
		reaped     bool
	}{{"as it is", entrypoint, true}, {"without tini", entrypoint[len(entrypoint)-1:], false}} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t)
			must(t, "tar", "-xzf", filepath.Join(release(t), "carillon_"+version+"_linux_amd64.tar.gz"), "-C", m.dir,
				"--strip-components=1", "carillon_"+version+"_linux_amd64/carillon")
			// Names of processes have fifteen bytes.
			orphan := fmt.Sprintf("orphan%d", os.Getpid()%1_000_000_000)
			m.run("install -d -o 65532 -g 65532 -m 700 /data /keys; mkdir -p /proc; cp /bin/sh /bin/" + orphan)
			addr := harness.FreeAddr(t)
			m.start(test.entrypoint, "server", "--node-id", "n1", "--listen", addr, "--data-dir", "/data", "--bootstrap", "--executors", "http,shell")
			c, ctx := client.New(addr), context.Background()
			harness.Eventually(t, harness.ReadyLimit, "the node is ready", func() bool {
				_, err := m.try("/carillon status --ready --addr unix:/data/admin.sock")
				return err == nil
			})
			// setsid takes it out of the group of the command, which ends with it: that waits until it has. It outlives the
			// shell, which would reap it.
			const left = "setsid %s -c ': >/data/began; until [ -e /data/go ]; do sleep 0.1; done; : >/data/left' </dev/null >/dev/null 2>&1 & " +
				"until [ -e /data/began ]; do sleep 0.1; done; id -u; id -g; cat /etc/debian_version"
			payload := fmt.Appendf(nil, `{"command":%q}`, fmt.Sprintf(left, orphan))
			if _, err := c.CreateJob(ctx, job.Spec{Name: "leaves", Type: job.TypeShell, Schedule: job.ScheduleManual, Payload: payload}); err != nil {
				t.Fatal(err)
			}
			r, err := c.RunJob(ctx, "leaves")
			if err != nil {
				t.Fatal(err)
			}
			var d client.RunDetail
			harness.Eventually(t, harness.ReadyLimit, "the run has ended", func() bool {
				d, err = c.GetRun(ctx, r.RunID)
				return err == nil && d.Status != job.RunNone && !d.Status.Open()
			})
			if d.Status != job.RunSucceeded || !strings.HasPrefix(d.Output, "65532\n65532\n12.") {
				t.Errorf("%s: %q %s", d.Status, d.Output, d.Error)
			}
			harness.Eventually(t, harness.ReadyLimit, "the command left it behind", func() bool { return states(orphan) != "" })
			m.run(": >/data/go")
			harness.Eventually(t, harness.ReadyLimit, "what the command left behind has run", func() bool {
				_, err := os.Stat(filepath.Join(m.dir, "data/left"))
				return err == nil
			})
			if test.reaped {
				harness.Eventually(t, harness.ReadyLimit, "it was reaped", func() bool { return states(orphan) == "" })
			} else {
				harness.Eventually(t, harness.ReadyLimit, "it is a zombie", func() bool { return states(orphan) == "Z" })
			}
		})
	}
}
