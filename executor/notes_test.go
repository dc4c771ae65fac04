//go:build linux

package executor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/job"
)

func notesIn(t *testing.T, dir string) (out []groupNote) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		var n groupNote
		if err != nil || json.Unmarshal(b, &n) != nil {
			continue // being replaced
		}
		out = append(out, n)
	}
	return out
}

// A node is killed while its job, and a child of that, ignore SIGTERM. The kernel ends the job with the node; the child lives on until the
// next node comes.
func TestKillLeftovers(t *testing.T) {
	dir, notes := t.TempDir(), t.TempDir()
	child := "trap \"\" TERM; echo $$ > DIR/child; while :; do sleep 0.05; done"
	script := strings.ReplaceAll("trap '' TERM; sh -c '"+child+"' & echo $$ > DIR/leader; while :; do sleep 0.05; done", "DIR", dir)
	node := exec.Command(os.Args[0])
	node.Env = append(os.Environ(), "EXECUTOR_TEST_HELPER="+notes, "EXECUTOR_TEST_SCRIPT="+script)
	node.Stdout, node.Stderr = os.Stdout, os.Stderr
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := false
	t.Cleanup(func() {
		if !reaped {
			node.Process.Kill()
			node.Wait()
		}
	})
	leaderPID, childPID := pidIn(t, filepath.Join(dir, "leader")), pidIn(t, filepath.Join(dir, "child"))
	eventually(t, "the second note", func() bool {
		n := notesIn(t, notes)
		return len(n) == 1 && n[0].PGID == leaderPID && n[0].Start != 0 && n[0].Fence == 12
	})
	if err := node.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	node.Wait()
	reaped = true
	eventually(t, "the end of the job with its node", func() bool { return !alive(leaderPID) })
	if !alive(childPID) {
		t.Fatal("the child is gone: this test tests nothing")
	}
	n, _, err := killLeftovers(notes)
	if n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if alive(childPID) {
		t.Fatal("the child is still there")
	}
	if left, _ := os.ReadDir(notes); len(left) != 0 {
		t.Fatalf("notes: %v", left)
	}
	if n, _, err := killLeftovers(notes); n != 0 || err != nil {
		t.Fatalf("the second time: %d, %v", n, err)
	}
}

// Fences are numbers of a Raft group: commands of two groups with one fence have a note each.
func TestNotesOfTwoGroups(t *testing.T) {
	dir := t.TempDir()
	s := newTestShell(t, ShellOptions{Dir: dir})
	if s.place.Boot == "" {
		t.Skip("nothing is noted here")
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, id := range []job.ID{42, 1<<(64-job.GroupBits) | 42} {
		a := shellJob(t, job.ShellPayload{Command: "sleep 60"})
		a.Run.Job = id
		running.Go(func() { s.Run(ctx, a) })
	}
	eventually(t, "a note of each", func() bool {
		notes, err := filepath.Glob(filepath.Join(dir, "*"+noteSuffix))
		return err == nil && len(notes) == 2
	})
}

// bystander starts a process group with these variables, whose leader waits.
func bystander(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	// Not exec: in the middle of one a process shows no environment.
	cmd := exec.Command("/bin/sh", "-c", "echo ready; read never")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append([]string{"PATH=" + defaultPath}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// Who is ended, and who is not: above all not a process that has the number by chance.
func TestKillLeftoversKnowsWhom(t *testing.T) {
	const mark = "gqkzmuf7yp5xr2xaxhf3vlgqfe"
	marked := []string{"CARILLON_FENCE=12", "CARILLON_RUN=r_3.v8.s", "CARILLON_MARK=" + mark}
	note := groupNote{Fence: 12, Run: "r_3.v8.s", Mark: mark}
	for name, c := range map[string]struct {
		env    []string
		change func(n *groupNote, pid int, start uint64)
		killed bool
	}{
		"the leader lives":             {nil, func(n *groupNote, pid int, start uint64) { n.PGID, n.Start = pid, start }, true},
		"another process, same number": {nil, func(n *groupNote, pid int, start uint64) { n.PGID, n.Start = pid, start+1 }, false},
		"a member carries the marks":   {marked[:2], func(n *groupNote, pid int, start uint64) { n.PGID, n.Start = pid, start+1 }, true},
		"the marks of another run": {[]string{"CARILLON_FENCE=12", "CARILLON_RUN=r_4.v8.s"},
			func(n *groupNote, pid int, start uint64) { n.PGID, n.Start = pid, start+1 }, false},
		"a longer fence":             {[]string{"CARILLON_FENCE=123", marked[1]}, func(n *groupNote, pid int, start uint64) { n.PGID, n.Start = pid, start+1 }, false},
		"before the second note":     {marked, func(*groupNote, int, uint64) {}, true},
		"another cluster's same run": {append(marked[:2:2], "CARILLON_MARK=a"+mark[1:]), func(*groupNote, int, uint64) {}, false},
		"another boot":               {marked, func(n *groupNote, pid int, start uint64) { n.Place.Boot, n.PGID, n.Start = "another", pid, start }, false},
		"a copy of the directory":    {marked, func(n *groupNote, pid int, start uint64) { n.Place.Inode++; n.PGID, n.Start = pid, start }, false},
		"a copy, same inode":         {marked, func(n *groupNote, pid int, start uint64) { n.Place.Birth--; n.PGID, n.Start = pid, start }, false},
		"a namespace below this one": {marked, func(n *groupNote, pid int, start uint64) { n.Place.PIDs, n.PGID, n.Ends = "below", 1<<30, 1<<40 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := bystander(t, c.env...)
			p, err := readProcess(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			n := note
			n.path = filepath.Join(dir, "12.json")
			n.Place, _ = PlaceOf(dir)
			c.change(&n, p.pid, p.start)
			if err := n.write(); err != nil {
				t.Fatal(err)
			}
			want := 0
			if c.killed {
				want = 1
			}
			got, wait, err := killLeftovers(dir)
			if err != nil || wait != 0 || got != want || alive(p.pid) == c.killed {
				t.Fatalf("%d groups, %v; alive: %v", got, err, alive(p.pid))
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Fatalf("notes: %v", left)
			}
		})
	}
}

func TestKillLeftoversOddFiles(t *testing.T) {
	if n, _, err := killLeftovers(filepath.Join(t.TempDir(), "none")); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if n, _, err := killLeftovers(""); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	dir := t.TempDir()
	place, _ := PlaceOf(dir)
	own := groupNote{Place: place, PGID: unix.Getpgrp(), path: filepath.Join(dir, "1.json")}
	if p, err := readProcess(own.PGID); err == nil {
		own.Start = p.start
	}
	if err := own.write(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"2.json": "", "3.json.tmp": "{", "README": "not a note"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, wait, err := killLeftovers(dir); n != 0 || wait != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 || left[0].Name() != "README" {
		t.Fatalf("left %v", left)
	}
}

// What runs in another PID namespace cannot be seen or ended from here. The worker waits until it has ended by itself.
func TestLeftoversOfAnotherNamespaceAreWaitedFor(t *testing.T) {
	dir := t.TempDir()
	n := groupNote{Fence: 12, Run: "r_3.v8.s", Mark: "gqkzmuf7yp5xr2xaxhf3vlgqfe", PGID: 7,
		Ends: (bootTime() + time.Hour).Milliseconds(), path: filepath.Join(dir, "12.json")}
	n.Place, _ = PlaceOf(dir)
	n.Place.PIDs = "pid:[1] since 2"
	if err := n.write(); err != nil {
		t.Fatal(err)
	}
	killed, wait, err := killLeftovers(dir)
	if killed != 0 || err != nil || wait <= 59*time.Minute || wait > time.Hour {
		t.Fatalf("%d killed, wait %s, %v", killed, wait, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ClearLeftovers(ctx, dir, slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
		t.Fatalf("it did not wait: %v", err)
	}
	if len(notesIn(t, dir)) != 1 {
		t.Fatal("the note is gone before its time")
	}
	n.Ends = bootTime().Milliseconds() - 1
	if err := n.write(); err != nil {
		t.Fatal(err)
	}
	if err := ClearLeftovers(t.Context(), dir, slog.New(slog.DiscardHandler)); err != nil || len(notesIn(t, dir)) != 0 {
		t.Fatalf("%v", err)
	}
}

func TestParseStat(t *testing.T) {
	p, err := parseStat(5, []byte("5 (a) b) (c) S 1 77 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 10\n"))
	if err != nil || p.state != 'S' || p.group != 77 || p.start != 123456 {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "5 x", "5 (x) S 1 2", "5 (x) S 1 g 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 9"} {
		if _, err := parseStat(5, []byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
