package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// What systemd is told, at a socket of the test's own.

// serviceManager listens as a service manager does.
type serviceManager struct {
	path string
	said chan string
}

func newServiceManager(t *testing.T) *serviceManager {
	t.Helper()
	m := &serviceManager{filepath.Join(t.TempDir(), "notify"), make(chan string, 10_000)}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			m.said <- string(b[:n])
		}
	}()
	return m
}

// env is what a process of the service finds.
func (m *serviceManager) env(watchdog time.Duration) []string {
	return []string{"env", "NOTIFY_SOCKET=" + m.path, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds())}
}

// await is the next message with a text in it; those before it are returned, too.
func (m *serviceManager) await(t *testing.T, text string) (before []string) {
	t.Helper()
	for end := time.After(2 * time.Minute); ; {
		select {
		case s := <-m.said:
			if strings.Contains(s, text) {
				return before
			}
			before = append(before, s)
		case <-end:
			t.Fatalf("%q was not said after %q", text, before)
		}
	}
}

// A node that has its cluster says that it is ready, feeds the watchdog, and says that it stops. One that waits for
// others has started as well, and says what it waits for; so does one that was restored and is on hold. Commands of jobs
// find no socket.
func TestServiceManagerIsTold(t *testing.T) {
	beside(t)
	binary := harness.Build(t)
	m := newServiceManager(t)
	n := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"), "--executors", "shell")
	n.Wrap = m.env(time.Second)
	n.Start()
	m.await(t, "READY=1")
	m.await(t, "WATCHDOG=1")
	out := filepath.Join(t.TempDir(), "env")
	shellRun(t, n.Client, "env", "env > "+out)
	harness.Eventually(t, harness.ReadyLimit, "the job has run", func() bool {
		b, err := os.ReadFile(out)
		return err == nil && bytes.Contains(b, []byte("PATH="))
	})
	if b, err := os.ReadFile(out); err != nil || regexp.MustCompile(`(?m)^(NOTIFY|WATCHDOG)_`).Match(b) {
		t.Errorf("%v %s", err, b)
	}
	backup := filepath.Join(t.TempDir(), "carillon.bak")
	carillon := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
			t.Fatalf("carillon %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	carillon("backup", backup, "--addr", n.Addr)
	n.Stop()
	m.await(t, "STOPPING=1\nSTATUS=stopping")

	held := newServiceManager(t)
	data := filepath.Join(t.TempDir(), "data")
	carillon("restore", backup, "--data-dir", data, "--node-id", "n1")
	r := harness.NewNode(t, binary, data)
	r.Wrap = held.env(time.Second)
	if err := r.Launch(); err != nil {
		t.Fatal(err)
	}
	held.await(t, "STATUS=the cluster was restored from a backup and is on hold")
	carillon("cluster", "release", "--addr", r.Addr)
	held.await(t, "STATUS=ready")
	r.Stop()

	// The other two are not there, and it stays up for them.
	alone := newServiceManager(t)
	l := []string{harness.FreeAddr(t), harness.FreeAddr(t), harness.FreeAddr(t)}
	w := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"), "--cluster", strings.Join(l, ","))
	w.Move(l[0])
	w.Wrap = alone.env(time.Second)
	if err := w.Launch(); err != nil {
		t.Fatal(err)
	}
	if said := alone.await(t, "STATUS=this node is not part of a cluster yet"); !slices.Contains(said, "READY=1") {
		alone.await(t, "READY=1")
	}
	alone.await(t, "WATCHDOG=1")
	if !w.Alive() {
		t.Error("it did not stay")
	}
	w.Destroy()
}

// A worker with a token whose cluster is away has started as well: it has ended what an earlier start left running, says
// what it waits for and is alive. A stop is no failure of the service then.
func TestServiceManagerIsToldByAWorkerThatWaits(t *testing.T) {
	beside(t)
	m := newServiceManager(t)
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(keys.NewToken(keys.APIToken, keys.Hash{}).Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "state", "procs", "half.json.tmp") // what is left of a note goes when notes are looked at
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(m.env(time.Second), harness.Build(t), "worker", "--join", harness.FreeAddr(t), "--token-file", token,
		"--state-dir", filepath.Join(dir, "state"))
	var out bytes.Buffer
	w := exec.Command(args[0], args[1:]...)
	w.Stdout, w.Stderr = &out, &out
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Process.Kill() //nolint:errcheck // it has ended
	said := m.await(t, "STATUS=waits for the cluster")
	if exists(left) {
		t.Error("what an earlier start left was not looked at")
	}
	if !slices.Contains(said, "READY=1") {
		m.await(t, "READY=1")
	}
	m.await(t, "WATCHDOG=1")
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(); err != nil || strings.Count(out.String(), "waiting for the cluster") != 1 {
		t.Errorf("%v\n%s", err, &out)
	}
}

// shellRun has a command run once.
func shellRun(t *testing.T, c *client.Client, name, command string) {
	t.Helper()
	payload, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := c.CreateJob(ctx, job.Spec{Name: name, Type: job.TypeShell, Schedule: job.ScheduleManual, Payload: payload}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RunJob(ctx, name); err != nil {
		t.Fatal(err)
	}
}

// The units as they are, but for the places of things, under a systemd of the test's own: a user's one, in namespaces
// of its own.
func TestUnitsUnderSystemd(t *testing.T) {
	scenario(t)
	s := startSystemd(t, nil)
	data, addr := filepath.Join(s.dir, "data"), harness.FreeAddr(t)
	config := filepath.Join(s.dir, "server.yaml")
	right := fmt.Sprintf("node-id: n1\nlisten: %s\nbootstrap: true\nexecutors: [shell]\n", addr)
	s.write(config, right)
	s.unit("carillon.service", "server --config "+config, "CARILLON_DATA_DIR="+data)
	s.ctl("start", "carillon")
	harness.Eventually(t, harness.ReadyLimit, "it says that it is ready", func() bool { return s.show("StatusText") == "ready" })

	// A stop waits for what runs.
	c := client.New(addr)
	began, ended := filepath.Join(s.dir, "began"), filepath.Join(s.dir, "ended")
	shellRun(t, c, "slow", "touch "+began+"; sleep 3; touch "+ended)
	harness.Eventually(t, harness.ReadyLimit, "the command runs", func() bool { return exists(began) })
	s.ctl("stop", "carillon")
	if got := s.show("Result"); !exists(ended) || got != "success" {
		t.Errorf("the command was ended, or the service: %s", got)
	}

	// A process that hangs is ended and started anew.
	s.ctl("start", "carillon")
	pid, err := strconv.Atoi(s.show("ExecMainPID"))
	if err != nil {
		t.Fatal(err)
	}
	s.run("kill", "-STOP", strconv.Itoa(pid))
	harness.Eventually(t, 3*time.Minute, "the watchdog ends it", func() bool { return s.show("NRestarts") != "0" })
	harness.Eventually(t, harness.ReadyLimit, "it is ready again", func() bool { return s.show("StatusText") == "ready" })
	if _, err := c.GetJob(context.Background(), "slow"); err != nil {
		t.Error(err)
	}
	s.ctl("stop", "carillon")

	// A configuration that is wrong fails the start. It is tried again, and works when it was mended.
	s.write(config, right+"listne: x\n")
	if out, err := s.try("start", "carillon"); err == nil {
		t.Errorf("it started: %s", out)
	}
	if got := s.show("ExecMainStatus"); got != "2" {
		t.Errorf("it ended with %s", got)
	}
	s.write(config, right)
	harness.Eventually(t, harness.ReadyLimit, "it works", func() bool { return s.show("StatusText") == "ready" })
}

// ownSystemd is a systemd for the units of a test.
type ownSystemd struct {
	t   *testing.T
	dir string // of its configuration, and for what the units write
	pid string
}

// startSystemd starts one, by a command before its own if it is to be on another machine.
func startSystemd(t *testing.T, on []string) *ownSystemd {
	t.Helper()
	const program = "/lib/systemd/systemd"
	for _, need := range []string{program, "unshare", "nsenter", "systemctl"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skipf("there is no %s", need)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("it takes root to make namespaces")
	}
	dir, err := os.MkdirTemp("/srv", "carillon-units") // services have a /tmp of their own
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &ownSystemd{t: t, dir: dir}
	s.write(filepath.Join(dir, "systemd/user/test.target"), "[Unit]\nDescription=test\n")
	script := `mount -t tmpfs tmpfs /run && mkdir -p -m 700 /run/systemd/system /run/user/0 &&
		SYSTEMD_LOG_TARGET=console ` + program + ` --user --unit=test.target; true` // which must not be process 1
	args := append(slices.Clone(on), "unshare", "--mount", "--fork", "--pid", "--mount-proc", "--kill-child", "sh", "-c", script)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR=/run/user/0", "XDG_CONFIG_HOME="+dir, "HOME="+dir)
	log, err := os.Create(filepath.Join(dir, "systemd.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // and with it all in the namespace
		_ = cmd.Wait()
		if b, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s", b)
		}
	})
	harness.Eventually(t, harness.ReadyLimit, "systemd runs", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		if s.pid = strings.TrimSpace(string(b)); s.pid == "" {
			return false
		}
		out, err := s.try("is-active", "test.target")
		return err == nil && strings.TrimSpace(out) == "active"
	})
	return s
}

func (s *ownSystemd) write(path, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// noNamespaces is what a systemd within namespaces cannot do; that it is understood is seen elsewhere.
const noNamespaces = "PrivateUsers=no\nPrivateDevices=no\nPrivateTmp=no\nProtectSystem=no\nProtectHome=no\n" +
	"ProtectProc=default\nProtectClock=no\nProtectHostname=no\nProtectControlGroups=no\nProtectKernelLogs=no\n" +
	"ProtectKernelModules=no\nProtectKernelTunables=no\n"

// unit installs a unit of deploy/systemd, with the binary and the state where the test has them. Root is its user: in
// a user's systemd there is no other.
func (s *ownSystemd) unit(name, command, env string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", "systemd", name))
	if err != nil {
		s.t.Fatal(err)
	}
	binary, err := os.ReadFile(harness.Build(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	at := filepath.Join(s.dir, "carillon")
	if err := os.WriteFile(at, binary, 0o755); err != nil {
		s.t.Fatal(err)
	}
	user := filepath.Join(s.dir, "systemd", "user")
	s.write(filepath.Join(user, name), string(text))
	s.write(filepath.Join(user, name+".d", "test.conf"), "[Service]\nUser=\nGroup=\nStateDirectory=\nConfigurationDirectory=\n"+
		"ExecStart=\nExecStart="+at+" "+command+"\nEnvironment="+env+"\nWatchdogSec=4\nRestartSec=1\n"+noNamespaces)
	s.ctl("daemon-reload")
}

// run calls a program where the services are.
func (s *ownSystemd) run(args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"--target", s.pid, "--mount", "--pid", "--net"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR=/run/user/0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *ownSystemd) try(args ...string) (string, error) {
	return s.run(append([]string{"systemctl", "--user"}, args...)...)
}

func (s *ownSystemd) ctl(args ...string) {
	s.t.Helper()
	if out, err := s.try(args...); err != nil {
		status, _ := s.try("status", "--no-pager", "carillon")
		s.t.Fatalf("systemctl %s: %v\n%s%s", strings.Join(args, " "), err, out, status)
	}
}

func (s *ownSystemd) show(property string) string {
	out, _ := s.try("show", "--value", "--property", property, "carillon")
	return strings.TrimSpace(out)
}

// docs/operate.md as it is written, on three machines of the test's own: keys, one file on each, the units, a login and
// a job that runs; a worker, with a command that only it can run; and a node that is added, takes the place of another
// that lost its disk, and is removed.
func TestOperateDocument(t *testing.T) {
	scenario(t)
	network := harness.NewNet(t, 5)
	text, err := os.ReadFile(filepath.Join("..", "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, m := range regexp.MustCompile("(?s)\n```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		files = append(files, string(m[1]))
	}
	if len(files) != 3 {
		t.Fatalf("%d files in the document", len(files))
	}
	binary, work := harness.Build(t), t.TempDir()
	must := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "CARILLON_CONFIG_DIR="+filepath.Join(work, "config"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("carillon %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	keys := filepath.Join(work, "keys")
	must("cluster", "init", "--out", keys)
	machines := make([]*ownSystemd, 5)
	adapt := func(file string, i int) string {
		file = strings.NewReplacer("node-id: n1", fmt.Sprint("node-id: n", i+1), "listen: 10.0.0.1", "listen: "+network.IP(i),
			"listen: 10.0.0.4", "listen: "+network.IP(i)).Replace(file)
		for k := range 3 {
			file = strings.ReplaceAll(file, fmt.Sprintf("10.0.0.%d:", k+1), network.IP(k)+":")
		}
		return strings.ReplaceAll(file, "/etc/carillon/", machines[i].dir+"/")
	}
	var all []string
	for i := range machines {
		s := startSystemd(t, network.In(i))
		machines[i] = s
		if i >= 3 {
			continue
		}
		all = append(all, network.IP(i)+":7400")
		if err := harness.CopyDir(filepath.Join(s.dir, "keys"), keys); err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(s.dir, "server.yaml")
		s.write(config, adapt(files[0], i))
		s.unit("carillon.service", "server --config "+config, "CARILLON_DATA_DIR="+filepath.Join(s.dir, "data"))
		s.ctl("start", "carillon") // also the first one, which then waits for the others
	}
	for _, s := range machines[:3] {
		harness.Eventually(t, harness.ReadyLimit, "it says that it is ready", func() bool { return s.show("StatusText") == "ready" })
	}
	founder := slices.Index(all, slices.Min(all)) // the lowest address, as text
	must("login", strings.Join(all, ","), "--token-file", filepath.Join(machines[founder].dir, "data", "admin.token"))
	if out := must("status"); strings.Contains(out, "\n!") || strings.Count(out, "voter")+strings.Count(out, "  leader  ") != 3 {
		t.Errorf("status:\n%s", out)
	}
	target, err := net.Listen("tcp", net.JoinHostPort(network.Host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	go http.Serve(target, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) //nolint:errcheck // until it is closed
	must("submit", "--name", "hello", "--schedule", "@every 1s", "--http", "http://"+target.Addr().String())
	runs := func(job, want string) {
		t.Helper()
		harness.Eventually(t, harness.ReadyLimit, job+" is "+want, func() bool { return strings.Contains(must("runs", job), want) })
	}
	runs("hello", "succeeded")

	for _, s := range machines[:3] { // who has the keys can do everything
		if err := os.RemoveAll(filepath.Join(s.dir, "keys")); err != nil {
			t.Fatal(err)
		}
	}
	worker := machines[3]
	token := filepath.Join(worker.dir, "worker.token")
	must("token", "create", "web1", "--role", "worker", "--types", "shell", "--out", token)
	config := filepath.Join(worker.dir, "worker.yaml")
	worker.write(config, adapt(files[1], 3))
	worker.unit("carillon-worker.service", "worker --config "+config, "CARILLON_STATE_DIR="+filepath.Join(worker.dir, "state"))
	worker.ctl("start", "carillon-worker")
	must("submit", "--name", "here", "--schedule", "@every 1s", "--shell", "true", "--worker", "host=web1")
	runs("here", "succeeded")
	worker.ctl("stop", "carillon-worker")
	machines[0].ctl("restart", "carillon") // without the keys' directory, which the file still names
	ready := func(s *ownSystemd) {
		t.Helper()
		harness.Eventually(t, harness.ReadyLimit, "it is ready", func() bool { return s.show("StatusText") == "ready" })
		if out, err := s.run(binary, "status", "--ready", "--addr", "unix:"+filepath.Join(s.dir, "data", "admin.sock")); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}
	ready(machines[0])

	added := machines[4]
	join := func() {
		t.Helper()
		token := filepath.Join(added.dir, "join.token")
		if err := os.RemoveAll(token); err != nil {
			t.Fatal(err)
		}
		must("cluster", "token", "create", "--voter", "--out", token)
		config := filepath.Join(added.dir, "server.yaml")
		added.write(config, adapt(files[2], 4))
		added.unit("carillon.service", "server --config "+config, "CARILLON_DATA_DIR="+filepath.Join(added.dir, "data"))
		added.ctl("start", "carillon")
		ready(added)
	}
	lost := func() {
		t.Helper()
		added.ctl("stop", "carillon")
		must("cluster", "remove", "n4")
		if err := os.RemoveAll(filepath.Join(added.dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	join()
	lost()
	join() // in its own place
	lost()
	if out := must("cluster", "members", "-o", "name"); strings.Contains(out, "n4") {
		t.Errorf("members: %s", out)
	}
}
