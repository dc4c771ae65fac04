//go:build linux

package executor

import (
	"context"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// unprivileged is a user that every system has.
const unprivileged = "nobody"

func onlyRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run commands as others")
	}
	if _, err := user.Lookup(unprivileged); err != nil {
		t.Skip("there is no user nobody")
	}
}

func TestShellLimits(t *testing.T) {
	for _, cgroup := range []string{"auto", "none"} {
		t.Run(cgroup, func(t *testing.T) {
			s := newTestShell(t, ShellOptions{Cgroup: cgroup, Limits: job.ShellLimits{OpenFiles: 100, FileSize: 4 << 20, CPU: job.Duration(10 * time.Second), Memory: 1 << 30}})
			if cgroup == "auto" && s.cgroups == nil {
				t.Skip("no cgroup can be made here")
			}
			dir := t.TempDir()
			run := func(script string, l job.ShellLimits) job.Result {
				t.Helper()
				return s.Run(within(t, time.Minute), shellJob(t, job.ShellPayload{Command: script, Dir: dir, Limits: l}))
			}
			if r := run("ulimit -n; ulimit -f; ulimit -t", job.ShellLimits{}); r.Outcome != job.OutcomeSucceeded || r.Output != "100\n8192\n10\n" {
				t.Errorf("the worker's own limits: %+v", r)
			}
			if r := run("ulimit -n", job.ShellLimits{OpenFiles: 32}); r.Output != "32\n" {
				t.Errorf("the job's limit: %+v", r)
			}
			wantFailure(t, run("true", job.ShellLimits{OpenFiles: 101}), false, "limits.open_files: 101 is more than the 100 that this worker allows")
			wantFailure(t, run("true", job.ShellLimits{Memory: 2 << 30}), false, "limits.memory: 2GiB is more than the 1GiB")

			// An endless writer ends at the limit.
			r := run("exec dd if=/dev/zero of=big bs=64k count=1024", job.ShellLimits{FileSize: 1 << 20})
			wantFailure(t, r, false)
			if st, err := os.Stat(filepath.Join(dir, "big")); err != nil || st.Size() > 1<<20 {
				t.Errorf("%v %v", st, err)
			}
			wantFailure(t, run("while :; do :; done", job.ShellLimits{CPU: job.Duration(time.Second)}), false, "SIGXCPU")
			// 256 MiB without a newline, which tail has to keep in memory.
			r = run("head -c 268435456 /dev/zero | tail -n 1 | wc -c; exit $(( $(head -c 268435456 /dev/zero | tail -n 1 | wc -c) != 268435457 ))", job.ShellLimits{Memory: 64 << 20})
			if strings.Contains(r.Output, "268435456") {
				t.Errorf("256 MiB in 64: %+v", r)
			}
			if r := s.Run(t.Context(), shellJob(t, job.ShellPayload{Argv: []string{"/does/not/exist"}, Limits: job.ShellLimits{OpenFiles: 50}})); !strings.Contains(r.Error, "not started: /does/not/exist: no such file") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A fork bomb has as many processes as it may, and none when its attempt is over; the next attempt finds everything in order. Also what
// leaves the process group is ended.
func TestShellForkBomb(t *testing.T) {
	s := newTestShell(t, ShellOptions{Limits: job.ShellLimits{Processes: 40}})
	if s.cgroups == nil {
		t.Skip("no cgroup can be made here, and nothing else would bound it")
	}
	group := filepath.Join(s.cgroups.pids, "0-77")
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	result := make(chan job.Result, 1)
	dir := t.TempDir()
	a := shellJob(t, job.ShellPayload{Dir: dir, Command: "setsid sh -c 'echo $$ >away; exec sleep 1000' & while ! [ -s away ]; do :; done; bomb() { bomb | bomb & bomb; }; bomb"})
	go func() { result <- s.Run(ctx, a) }()
	away := pidIn(t, filepath.Join(dir, "away"))
	most := 0
	eventually(t, "the bomb meets its limit", func() bool {
		b, _ := os.ReadFile(filepath.Join(group, "pids.current"))
		n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		most = max(most, n)
		ev, _ := os.ReadFile(filepath.Join(group, "pids.events"))
		return strings.HasPrefix(string(ev), "max ") && strings.TrimSpace(string(ev)) != "max 0"
	})
	stop()
	if r := <-result; r.Outcome != job.OutcomeFailed {
		t.Errorf("%+v", r)
	}
	if most > 40 {
		t.Errorf("%d processes", most)
	}
	if _, err := os.Stat(group); !os.IsNotExist(err) {
		t.Errorf("the group is still there: %v", err)
	}
	if alive(away) {
		t.Error("what left the process group lives on")
	}
	if r := s.Run(t.Context(), shellJob(t, job.ShellPayload{Command: "echo fine"})); r.Output != "fine\n" {
		t.Errorf("%+v", r)
	}
}

// openDir is a directory that every user can write to.
func openDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "carillon")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestShellUser(t *testing.T) {
	onlyRoot(t)
	for _, cgroup := range []string{"auto", "none"} {
		s := newTestShell(t, ShellOptions{Users: []string{unprivileged}, Cgroup: cgroup})
		run := func(user, script string, l job.ShellLimits) job.Result {
			t.Helper()
			return s.Run(within(t, time.Minute), shellJob(t, job.ShellPayload{Command: script, User: user, Limits: l}))
		}
		r := run(unprivileged, "id -un; id -G; echo $HOME $USER; pwd; cat /proc/self/environ | tr '\\0' '\\n' | cut -d= -f1 | sort | tr '\\n' ' '", job.ShellLimits{})
		want := "nobody\n65534\n/ nobody\n/\nCARILLON_ATTEMPT CARILLON_FENCE CARILLON_IDEMPOTENCY_KEY CARILLON_JOB CARILLON_JOB_NAME CARILLON_MARK CARILLON_RUN CARILLON_SCHEDULED_AT HOME LOGNAME PATH PWD USER "
		if strings.ReplaceAll(r.Output, "PWD ", "") != strings.ReplaceAll(want, "PWD ", "") {
			t.Errorf("%s\n%s\nwant\n%s", r.Error, r.Output, want)
		}
		wantFailure(t, run("daemon", "id", job.ShellLimits{}), false, `does not run commands as "daemon"`, "--shell-users daemon")
		if r := run(unprivileged, "cat /etc/shadow", job.ShellLimits{}); r.Outcome == job.OutcomeSucceeded {
			t.Error("nobody reads what only root may")
		}
		// Without a cgroup the kernel counts the processes of the user.
		if r := run(unprivileged, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 100 & done; echo unbounded", job.ShellLimits{Processes: 12}); strings.Contains(r.Output, "unbounded") {
			t.Errorf("%+v", r)
		}
		// The group of another user ends with the attempt, too.
		ctx, stop := context.WithCancel(t.Context())
		up := filepath.Join(openDir(t), "up")
		go func() {
			defer stop()
			for wait := within(t, time.Minute); wait.Err() == nil; time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat(up); err == nil {
					return
				}
			}
		}()
		r = s.Run(ctx, shellJob(t, job.ShellPayload{Command: "trap '' TERM; : >" + up + "; sleep 1000 & wait; wait", User: unprivileged}))
		wantFailure(t, r, false, "SIGKILL")
	}
	s := newTestShell(t, ShellOptions{User: []string{unprivileged}})
	if r := s.Run(t.Context(), shellJob(t, job.ShellPayload{Command: "id -un"})); r.Output != "nobody\n" {
		t.Errorf("%+v", r)
	}
	if _, err := NewShell(ShellOptions{User: []string{"no-such-user"}}); err == nil {
		t.Error("a user that does not exist was taken")
	}
	if _, err := NewShell(ShellOptions{Cgroup: "none", Limits: job.ShellLimits{Processes: 5}}); err == nil {
		t.Error("a limit that does not bind root was taken")
	}
}

// A command that never stops writing costs no memory and is stopped in time.
func TestShellFloods(t *testing.T) {
	s := newTestShell(t, ShellOptions{})
	ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	r := s.Run(ctx, shellJob(t, job.ShellPayload{Command: "yes flood"}))
	if r.Outcome != job.OutcomeFailed || len(r.Output) > job.MaxOutputBytes || !strings.Contains(r.Output, "flood\nflood\n") {
		t.Errorf("%d bytes: %s", len(r.Output), r.Error)
	}
}
