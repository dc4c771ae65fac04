package executor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// newIsolated is a Shell whose commands have PID namespaces of their own.
func newIsolated(t *testing.T) *Shell {
	t.Helper()
	onlyRoot(t)
	s := newTestShell(t, ShellOptions{User: []string{unprivileged}, Grace: time.Minute})
	if !s.isolated {
		t.Skipf("no PID namespace can be made here: %v", s.spawn.canIsolate())
	}
	return s
}

// marked is an environment by which the processes of a command are found.
func marked() (env map[string]string, alive func() int) {
	mark := newMark()
	return map[string]string{"ISOLATED": mark}, func() (n int) {
		all, _ := processes()
		for _, p := range all {
			if !p.dead() && (p.carries("ISOLATED="+mark) || p.carries(commandPrefix+"ISOLATED="+mark)) {
				n++
			}
		}
		return n
	}
}

// Commands of one user do not see each other, and not the machine's processes. What is in the environment of one is
// there for any process of the user that is outside.
func TestShellIsolated(t *testing.T) {
	s := newIsolated(t)
	dir := openDir(t)
	result := make(chan job.Result, 1)
	go func() {
		result <- s.Run(t.Context(), jobOf(t, "", job.ShellPayload{Env: map[string]string{"K": secretValue},
			Command: fmt.Sprintf("echo $$ >%s/up; while ! [ -e %[1]s/go ]; do sleep 0.01; done", dir)}, secretValue))
	}()
	pidIn(t, filepath.Join(dir, "up"))
	if r := s.Run(t.Context(), jobOf(t, "", job.ShellPayload{Command: loot})); r.Outcome != job.OutcomeSucceeded || r.Output != "" {
		t.Errorf("it has what is another's: %+v", r)
	}
	peek := exec.Command("/bin/sh", "-c", loot)
	peek.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := peek.CombinedOutput(); err != nil || !strings.Contains(string(out), secretValue) {
		t.Errorf("the test shows nothing: %v: %s", err, out)
	}
	r := s.Run(t.Context(), shellJob(t, job.ShellPayload{
		Command: fmt.Sprintf(`ls -d /proc/[0-9]* | wc -l; ls /proc/%d; cat /proc/1/environ; ls /proc/1/fd; kill -9 1; true`, os.Getpid())}))
	if n, said, _ := strings.Cut(r.Output, "\n"); len(n) != 1 || strings.Contains(r.Output, "ISOLATED") || strings.Count(said, "\n") < 4 ||
		r.Outcome != job.OutcomeSucceeded {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := <-result; r.Outcome != job.OutcomeSucceeded {
		t.Errorf("%+v", r)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Count(string(mounts), " /proc rw,nosuid,nodev,noexec") > 1 {
		t.Errorf("mounts are left: %v\n%s", err, mounts)
	}
}

// signalsIgnored is what /proc says of this process: nohup, for example, has it ignore SIGHUP.
func signalsIgnored(t *testing.T) string {
	status, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "SigIgn:") {
			return line
		}
	}
	t.Fatal("what this process ignores is not known:", err)
	return ""
}

// How a command ends is told as without a PID namespace, and nothing of it is left, also what left its process group.
func TestShellIsolatedEnds(t *testing.T) {
	s := newIsolated(t)
	for name, c := range map[string]struct {
		p         job.ShellPayload
		output    string
		err       string
		permanent bool
	}{
		"success":         {p: job.ShellPayload{Command: "echo a; echo b >&2; echo c"}, output: "a\nb\nc\n"},
		"status":          {p: job.ShellPayload{Command: "echo a; exit 7"}, output: "a\n", err: "exit status 7"},
		"permanent":       {p: job.ShellPayload{Command: "exit 100"}, err: "exit status 100", permanent: true},
		"high status":     {p: job.ShellPayload{Command: "exit 137"}, err: "exit status 137"},
		"killed":          {p: job.ShellPayload{Command: "kill -KILL $$"}, err: "killed by SIGKILL"},
		"its whole group": {p: job.ShellPayload{Command: "sleep 1000 & kill -TERM -$$; wait"}, err: "killed by SIGTERM"},
		"no such program": {p: job.ShellPayload{Argv: []string{"/does/not/exist"}}, err: "not started: /does/not/exist: no such file or directory"},
		"left behind":     {p: job.ShellPayload{Command: "trap '' TERM; sleep 1000 & setsid sleep 1000 & echo done"}, output: "done\n"},
		"reaped": {p: job.ShellPayload{Command: "p=$(sh -c 'sleep 0.05 >/dev/null & echo $!'); while [ -d /proc/$p ]; do sleep 0.01; done; echo reaped"},
			output: "reaped\n"},
		"signals are as the worker has them": {p: job.ShellPayload{Command: "grep -E 'Sig(Ign|Blk)' /proc/self/status"},
			output: "SigBlk:\t0000000000000000\n" + signalsIgnored(t)},
		"flood": {p: job.ShellPayload{Command: "yes | head -n 100000; echo the end"}, output: strings.Repeat("y\n", job.MaxOutputBytes/2-4) + "the end\n"},
	} {
		var alive func() int
		c.p.Env, alive = marked()
		r := s.Run(t.Context(), shellJob(t, c.p))
		if r.Output != c.output || r.Error != c.err || r.Permanent != c.permanent || (r.Outcome == job.OutcomeSucceeded) != (c.err == "") {
			t.Errorf("%s: %q, %+v", name, r.Output[max(0, len(r.Output)-40):], r)
		}
		if n := alive(); n != 0 {
			t.Errorf("%s left %d processes", name, n)
		}
	}
	q := &Queue{Shell: s, Command: "cat; id -un"}
	if r := q.Run(t.Context(), job.Assignment{Fence: 5, Payload: []byte(`{"queue":"q","data":[1]}`)}); r.Output != "[1]\nnobody\n" {
		t.Errorf("%+v", r)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if r := s.Run(ctx, shellJob(t, job.ShellPayload{Command: "true"})); r.Outcome != job.OutcomeFailed {
		t.Errorf("%+v", r)
	}
}

// A command is asked to end, and made to, as it is without a PID namespace.
func TestShellIsolatedStops(t *testing.T) {
	patient := newIsolated(t)
	impatient := newTestShell(t, ShellOptions{User: []string{unprivileged}})
	for name, c := range map[string]struct{ script, output, err string }{
		"dies of SIGTERM":    {"UP; sleep 1000", "", "killed by SIGTERM"},
		"cleans up":          {"trap 'echo bye; exit 7' TERM; UP; while :; do sleep 0.01; done", "bye\n", "exit status 7"},
		"ignores SIGTERM":    {"trap '' TERM; setsid sleep 1000 & UP; while :; do sleep 0.01; done", "", "killed by SIGKILL"},
		"children ignore it": {"(trap '' TERM; while :; do sleep 0.01; done) & UP; wait", "", "killed by SIGTERM"},
		"ends well":          {"trap 'exit 0' TERM; UP; while :; do sleep 0.01; done", "", ""},
	} {
		s := patient
		if c.err == "killed by SIGKILL" {
			s = impatient
		}
		dir := openDir(t)
		ctx, stop := context.WithCancel(t.Context())
		env, alive := marked()
		script := strings.Replace(c.script, "UP", "echo $$ >up", 1)
		result := make(chan job.Result, 1)
		go func() {
			result <- s.Run(ctx, shellJob(t, job.ShellPayload{Command: script, Env: env, Dir: dir}))
		}()
		pidIn(t, filepath.Join(dir, "up"))
		stop()
		r := <-result
		if r.Error != c.err || !strings.HasSuffix(r.Output, c.output) || (r.Outcome == job.OutcomeSucceeded) != (c.err == "") {
			t.Errorf("%s: %+v", name, r)
		}
		if n := alive(); n != 0 {
			t.Errorf("%s left %d processes", name, n)
		}
	}
}

// When the node is killed everything in the namespace ends with it, before its successor has done anything.
func TestShellIsolatedDiesWithTheNode(t *testing.T) {
	newIsolated(t)
	dir, notes := openDir(t), t.TempDir()
	mark := newMark()
	node := exec.Command(os.Args[0])
	node.Env = append(os.Environ(), "EXECUTOR_TEST_HELPER="+notes, "EXECUTOR_TEST_USER="+unprivileged, "EXECUTOR_TEST_SCRIPT="+
		fmt.Sprintf("trap '' TERM; setsid sh -c 'LEFT=%s exec sleep 1000' & export LEFT=%[1]s; sleep 1000 & echo $$ >%s/up; wait", mark, dir))
	node.Stdout, node.Stderr = os.Stdout, os.Stderr
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	pidIn(t, filepath.Join(dir, "up"))
	alive := func() (n int) {
		all, _ := processes()
		for _, p := range all {
			if !p.dead() && p.carries("LEFT="+mark) {
				n++
			}
		}
		return n
	}
	eventually(t, "its children", func() bool { return alive() == 2 })
	_ = node.Process.Kill()
	_ = node.Wait()
	eventually(t, "the end of all", func() bool { return alive() == 0 })
	if _, wait, err := killLeftovers(notes); wait != 0 || err != nil {
		t.Errorf("%v, %v", wait, err)
	}
}

// What keeps commands apart is said once, when the worker starts.
func TestShellSaysWhatCommandsSee(t *testing.T) {
	says := func(o ShellOptions) (*Shell, string) {
		var log bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s := newTestShell(t, o)
		s.Run(t.Context(), shellJob(t, job.ShellPayload{Command: "true"}))
		return s, log.String()
	}
	if _, log := says(ShellOptions{}); !strings.Contains(log, "level=INFO msg=\"commands run as this process") || strings.Count(log, "\n") != 1 {
		t.Error(log)
	}
	onlyRoot(t)
	s, log := says(ShellOptions{User: []string{unprivileged}})
	want := "level=INFO msg=\"each command that runs as another user has a PID namespace"
	if !s.isolated {
		want = "level=WARN msg=\"commands that run as one user see each other"
	}
	if !strings.Contains(log, want) || strings.Count(log, "\n") != 1 {
		t.Error(log)
	}
}
