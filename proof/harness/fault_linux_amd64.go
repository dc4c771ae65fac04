package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CanFault says why processes cannot be made to fail here, or nothing.
func CanFault() string { return "" }

// The calls that change a file, and where they name it.
var faultCalls = map[uint64]struct {
	name string
	path bool // the file is named by a path in the second argument, or else by a descriptor in the first
}{
	unix.SYS_WRITE:     {"write", false},
	unix.SYS_PWRITE64:  {"pwrite64", false},
	unix.SYS_FSYNC:     {"fsync", false},
	unix.SYS_FDATASYNC: {"fdatasync", false},
	unix.SYS_FTRUNCATE: {"ftruncate", false},
	unix.SYS_RENAMEAT:  {"renameat", true},
}

// filtered becomes the command, with a filter that hands those calls to the tracer and lets all others go: stopping at
// every call of a Go program would slow it down many times over.
func filtered(args []string) error {
	runtime.LockOSThread()
	prog := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the number of the call
	for nr := range faultCalls {
		prog = append(prog, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(nr)},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	}
	prog = append(prog, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0,
		0); err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	os.Unsetenv(filterEnv)
	os.Unsetenv(faultEnv)
	os.Setenv("GODEBUG", "asyncpreemptoff=1") // every signal would stop at the tracer
	return syscall.Exec(path, args, os.Environ())
}

// trace runs the command, makes the call fail, and returns the command's exit code.
func (f Fault) trace(args []string) (int, error) {
	log, err := os.Create(f.Log)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // only the thread that attached may ask
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), filterEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	main := cmd.Process.Pid
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(main, &ws, syscall.WALL, nil); err != nil {
		return 0, err
	}
	const follow = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
		unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_EXITKILL
	if err := syscall.PtraceSetOptions(main, follow); err != nil {
		return 0, err
	}
	if err := syscall.PtraceCont(main, 0); err != nil {
		return 0, err
	}
	known := map[int]bool{main: true}
	counts := map[string]int{}
	for {
		tid, err := syscall.Wait4(-1, &ws, syscall.WALL, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, err
		case ws.Exited() || ws.Signaled():
			if tid == main {
				if ws.Signaled() {
					return 128 + int(ws.Signal()), nil
				}
				return ws.ExitStatus(), nil
			}
			continue
		}
		deliver := 0
		switch sig := ws.StopSignal(); {
		case sig == syscall.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			if err := f.at(tid, counts, log); err != nil && !errors.Is(err, syscall.ESRCH) {
				return 0, err
			}
		case sig == syscall.SIGTRAP:
		case sig == syscall.SIGSTOP && !known[tid]: // a new thread begins with that
		default:
			deliver = int(sig)
		}
		known[tid] = true
		if err := syscall.PtraceCont(tid, deliver); err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, err
		}
	}
}

// at looks at a call that is about to be made.
func (f Fault) at(tid int, counts map[string]int, log io.Writer) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	call, ok := faultCalls[regs.Orig_rax]
	if !ok {
		return nil
	}
	var path string
	if call.path {
		var err error
		if path, err = text(tid, uintptr(regs.Rsi)); err != nil {
			return err
		}
	} else {
		path, _ = os.Readlink(filepath.Join("/proc", strconv.Itoa(tid), "fd", strconv.FormatUint(regs.Rdi, 10)))
	}
	class := Class(f.Dir, path)
	if !filepath.IsAbs(path) || class == "" {
		return nil
	}
	counts[class]++
	fails := ""
	if class == f.Class && counts[class] == f.Nth {
		fails = " FAILED"
		regs.Orig_rax, regs.Rax = ^uint64(0), uint64(-int64(f.Errno)) // no call, and this is what came of it
		if err := syscall.PtraceSetRegs(tid, &regs); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(log, "%s %d %s %s%s\n", class, counts[class], call.name, path, fails)
	return err
}

// text reads a string out of a process.
func text(tid int, at uintptr) (string, error) {
	var out []byte
	var word [8]byte
	for len(out) < 4096 {
		n, err := syscall.PtracePeekData(tid, at+uintptr(len(out)), word[:])
		if err != nil {
			return "", err
		}
		if i := bytes.IndexByte(word[:n], 0); i >= 0 {
			return string(append(out, word[:i]...)), nil
		}
		out = append(out, word[:n]...)
	}
	return "", errors.New("a path without an end")
}
