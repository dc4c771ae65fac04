package observe

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// long marks a test that the plain run leaves out.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() || !harness.Long() {
		t.Skip("a long scenario; set CARILLON_LONG=1")
	}
}

// process is a program beside the nodes.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// spawn starts one, which ends with the test at the latest.
func spawn(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{log: filepath.Join(t.TempDir(), "log"), done: make(chan struct{})}
	f, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.cmd = exec.Command(name, args...)
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %s:\n%s", filepath.Base(name), strings.Join(args, " "), p.said())
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) said() string {
	b, _ := os.ReadFile(p.log)
	if len(b) > 4000 {
		b = b[len(b)-4000:]
	}
	return string(b)
}

// startWorker starts `carillon worker`, with its metrics.
func startWorker(t *testing.T, n *harness.Node, name string, flags ...string) (p *process, metrics string) {
	t.Helper()
	metrics = harness.FreeAddr(t)
	p = spawn(t, n.Binary, append([]string{"worker", "--join", n.Addr, "--name", name, "--metrics-listen", metrics},
		flags...)...)
	harness.Eventually(t, harness.ReadyLimit, name+" serves its metrics", func() bool {
		r, err := http.Get("http://" + metrics + "/metrics") //nolint:noctx // a test
		if err == nil {
			r.Body.Close()
		}
		return err == nil && strings.Contains(p.said(), "carillon worker "+name+" registered")
	})
	return p, metrics
}
