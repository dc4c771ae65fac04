package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/job"
)

// cgroups is where the commands of this node get a control group each: it bounds memory and processes of all that a
// command starts, also for root, and none of it can leave it, as it can leave a process group.
type cgroups struct {
	pids, memory string // the directories; the same one under version 2; empty: no such controller
	v2           bool
}

const (
	cgroupRoot   = "/sys/fs/cgroup"
	cgroupPrefix = "carillon-shell-" // and the pid of the node
)

// newCgroups prepares the cgroups of this process below a directory; auto: below its own, if that can be done; none:
// not at all.
func newCgroups(dir string) (*cgroups, error) {
	switch dir {
	case "none":
		return nil, nil
	case "", "auto":
		if os.Geteuid() != 0 {
			return nil, nil
		}
		own := ownCgroups()
		if g, err := newCgroup2(own[""]); err == nil {
			return g, nil
		}
		return newCgroup1(own["pids"], own["memory"]), nil
	}
	return newCgroup2(dir)
}

// ownCgroups are the directories of this process, by controller; "" is version 2.
func ownCgroups() map[string]string {
	b, _ := os.ReadFile("/proc/self/cgroup")
	out := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			out[c] = filepath.Join(cgroupRoot, f[1], f[2])
		}
	}
	return out
}

func newCgroup2(dir string) (*cgroups, error) {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	if all := strings.Fields(string(have)); !slices.Contains(all, "pids") || !slices.Contains(all, "memory") {
		return nil, fmt.Errorf("%s lacks the controllers pids and memory; it has: %s", dir, strings.Join(all, " "))
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+pids +memory"), 0); err != nil {
		return nil, fmt.Errorf("%w: a control group with processes of its own cannot have child groups; name a "+
			"delegated one", err)
	}
	sweepCgroups(dir)
	sub := filepath.Join(dir, cgroupPrefix+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(sub, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(sub, "cgroup.subtree_control"), []byte("+pids +memory"), 0); err != nil {
		return nil, err
	}
	return &cgroups{pids: sub, memory: sub, v2: true}, nil
}

// newCgroup1 is for machines that have the controllers under version 1 still.
func newCgroup1(pids, memory string) *cgroups {
	g := &cgroups{}
	make := func(dir, file string) string {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); dir == "" || err != nil {
			return ""
		}
		sweepCgroups(dir)
		sub := filepath.Join(dir, cgroupPrefix+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(sub, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return ""
		}
		if _, err := os.Stat(filepath.Join(sub, file)); err != nil {
			_ = os.Remove(sub)
			return ""
		}
		return sub
	}
	if g.pids = make(pids, "pids.max"); g.pids == "" {
		return nil
	}
	if g.memory = make(memory, "memory.limit_in_bytes"); g.memory == "" {
		_ = os.Remove(g.pids)
		return nil
	}
	return g
}

// sweepCgroups ends what nodes that are gone left in their groups: also what left its process group.
func sweepCgroups(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, cgroupPrefix+"*"))
	for _, d := range old {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(d), cgroupPrefix))
		if err != nil || pid == os.Getpid() || unix.Kill(pid, 0) == nil {
			continue
		}
		runs, _ := filepath.Glob(filepath.Join(d, "*", "cgroup.procs"))
		for _, r := range runs {
			emptyCgroup(filepath.Dir(r))
		}
		_ = os.Remove(d)
	}
}

func (g *cgroups) dirs() []string {
	if g.v2 {
		return []string{g.pids}
	}
	return []string{g.pids, g.memory}
}

func (g *cgroups) close() {
	if g != nil {
		for _, d := range g.dirs() {
			_ = os.Remove(d)
		}
	}
}

// runCgroup is the group of one command.
type runCgroup struct{ dirs []string }

func (g *cgroups) open(name string, l job.ShellLimits) (*runCgroup, error) {
	c := &runCgroup{}
	for _, d := range g.dirs() {
		d = filepath.Join(d, name)
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			c.close()
			return nil, fmt.Errorf("not started: %w", err)
		}
		c.dirs = append(c.dirs, d)
	}
	set := func(dir, file string, n int64) error {
		if n == 0 {
			return nil
		}
		return os.WriteFile(filepath.Join(dir, name, file), []byte(strconv.FormatInt(n, 10)), 0)
	}
	memory := "memory.limit_in_bytes"
	if g.v2 {
		memory = "memory.max"
	}
	if err := errors.Join(set(g.pids, "pids.max", int64(l.Processes)),
		set(g.memory, memory, int64(l.Memory))); err != nil {
		c.close()
		return nil, fmt.Errorf("not started: %w", err)
	}
	if g.v2 && l.Memory > 0 {
		_ = os.WriteFile(filepath.Join(g.memory, name, "memory.swap.max"), []byte("0"), 0) // there may be no swap
	}
	return c, nil
}

func (c *runCgroup) procs() (files []string) {
	for _, d := range c.dirs {
		files = append(files, filepath.Join(d, "cgroup.procs"))
	}
	return files
}

// killed says whether the kernel killed something because memory ran out.
func (c *runCgroup) killed() bool {
	for _, d := range c.dirs {
		for _, f := range []string{"memory.events", "memory.oom_control"} {
			b, _ := os.ReadFile(filepath.Join(d, f))
			for line := range strings.SplitSeq(string(b), "\n") {
				if n, ok := strings.CutPrefix(line, "oom_kill "); ok && n != "0" {
					return true
				}
			}
		}
	}
	return false
}

// close ends everything in the group, and the group.
func (c *runCgroup) close() {
	if c == nil {
		return
	}
	for _, d := range c.dirs {
		emptyCgroup(d)
	}
}

func emptyCgroup(dir string) {
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) // version 2, Linux 5.14
	for end := time.Now().Add(leftoverWait); ; time.Sleep(2 * time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 && pid != os.Getpid() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if rm := os.Remove(dir); rm == nil || err != nil || errors.Is(rm, os.ErrNotExist) || time.Now().After(end) {
			return
		}
	}
}
