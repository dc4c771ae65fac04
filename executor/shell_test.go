//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

func shellJob(t *testing.T, p job.ShellPayload) job.Assignment {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC)
	return job.Assignment{Run: job.RunKey{Job: 42, At: at.UnixMilli(), Origin: job.OriginManual}, JobName: "nightly", Attempt: 2,
		Fence: 77, Key: "the-key", Type: job.TypeShell, Payload: b}
}

func newTestShell(t *testing.T, o ShellOptions) *Shell {
	t.Helper()
	if o.Grace == 0 {
		o.Grace = 100 * time.Millisecond
	}
	s, err := NewShell(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// eventually waits for an event.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func alive(pid int) bool {
	p, err := readProcess(pid)
	return err == nil && !p.dead()
}

// pidIn reads a pid that a script writes to a file, once it is there.
func pidIn(t *testing.T, path string) (pid int) {
	t.Helper()
	eventually(t, path, func() bool {
		b, _ := os.ReadFile(path)
		var err error
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil && strings.HasSuffix(string(b), "\n")
	})
	return pid
}

func TestShell(t *testing.T) {
	dir := t.TempDir()
	s := newTestShell(t, ShellOptions{Dir: filepath.Join(dir, "notes")})
	tool := filepath.Join(dir, "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho from the tool\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		p      job.ShellPayload
		output string
		err    string
	}{
		"script":             {job.ShellPayload{Command: "echo hello | tr h j"}, "jello\n", ""},
		"argv":               {job.ShellPayload{Argv: []string{"echo", "$HOME", "a b"}}, "$HOME a b\n", ""},
		"both streams":       {job.ShellPayload{Command: "echo a; echo b >&2; echo c"}, "a\nb\nc\n", ""},
		"no input":           {job.ShellPayload{Command: "cat; echo end"}, "end\n", ""},
		"fails":              {job.ShellPayload{Command: "echo why; exit 3"}, "why\n", "exit status 3"},
		"fails for good":     {job.ShellPayload{Command: "exit 100"}, "", "exit status 100"},
		"kills itself":       {job.ShellPayload{Command: "kill -9 $$"}, "", "killed by SIGKILL"},
		"directory":          {job.ShellPayload{Command: "pwd -P", Dir: "/"}, "/\n", ""},
		"own path":           {job.ShellPayload{Argv: []string{"tool"}, Env: map[string]string{"PATH": dir + ":/bin"}}, "from the tool\n", ""},
		"own variable":       {job.ShellPayload{Command: "echo $A$B", Env: map[string]string{"A": "1", "B": "x=y"}}, "1x=y\n", ""},
		"group of its own":   {job.ShellPayload{Command: "test $(ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat) -eq $$ && echo yes"}, "yes\n", ""},
		"session of its own": {job.ShellPayload{Command: "test ! -e /proc/$$/stat || test $(cut -d' ' -f6 /proc/$$/stat) -eq $$ && echo yes"}, "yes\n", ""},
		"no such program":    {job.ShellPayload{Argv: []string{"no-such-program"}}, "", `"no-such-program" was not found on PATH`},
		"no such path":       {job.ShellPayload{Argv: []string{"/no/such"}}, "", "fork/exec /no/such: no such file or directory"},
		"no such dir":        {job.ShellPayload{Command: "true", Dir: "/no/such"}, "", "stat /no/such: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.Run(t.Context(), shellJob(t, c.p))
			want := job.OutcomeSucceeded
			if c.err != "" {
				want = job.OutcomeFailed
			}
			if r.Outcome != want || r.Output != c.output || r.Error != c.err || r.Permanent != (name == "fails for good") {
				t.Fatalf("%+v", r)
			}
		})
	}
	for name, p := range map[string]string{"neither": `{}`, "both": `{"command":"a","argv":["b"]}`, "unknown": `{"cmd":"a"}`} {
		if r := s.Run(t.Context(), job.Assignment{Payload: json.RawMessage(p)}); r.Outcome != job.OutcomeFailed || !r.Permanent {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "notes")); len(left) != 0 {
		t.Errorf("notes of groups that ended: %v", left)
	}
}

func TestShellEnvironment(t *testing.T) {
	t.Setenv("CARILLON_TOKEN", "of the node")
	t.Setenv("AWS_SECRET", "of the node")
	t.Setenv("HOME", t.TempDir())
	s := newTestShell(t, ShellOptions{})
	a := shellJob(t, job.ShellPayload{Argv: []string{"env"}, Env: map[string]string{"ZONE": "a", "CARILLON_FENCE": "1", "TRACEPARENT": "x"}})
	a.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r := s.Run(t.Context(), a)
	got := slices.DeleteFunc(strings.Split(strings.TrimSpace(r.Output), "\n"),
		func(line string) bool { return strings.HasPrefix(line, envMark) })
	want := []string{"PATH=" + defaultPath, "HOME=" + os.Getenv("HOME"), "ZONE=a", "CARILLON_JOB=j_1a", "CARILLON_JOB_NAME=nightly",
		"CARILLON_RUN=" + a.Run.String(), "CARILLON_SCHEDULED_AT=2027-03-01T09:00:00Z", "CARILLON_ATTEMPT=2", "CARILLON_FENCE=77",
		"CARILLON_IDEMPOTENCY_KEY=the-key", "TRACEPARENT=" + a.Traceparent}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("environment:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// start runs a script in the background and returns how to stop it and where its result will be.
func start(t *testing.T, s *Shell, script string) (stop context.CancelCauseFunc, result chan job.Result) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	a := shellJob(t, job.ShellPayload{Command: script, Dir: t.TempDir()})
	result = make(chan job.Result, 1)
	go func() { result <- s.Run(ctx, a) }()
	t.Cleanup(func() { stop(nil) })
	return stop, result
}

func TestShellStop(t *testing.T) {
	const wait, ready = "while :; do sleep 0.01; done", "echo $$ > DIR/ready; "
	for name, c := range map[string]struct {
		script, err, output string
	}{
		"dies of SIGTERM": {ready + "sleep 100", "killed by SIGTERM", ""},
		"cleans up":       {"trap 'echo bye; exit 7' TERM; " + ready + wait, "exit status 7", "bye\n"},
		"ignores SIGTERM": {"trap '' TERM; " + ready + wait, "killed by SIGKILL", ""},
		"children ignore it": {"(trap '' TERM; echo $(sh -c 'echo $PPID') > DIR/child; " + wait + ") & " + ready + "wait",
			"killed by SIGTERM", ""},
		"success at the last moment": {"trap 'exit 0' TERM; " + ready + wait, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := ShellOptions{Grace: time.Minute} // a machine under load may take long to run a trap
			if name == "ignores SIGTERM" {
				o.Grace = 100 * time.Millisecond
			}
			s := newTestShell(t, o)
			dir := t.TempDir()
			stop, result := start(t, s, strings.ReplaceAll(c.script, "DIR", dir))
			pids := []int{pidIn(t, filepath.Join(dir, "ready"))}
			if strings.Contains(c.script, "child") {
				pids = append(pids, pidIn(t, filepath.Join(dir, "child")))
			}
			stop(worker.ErrTimeout)
			r := <-result
			if (r.Outcome == job.OutcomeSucceeded) != (c.err == "") || r.Error != c.err ||
				!strings.HasSuffix(r.Output, c.output) { // the shell may say "Terminated" before
				t.Errorf("%+v", r)
			}
			for _, pid := range pids {
				eventually(t, fmt.Sprintf("the end of %d", pid), func() bool { return !alive(pid) })
			}
		})
	}
}

// What a script leaves in its group ends with it, and does not hold up its result.
func TestShellLeftoverChildren(t *testing.T) {
	s := newTestShell(t, ShellOptions{})
	r := s.Run(t.Context(), shellJob(t, job.ShellPayload{Command: "trap '' TERM; sleep 1000 & echo $!"}))
	if r.Outcome != job.OutcomeSucceeded {
		t.Fatalf("%+v", r)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(r.Output))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the child", func() bool { return !alive(pid) })
}

// A daemon that left the group keeps the pipe; it is not waited for.
func TestShellDaemonKeepsThePipe(t *testing.T) {
	s := newTestShell(t, ShellOptions{})
	f := filepath.Join(t.TempDir(), "pid")
	script := fmt.Sprintf("setsid sh -c 'echo $$ > %s; exec sleep 1000' & while ! [ -s %s ]; do sleep 0.01; done; echo started", f, f)
	r := s.Run(t.Context(), shellJob(t, job.ShellPayload{Command: script}))
	pid := pidIn(t, f)
	defer unix.Kill(pid, unix.SIGKILL)
	if r.Outcome != job.OutcomeSucceeded || r.Output != "started\n" {
		t.Fatalf("%+v", r)
	}
	if !alive(pid) {
		t.Fatal("the daemon should have been left alone")
	}
}

func TestShellFlood(t *testing.T) {
	s := newTestShell(t, ShellOptions{})
	r := s.Run(t.Context(), shellJob(t, job.ShellPayload{Command: "yes ééééééééé | head -n 1000000; echo the end"}))
	if r.Outcome != job.OutcomeSucceeded || len(r.Output) > job.MaxOutputBytes || len(r.Output) < job.MaxOutputBytes-4 ||
		!strings.HasSuffix(r.Output, "\nthe end\n") || strings.ToValidUTF8(r.Output, "") != r.Output || strings.Contains(r.Output, "\ufffd") {
		t.Fatalf("%v %q: %d bytes, beginning with %q", r.Outcome, r.Error, len(r.Output), r.Output[:min(20, len(r.Output))])
	}
}

func TestTailBuffer(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		b := newTailBuffer(64)
		var all []byte
		for range rng.IntN(12) {
			p := make([]byte, rng.IntN(100))
			for i := range p {
				p[i] = byte(rng.IntN(256))
			}
			if n, err := b.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			all = append(all, p...)
		}
		if want := all[max(0, len(all)-64):]; !slices.Equal(b.Bytes(), want) {
			t.Fatalf("kept %x, want %x", b.Bytes(), want)
		}
	}
}

// Threads come and go in a Go program; a command must not go with the thread that happened to start it.
func TestShellSurvivesDyingThreads(t *testing.T) {
	s := newTestShell(t, ShellOptions{})
	dir := t.TempDir()
	_, result := start(t, s, fmt.Sprintf("echo $$ > %s/ready; while ! [ -e %s/go ]; do sleep 0.01; done; echo survived", dir, dir))
	pidIn(t, filepath.Join(dir, "ready"))
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			runtime.LockOSThread() // and no unlock: the thread ends with the goroutine
			var ts unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		})
	}
	wg.Wait()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := <-result; r.Outcome != job.OutcomeSucceeded || r.Output != "survived\n" {
		t.Fatalf("%+v", r)
	}
}

func TestShellClosed(t *testing.T) {
	s := newTestShell(t, ShellOptions{})
	s.Close()
	s.Close()
	if r := s.Run(t.Context(), shellJob(t, job.ShellPayload{Command: "true"})); r.Outcome != job.OutcomeFailed || r.Error != "the runner is closed" {
		t.Fatalf("%+v", r)
	}
}

func TestShellManyAtOnce(t *testing.T) {
	s := newTestShell(t, ShellOptions{Dir: t.TempDir()})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			a := shellJob(t, job.ShellPayload{Command: fmt.Sprintf("echo %d; exit %d", i, i%2)})
			a.Fence = uint64(i)
			r := s.Run(t.Context(), a)
			if r.Output != fmt.Sprintln(i) || (r.Outcome == job.OutcomeSucceeded) != (i%2 == 0) {
				t.Errorf("%d: %+v", i, r)
			}
		})
	}
	wg.Wait()
}
