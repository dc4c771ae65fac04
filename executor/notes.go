//go:build unix

package executor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// How a command and its children are recognised by their environment.
const (
	envFence = "CARILLON_FENCE="
	envRun   = "CARILLON_RUN="
	envMark  = "CARILLON_MARK="
)

const (
	noteSuffix   = ".json"
	leftoverWait = 5 * time.Second
)

// groupNote is what a node leaves on disk about a process group that it is about to start, so that its successor can
// end the group should the node die. It is written twice: before the command is started, when only its environment is
// known, and after, with its number. So there is no moment at which a command runs that no note leads to. It is not
// synced: it must survive the process, and when the machine dies the groups die too.
//
// It says in which directory it was written: a copy of that, with the original's notes in it, ends nothing.
type groupNote struct {
	Place Place  `json:"place"` // of the directory of notes: its boot and PID namespace give the numbers their meaning
	Ends  int64  `json:"ends"`  // when the job's timeout will have ended the group, in milliseconds since boot
	Fence uint64 `json:"fence"`
	Run   string `json:"run"`
	Mark  string `json:"mark"`
	PGID  int    `json:"pgid,omitempty"`
	Start uint64 `json:"start,omitempty"` // of the leader, in clock ticks since boot

	path string
}

// note writes the first note of an attempt.
func (s *Shell) note(a job.Assignment, mark string) (*groupNote, error) {
	if s.o.Dir == "" || s.place.Boot == "" {
		return nil, nil // without /proc nothing could be recognised again
	}
	timeout := time.Duration(a.Timeout)
	if timeout <= 0 {
		timeout = time.Duration(job.DefaultTimeout)
	}
	n := &groupNote{Place: s.place, Ends: (bootTime() + timeout + s.o.Grace).Milliseconds(), Fence: a.Fence,
		Run: a.Run.String(), Mark: mark, path: filepath.Join(s.o.Dir, attemptName(&a)+noteSuffix)}
	if err := n.write(); err != nil {
		return nil, fmt.Errorf("not started: %w", err)
	}
	return n, nil
}

// attemptName tells an attempt from the others of this worker, in the name of a file: fences are numbers of a Raft
// group, and two groups give out the same ones.
func attemptName(a *job.Assignment) string { return fmt.Sprintf("%d-%d", a.Run.Job.Group(), a.Fence) }

// newMark is what tells an attempt from all others, also those of a cluster that was restored from the same backup.
func newMark() string { return strings.ToLower(rand.Text()) }

// started adds the group's number. Should that fail the first note stands; it leads to the command by its environment.
func (n *groupNote) started(pid int) {
	if n == nil {
		return
	}
	if p, err := readProcess(pid); err == nil {
		n.PGID, n.Start = pid, p.start
		_ = n.write()
	}
}

func (n *groupNote) write() error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	tmp := n.path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, n.path)
}

func (n *groupNote) remove() {
	if n != nil {
		_ = os.Remove(n.path)
	}
}

// ClearLeftovers ends the process groups that a dead predecessor of this worker left behind. It must be called before
// the worker registers and before a Shell with the same directory runs anything. What it cannot reach, because it runs
// in another PID namespace, it waits for: until the timeouts of those jobs have ended them, or ctx ends.
func ClearLeftovers(ctx context.Context, dir string, log *slog.Logger) error {
	for {
		n, left, err := killLeftovers(dir)
		if n > 0 {
			log.Warn("killed process groups that an earlier start left behind", "groups", n)
		}
		if err != nil || left == 0 {
			return err
		}
		log.Warn("commands of an earlier start may still run in another PID namespace; waiting for their timeouts "+
			"before this worker registers", "wait", left, "directory", dir, "remedy",
			"if that container is gone, remove the files in this directory and start again")
		if !wait.For(ctx, left) {
			return ctx.Err()
		}
	}
}

// killLeftovers ends what it can, and says how many groups that were and how long those that it cannot reach may go on.
// It ends only what is certain to be meant: a group whose leader has the noted start time, or one with a member whose
// environment carries the noted fence and run.
func killLeftovers(dir string) (killed int, wait time.Duration, _ error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || dir == "" {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("executor: notes of process groups: %w", err)
	}
	here, _ := PlaceOf(dir)
	var errs []error
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		if strings.HasSuffix(path, ".tmp") {
			_ = os.Remove(path) // never renamed: the first note, if there was one, is intact
			continue
		}
		if !strings.HasSuffix(path, noteSuffix) {
			continue
		}
		n, left, err := killNoted(path, here)
		killed += n
		if err != nil {
			errs = append(errs, fmt.Errorf("executor: %s: %w", path, err))
			continue
		}
		if left > 0 {
			wait = max(wait, left)
			continue
		}
		if err := os.Remove(path); err != nil {
			errs = append(errs, err)
		}
	}
	return killed, wait, errors.Join(errs...)
}

func killNoted(path string, here Place) (killed int, wait time.Duration, _ error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	var n groupNote
	if err := json.Unmarshal(b, &n); err != nil || !n.Place.sameDir(here) {
		// Of an earlier boot, or of the directory that this one is a copy of. Notes are renamed into place whole: only
		// a machine that crashed leaves a broken one.
		return 0, 0, nil
	}
	foreign := n.Place.PIDs != here.PIDs
	if foreign {
		n.PGID, n.Start = 0, 0 // of another namespace; if that is below ours, the environment leads to the group
	}
	groups, err := n.find()
	if err != nil {
		return 0, 0, err
	}
	for i, g := range groups {
		if err := unix.Kill(-g, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return i, 0, fmt.Errorf("process group %d: %w", g, err)
		}
		if err := awaitGroupEnd(g); err != nil {
			return i, 0, err
		}
	}
	if foreign && len(groups) == 0 {
		wait = max(0, time.Duration(n.Ends)*time.Millisecond-bootTime())
	}
	return len(groups), wait, nil
}

// find is the process groups of a note that live.
func (n *groupNote) find() ([]int, error) {
	own := unix.Getpgrp()
	if n.PGID > 1 && n.PGID != own {
		if p, err := readProcess(n.PGID); err == nil && p.start == n.Start && p.group == n.PGID {
			return []int{n.PGID}, nil
		}
	}
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var groups []int
	seen := map[int]bool{own: true, 0: true, 1: true}
	for _, p := range all {
		if seen[p.group] || p.dead() {
			continue
		}
		// One member is proof for all of them: the number of a group is not given out again while the group has a
		// member.
		if n.PGID != 0 && p.group == n.PGID && p.carries(n.marks()...) ||
			n.PGID == 0 && p.carries(append(n.marks(), envMark+n.Mark)...) {
			seen[p.group] = true
			groups = append(groups, p.group)
		}
	}
	return groups, nil
}

// marks are in the environment of every process of the group, unless it changed that. Without a group number they do
// not suffice: two clusters on one machine may both have a run of job 1 under fence 1. The mark is random.
func (n *groupNote) marks() []string {
	return []string{envFence + strconv.FormatUint(n.Fence, 10), envRun + n.Run}
}

func awaitGroupEnd(group int) error {
	for end := time.Now().Add(leftoverWait); ; time.Sleep(5 * time.Millisecond) {
		all, err := processes()
		if err != nil {
			return err
		}
		alive := 0
		for _, p := range all {
			if p.group == group && !p.dead() {
				alive = p.pid
			}
		}
		if alive == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d of group %d survives SIGKILL", alive, group)
		}
	}
}

// process is what /proc says about one.
type process struct {
	pid, group int
	state      byte
	start      uint64
}

func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// carries says whether all of these variables were in the environment with which the process was started.
func (p process) carries(vars ...string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	if err != nil {
		return false // gone, or another process's
	}
	env = append([]byte{0}, env...)
	for _, v := range vars {
		if !bytes.Contains(env, []byte("\x00"+v+"\x00")) {
			return false
		}
	}
	return true
}

func readProcess(pid int) (process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, b)
}

// parseStat reads /proc/<pid>/stat. The second field is the program's name in brackets, and may contain anything,
// brackets too.
func parseStat(pid int, b []byte) (process, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return process{}, fmt.Errorf("/proc/%d/stat: no name", pid)
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	group, err1 := strconv.Atoi(string(f[2]))
	start, err2 := strconv.ParseUint(string(f[19]), 10, 64)
	return process{pid: pid, state: f[0][0], group: group, start: start}, errors.Join(err1, err2)
}

func processes() ([]process, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil { // else it has just ended
			out = append(out, p)
		}
	}
	return out, nil
}

// bootID changes with every boot.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
