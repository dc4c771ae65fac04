package executor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	syscall.CloseOnExec(confineFD)
	err := becomeCommand(os.Args[1], os.Args[2:])
	f := os.NewFile(confineFD, "confine")
	fmt.Fprint(f, err)
	f.Close()
	os.Exit(126)
}

func becomeCommand(spec string, argv []string) error {
	var l launch
	if err := json.Unmarshal([]byte(spec), &l); err != nil {
		return err
	}
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
	env := os.Environ()
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

// confine makes a command start by way of this program. The function that it returns says, once the command has ended,
// why it never began; it also closes what was needed.
func confine(cmd *exec.Cmd, l launch) (failed func() error, err error) {
	l.Path = cmd.Path
	spec, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Path, cmd.Args = self, append([]string{confineName, string(spec)}, cmd.Args...)
	cmd.ExtraFiles = []*os.File{w} // confineFD
	return func() error {
		w.Close()
		defer r.Close()
		_ = r.SetReadDeadline(time.Now().Add(time.Second)) //nolint:errcheck // a pipe has deadlines
		text, _ := io.ReadAll(io.LimitReader(r, 4096))
		if len(text) > 0 {
			return fmt.Errorf("not started: %s", text)
		}
		return nil
	}, nil
}

// canBoundProcesses says whether the kernel would bind a user's processes by a limit: root it does not.
func canBoundProcesses(uid string) bool { return uid != "0" }
