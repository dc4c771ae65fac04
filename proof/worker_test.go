package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// process is a worker in a process of its own.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func spawn(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, log: filepath.Join(t.TempDir(), "log"), done: make(chan struct{})}
	f, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.cmd = exec.Command(name, args...)
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s %s:\n%s", name, strings.Join(args, " "), p.said())
		}
		if strings.Contains(p.said(), "DATA RACE") {
			t.Error("a data race")
		}
	})
	return p
}

func (p *process) said() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("it does not end:\n%s", p.said())
	}
	return p.cmd.ProcessState.ExitCode()
}

// worker starts `carillon worker` and waits until it has registered.
func worker(t *testing.T, n *harness.Node, name string, flags ...string) *process {
	t.Helper()
	p := spawn(t, nil, n.Binary, append([]string{"worker", "--join", n.Addr, "--name", name}, flags...)...)
	harness.Eventually(t, time.Minute, name+" registered",
		func() bool { return strings.Contains(p.said(), "carillon worker "+name+" registered") })
	return p
}

func makeRun(t *testing.T, n *harness.Node, spec job.Spec) job.Run {
	t.Helper()
	spec.Schedule = job.ScheduleManual
	if _, err := n.Client.CreateJob(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	r, err := n.Client.RunJob(t.Context(), spec.Name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func awaitRun(t *testing.T, n *harness.Node, id string, status job.RunStatus) client.RunDetail {
	t.Helper()
	var d client.RunDetail
	ok := harness.Within(30*time.Second, func() bool {
		var err error
		d, err = n.Client.GetRun(t.Context(), id)
		return err == nil && d.Status == status
	})
	if !ok {
		t.Fatalf("the run is %s (%s %q), never %s", d.Status, d.Reason, d.Error, status)
	}
	return d
}

func shellJob(name, format string, args ...any) job.Spec {
	return job.Spec{Name: name, Type: job.TypeShell,
		Payload: fmt.Appendf(nil, `{"command":%q}`, fmt.Sprintf(format, args...))}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// TestWorkerProcess: a worker alone takes what its tags fit, in three ways, and drains at SIGTERM: what waits for
// its slot goes to another one.
func TestWorkerProcess(t *testing.T) {
	beside(t)
	binary := harness.Build(t)
	n := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"), "--executors", "none")
	n.Start()
	dir := t.TempDir()
	w1 := worker(t, n, "w1", "--executors", "http,shell,queue", "--command", "cat; echo $CARILLON_QUEUE; exit 100",
		"--queues", "mail", "--slots", "1", "--tags", "region=eu", "--egress-allow", "loopback")

	target := harness.NewTarget(t)
	spec := job.Spec{Name: "call", Type: job.TypeHTTP, Workers: map[string]string{"region": "eu"},
		Payload: fmt.Appendf(nil, `{"url":"%s/x"}`, target.URL)}
	if d := awaitRun(t, n, makeRun(t, n, spec).RunID, job.RunSucceeded); d.Worker != "w1" || target.Done() != 1 {
		t.Errorf("%+v, %d requests", d.Run, target.Done())
	}
	q := makeRun(t, n, job.Spec{Name: "q", Type: job.TypeQueue, Payload: []byte(`{"queue":"mail","data":{"n":1}}`)})
	if d := awaitRun(t, n, q.RunID, job.RunDead); d.Reason != job.ReasonPermanent || d.Output != "{\"n\":1}\nmail\n" {
		t.Errorf("%+v", d.Run)
	}
	makeRun(t, n, job.Spec{Name: "elsewhere", Type: job.TypeQueue, Payload: []byte(`{"queue":"sms"}`)})
	makeRun(t, n, func() job.Spec {
		s := shellJob("us",
			"true")
		s.Workers = map[string]string{"region": "us"}
		return s
	}())

	first := makeRun(t, n, shellJob("first", "touch %s/begun; while [ ! -e %s/go ]; do sleep 0.02; done", dir, dir))
	harness.Eventually(t, time.Minute, "it begins", func() bool { return exists(dir + "/begun") })
	var waiting []job.Run
	for i := range 3 {
		waiting = append(waiting, makeRun(t, n, shellJob(fmt.Sprintf("waiting-%d", i), "echo done")))
	}
	w1.signal(syscall.SIGTERM)
	for _, r := range waiting {
		awaitRun(t, n, r.RunID, job.RunPending)
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := w1.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	awaitRun(t, n, first.RunID, job.RunSucceeded)
	w2 := worker(t, n, "w2", "--executors", "shell", "--tags", "region=us")
	for _, r := range waiting {
		if d := awaitRun(t, n, r.RunID, job.RunSucceeded); d.Attempt != 1 || d.Worker != "w2" || len(d.Attempts) != 1 {
			t.Errorf("%+v", d)
		}
	}
	w2.signal(syscall.SIGTERM)
	if code := w2.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for name, want := range map[string]int{"elsewhere": 1, "us": 0} {
		j, err := n.Client.GetJob(t.Context(), name)
		if err != nil || j.OpenRuns != want {
			t.Errorf("%s has %d open runs, %v", name, j.OpenRuns, err)
		}
	}
}

// TestWorkerComesBack: a worker is killed. With a place to remember, its successor ends what it left running before it
// registers, and its run is given out at once.
func TestWorkerComesBack(t *testing.T) {
	beside(t)
	n := harness.NewNode(t, harness.Build(t), filepath.Join(t.TempDir(), "data"), "--executors", "none")
	n.Start()
	dir := t.TempDir()
	flags := []string{"--executors", "shell", "--state-dir", dir + "/state"}
	w := worker(t, n, "w1", flags...)
	second := spawn(t, nil, n.Binary, append([]string{"worker", "--join", n.Addr}, flags...)...)
	if code := second.exit(); code != 4 || !strings.Contains(second.said(), "another worker uses") {
		t.Errorf("a second one exits with %d: %s", code, second.said())
	}
	r := makeRun(t, n, shellJob("a",
		`if [ $CARILLON_ATTEMPT = 1 ]; then ( while :; do echo x >> %s/alive; sleep 0.02; done ) & wait; fi`, dir))
	harness.Eventually(t, time.Minute, "it begins", func() bool { return exists(dir + "/alive") })
	w.signal(syscall.SIGKILL)
	w.exit()
	began := time.Now()
	next := spawn(t, nil, n.Binary, append([]string{"worker", "--join", n.Addr}, flags...)...)
	awaitRun(t, n, r.RunID, job.RunSucceeded)
	if !strings.Contains(next.said(), "carillon worker w1 registered") ||
		!strings.Contains(next.said(), "killed process groups") {
		t.Error(next.said())
	}
	t.Logf("given out again after %s of a 30 s lease", time.Since(began))
	size := func() int64 {
		st, err := os.Stat(dir + "/alive")
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	before := size()
	time.Sleep(200 * time.Millisecond)
	if after := size(); after != before {
		t.Error("the command of the killed worker still runs")
	}
}

func TestWorkerUsage(t *testing.T) {
	beside(t)
	binary := harness.Build(t)
	for _, args := range [][]string{
		{"--slots", "0"}, {"--executors", "nope"}, {"--executors", "queue"}, {"--command", "x"}, {"--join", "nope"},
		{"--tags", "x"}, {"--tags", "queue=a", "--executors", "shell"},
		{"--queues", "a b", "--executors", "queue", "--command", "x"}, {"--log-level", "loud"}, {"--drain-timeout", "0s"},
		{"--prefetch", "1"}, {"extra"},
	} {
		p := spawn(t, nil, binary, append([]string{"worker"}, args...)...)
		if code := p.exit(); code != 2 || !strings.Contains(p.said(), "error: ") {
			t.Errorf("%v: exit code %d: %s", args, code, p.said())
		}
	}
	// No node is there: it says so, and can be stopped.
	p := spawn(t, nil, binary, "worker", "--join", harness.FreeAddr(t))
	harness.Eventually(t, time.Minute, "it says so",
		func() bool { return strings.Contains(p.said(), "cannot reach carillon") })
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.said())
	}
}

// TestCancelAndReplaceReachTheAttempt on the node's own worker and on one elsewhere. (Workers of
// queues: client.TestWorkerCancelAndReplace.)
func TestCancelAndReplaceReachTheAttempt(t *testing.T) {
	beside(t)
	binary := harness.Build(t)
	for _, kind := range []string{"local", "remote"} {
		t.Run(kind, func(t *testing.T) {
			executors := map[string]string{"local": "shell", "remote": "none"}[kind]
			n := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"), "--executors", executors)
			n.Start()
			if kind == "remote" {
				worker(t, n, "w1", "--executors", "shell")
			}
			dir := t.TempDir()
			const script = `echo $$ > %[1]s/$CARILLON_JOB_NAME.tmp; [ -e %[1]s/$CARILLON_JOB_NAME ] && exit 0; mv %[1]s/$CARILLON_JOB_NAME.tmp %[1]s/$CARILLON_JOB_NAME; exec sleep 600`
			a := makeRun(t, n, shellJob("a", script, dir))
			spec := shellJob("b", script, dir)
			spec.Overlap = job.OverlapReplace
			b := makeRun(t, n, spec)
			pids := map[string]int{}
			for _, name := range []string{"a", "b"} {
				harness.Eventually(t, time.Minute, "it begins", func() bool {
					text, err := os.ReadFile(dir + "/" + name)
					pids[name], _ = strconv.Atoi(strings.TrimSpace(string(text)))
					return err == nil && pids[name] > 0
				})
			}
			if _, err := n.Client.CancelRun(t.Context(), a.RunID); err != nil {
				t.Fatal(err)
			}
			next, err := n.Client.RunJob(t.Context(), "b")
			if err != nil {
				t.Fatal(err)
			}
			if d := awaitRun(t, n, a.RunID, job.RunCanceled); d.Reason != job.ReasonCanceled {
				t.Errorf("%+v", d.Run)
			}
			if d := awaitRun(t, n, b.RunID, job.RunCanceled); d.Reason != job.ReasonReplaced {
				t.Errorf("%+v", d.Run)
			}
			awaitRun(t, n, next.RunID, job.RunSucceeded)
			for name, pid := range pids {
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("the command of %s still runs: %v", name, err)
				}
			}
		})
	}
}

// fencedTarget applies an effect unless one with the same key and a higher fence, or the same effect, was applied
// before.
type fencedTarget struct {
	mu      sync.Mutex
	highest map[string]uint64
	applied map[string]int
	refused int
}

func (f *fencedTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fence, _ := strconv.ParseUint(r.Header.Get("Carillon-Fence"), 10, 64)
	key := r.Header.Get("Idempotency-Key")
	f.mu.Lock()
	defer f.mu.Unlock()
	if fence <= f.highest[key] {
		f.refused++
		w.WriteHeader(http.StatusConflict)
		return
	}
	f.highest[key] = fence
	f.applied[key]++
}

func (f *fencedTarget) state() (applied, refused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.applied {
		applied += n
	}
	return applied, f.refused
}

// TestPausedWorker: a worker is stopped (SIGSTOP) beyond its lease in the middle of a run and goes on later. Another
// one has done the run by then: the effect of the first is refused by the target's fence, and its result by the
// leader's.
func TestPausedWorker(t *testing.T) {
	beside(t)
	binary := harness.Build(t)
	for _, kind := range []string{"carillon worker", "pull"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			target := &fencedTarget{highest: map[string]uint64{}, applied: map[string]int{}}
			server := httptest.NewServer(target)
			t.Cleanup(server.Close)
			n := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"), "--executors", "none", "--lease", "2s")
			n.Start()
			dir := t.TempDir()
			start := func(name string) *process { return pullProcess(t, n, name, dir, server.URL) }
			spec := job.Spec{Name: "a", Type: job.TypeQueue, Payload: []byte(`{"queue":"q"}`)}
			if kind == "carillon worker" {
				// The command itself is a process that is not stopped: it must be, for it to be late. It posts at its end whatever
				// happens.
				command := fmt.Sprintf(
					`trap "" TERM; touch %[1]s/begun-$CARILLON_ATTEMPT; while [ $CARILLON_ATTEMPT = 1 ] && [ ! -e %[1]s/go ]; do sleep 0.02; done
exec curl -sS -o /dev/null -X POST -H "Carillon-Fence: $CARILLON_FENCE" -H "Idempotency-Key: $CARILLON_IDEMPOTENCY_KEY" %[2]s`, dir, server.URL)
				if _, err := exec.LookPath("curl"); err != nil {
					t.Skip("curl is not installed")
				}
				start = func(name string) *process {
					return worker(t, n, name, "--executors", "queue", "--command", command, "--slots", "1")
				}
			}
			first := start("first")
			spec.Retry.Base = job.Duration(10 * time.Millisecond)
			r := makeRun(t, n, spec)
			harness.Eventually(t, time.Minute, "the first begins", func() bool { return exists(dir + "/begun-1") })
			first.signal(syscall.SIGSTOP)
			start("second")
			d := awaitRun(t, n, r.RunID, job.RunSucceeded)
			if applied, _ := target.state(); applied != 1 || d.Worker != "second" || d.Attempt != 2 {
				t.Fatalf("applied %d times; %+v", applied, d.Run)
			}
			if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			// With the worker still stopped, or (pull) as soon as it goes on, the late effect arrives.
			if kind == "carillon worker" {
				harness.Eventually(t, time.Minute, "the late effect is refused",
					func() bool { _, refused := target.state(); return refused == 1 })
			}
			first.signal(syscall.SIGCONT)
			harness.Eventually(t, time.Minute, "the late effect is refused",
				func() bool { _, refused := target.state(); return refused == 1 })
			first.signal(syscall.SIGTERM)
			if code := first.exit(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			after := awaitRun(t, n, r.RunID, job.RunSucceeded)
			if applied, _ := target.state(); applied != 1 || after.Fence != d.Fence || len(after.Attempts) != 2 ||
				after.Attempts[1].Reason != job.ReasonWorkerLost {
				t.Errorf("applied %d times; %+v", applied, after)
			}
			n.Stop()
			if err := harness.Check(binary, n.Dir); err != nil {
				t.Error(err)
			}
		})
	}
}

const pullEnv = "CARILLON_PROOF_PULL"

// pullProcess is this test binary as a worker of a queue, written with the Go library.
func pullProcess(t *testing.T, n *harness.Node, name, dir, target string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return spawn(t, []string{pullEnv + "=" + strings.Join([]string{n.Addr, name, dir, target}, ",")}, exe, "-test.run=^$")
}

// pullMain is what it does: in its first attempt it waits for a sign, whatever its context says, as a handler may that
// is badly written.
func pullMain(args string) int {
	a := strings.Split(args, ",")
	addr, name, dir, target := a[0], a[1], a[2], a[3]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := client.Worker{Addrs: []string{addr}, Name: name, Queue: "q",
		Handler: func(_ context.Context, run *client.Run) error {
			if err := os.WriteFile(fmt.Sprintf("%s/begun-%d", dir, run.Attempt), nil, 0o600); err != nil {
				return err
			}
			for run.Attempt == 1 && !exists(dir+"/go") {
				time.Sleep(20 * time.Millisecond)
			}
			rq, err := http.NewRequest("POST", target, nil)
			if err != nil {
				return err
			}
			rq.Header.Set("Carillon-Fence", strconv.FormatUint(run.Fence, 10))
			rq.Header.Set("Idempotency-Key", run.Key)
			res, err := http.DefaultClient.Do(rq)
			if err != nil {
				return err
			}
			return res.Body.Close()
		}}.Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestWorkersDocument runs what docs/workers.md tells people to type.
func TestWorkersDocument(t *testing.T) {
	beside(t)
	for _, tool := range []string{"bash", "curl", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	text, err := os.ReadFile(filepath.Join(harness.Sources(t), "docs", "workers.md"))
	if err != nil {
		t.Fatal(err)
	}
	addr := harness.FreeAddr(t)
	dev := spawn(t, nil, harness.Build(t), "dev", "--listen", addr, "--data-dir", filepath.Join(t.TempDir(), "data"))
	c := client.New(addr, client.WithAttempts(1))
	harness.Eventually(t, time.Minute, "it serves", func() bool { return c.Ready(t.Context()) == nil })

	script := "set -eu\n"
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1)
	for i, b := range blocks {
		script += fmt.Sprintf("echo; echo '--- block %d'\n%s", i, b[1])
	}
	if len(blocks) < 5 {
		t.Fatalf("%d blocks", len(blocks))
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(script, "127.0.0.1:7400", addr))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"to":"ada@example.com"`, `"status":"ok","repeated":true`,
		`"reason":"permanent_failure"`, `550 no such mailbox`} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, bad := range []string{"urn:carillon:error", `"status":"stale"`} {
		if bytes.Contains(out, []byte(bad)) {
			t.Errorf("there is %s", bad)
		}
	}
	if t.Failed() {
		_, _ = io.Copy(os.Stderr, bytes.NewReader(out))
	}
	dev.signal(syscall.SIGTERM)
	if code := dev.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
