package executor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// confineName is the name under which this program is started to become a command; see confine.
const confineName = "carillon-confine"

// confineFD is where it says that it failed. It closes when the command takes its place.
const confineFD = 3

// A program that has this package in it can take the place of a command: it bounds itself, gives up its rights and then
// executes the command, all before a single instruction of that. It happens here, and not in a command of the CLI, so
// that every program that runs shell jobs can, and so that it happens on the main thread: the parent's death signal
// belongs to the thread.
func init() {
	if len(os.Args) < 3 || os.Args[0] != confineName {
		return
	}
	f := os.NewFile(confineFD, "confine")
	var l launch
	err := cmp.Or(closeOnExec(), json.Unmarshal([]byte(os.Args[1]), &l))
	switch {
	case err != nil:
	case l.Isolate:
		err = becomeInit(l, os.Args[2:], f)
	default:
		err = becomeCommand(l, os.Args[2:])
	}
	fmt.Fprint(f, err)
	f.Close()
	os.Exit(126)
}

func becomeCommand(l launch, argv []string) error {
	for _, file := range l.Cgroups {
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			return err
		}
	}
	limit := func(what string, resource int, soft, hard uint64) error {
		var was syscall.Rlimit
		if err := syscall.Getrlimit(resource, &was); err != nil {
			return fmt.Errorf("limit of %s: %w", what, err)
		}
		// What the node itself is bound by stays, and without rights it could not be raised.
		if err := syscall.Setrlimit(resource,
			&syscall.Rlimit{Cur: min(soft, was.Max), Max: min(hard, was.Max)}); err != nil {
			return fmt.Errorf("limit of %s: %w", what, err)
		}
		return nil
	}
	lim := l.Limits
	if n := uint64((time.Duration(lim.CPU) + time.Second - 1) / time.Second); n > 0 {
		if err := limit("CPU time", unix.RLIMIT_CPU, n, n+1); err != nil { // SIGXCPU, then SIGKILL
			return err
		}
	}
	if n := uint64(lim.OpenFiles); n > 0 {
		if err := limit("open files", unix.RLIMIT_NOFILE, n, n); err != nil {
			return err
		}
	}
	if n := uint64(lim.FileSize); n > 0 {
		if err := limit("file size", unix.RLIMIT_FSIZE, n, n); err != nil {
			return err
		}
	}
	if n := uint64(lim.Processes); n > 0 && !l.Held {
		if err := limit("processes", unix.RLIMIT_NPROC, n, n); err != nil {
			return err
		}
	}
	if l.Switch {
		if err := syscall.Setgroups(l.Groups); err != nil {
			return fmt.Errorf("set groups: %w", err)
		}
		if err := syscall.Setgid(l.GID); err != nil {
			return fmt.Errorf("set group: %w", err)
		}
		if err := syscall.Setuid(l.UID); err != nil {
			return fmt.Errorf("set user: %w", err)
		}
		// Changing the user clears it.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
			return err
		}
	}
	env := commandEnv()
	if l.Switch {
		var err error
		if env, err = l.settle(env); err != nil {
			return err
		}
	}
	// Last: what is left to do here may take memory. Data and not address space, of which some runtimes reserve a lot
	// and use little.
	if n := uint64(lim.Memory); n > 0 && !l.Held {
		if err := limit("memory", unix.RLIMIT_DATA, n, n); err != nil {
			return err
		}
	}
	if err := syscall.Exec(l.Path, argv, env); err != nil {
		return fmt.Errorf("%s: %w", l.Path, err)
	}
	return nil
}

// settle finds what a job named. This process has become the user and is where the command will be, with the /proc that
// the command has: so it gets to nothing that the command could not get to by itself, and its errors tell nothing else.
// A home that the user cannot enter is none.
func (l *launch) settle(env []string) ([]string, error) {
	enter := os.Chdir
	if l.Stay { // what it may not enter by itself it could not come back to
		enter = func(dir string) error { return unix.Access(dir, unix.X_OK) }
	}
	home := l.Home
	if home == "" || enter(home) != nil {
		home = "/"
	}
	if !l.Stay {
		if err := os.Chdir(cmp.Or(l.Dir, home)); err != nil {
			return nil, err
		}
	}
	if _, set := variable(env, envHome); !set {
		env = append(env, envHome+home)
	}
	path, _ := variable(env, envPath)
	var err error
	l.Path, err = lookPath(l.Path, path)
	return env, err
}

// commandPrefix begins the name of each variable that is for the command, as long as another process has it. That has
// the rights of the node, and its loader and its runtime would obey what a job put there (LD_PRELOAD, GODEBUG).
const commandPrefix = "command:"

// forCommand is the environment of the process that becomes the command. It carries what a note leads to it by.
func forCommand(env []string) (out []string) {
	for _, v := range env {
		for _, mark := range []string{envRun, envFence, envMark} {
			if strings.HasPrefix(v, mark) {
				out = append(out, v)
			}
		}
		out = append(out, commandPrefix+v)
	}
	return out
}

func commandEnv() (env []string) {
	for _, v := range os.Environ() {
		if v, ok := strings.CutPrefix(v, commandPrefix); ok {
			env = append(env, v)
		}
	}
	return env
}

func variable(env []string, prefix string) (value string, set bool) {
	for _, v := range env {
		if v, ok := strings.CutPrefix(v, prefix); ok {
			value, set = v, true
		}
	}
	return value, set
}

// beginning is what the process between this one and a command says of it; nil: there is none.
type beginning struct {
	r, w  *os.File
	ready chan struct{} // closed when the command can be signaled
	said  chan string
}

// confine makes a command start by way of this program.
func confine(cmd *exec.Cmd, l launch) (*beginning, error) {
	l.Path = cmd.Path
	spec, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &beginning{ready: make(chan struct{}), said: make(chan string, 1)}
	if b.r, b.w, err = os.Pipe(); err != nil {
		return nil, err
	}
	cmd.Path, cmd.Args = self, append([]string{confineName, string(spec)}, cmd.Args...)
	cmd.Env = forCommand(cmd.Env)
	cmd.ExtraFiles = []*os.File{b.w} // confineFD
	if l.Isolate {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	} else {
		close(b.ready)
	}
	go b.listen(l.Isolate)
	return b, nil
}

// listen takes what is said until all who could say something have gone.
func (b *beginning) listen(isolated bool) {
	var text []byte
	if first := make([]byte, 1); isolated {
		if n, _ := b.r.Read(first); n == 1 && first[0] == initReady {
			close(b.ready)
		} else {
			text = first[:n]
		}
	}
	rest, _ := io.ReadAll(io.LimitReader(b.r, 4096))
	b.said <- string(append(text, rest...))
}

// signalable is closed when the command can be signaled.
func (b *beginning) signalable() <-chan struct{} {
	if b == nil {
		c := make(chan struct{})
		close(c)
		return c
	}
	return b.ready
}

// end says, once the command has ended or was not started, why it never began, and how it ended if somebody else waited
// for it. It must be called.
func (b *beginning) end() (status *syscall.WaitStatus, _ error) {
	if b == nil {
		return nil, nil
	}
	b.w.Close()
	_ = b.r.SetReadDeadline(time.Now().Add(time.Second)) //nolint:errcheck // a pipe has deadlines
	text, last, found := strings.Cut(<-b.said, initEnded)
	b.r.Close()
	if text != "" {
		return nil, fmt.Errorf("not started: %s", text)
	}
	if n, err := strconv.ParseUint(last, 10, 32); found && err == nil {
		ws := syscall.WaitStatus(n)
		status = &ws
	}
	return status, nil
}

// canBoundProcesses says whether the kernel would bind a user's processes by a limit: root it does not.
func canBoundProcesses(uid string) bool { return uid != "0" }
