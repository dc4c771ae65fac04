package executor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner starts commands so that they die with this process, however it dies: Pdeathsig. The kernel sends that signal
// when the *thread* that forked ends, not the process. A Go thread ends when a goroutine locked to it ends, and any
// goroutine may be on any thread before; a command could so be killed by a stranger's clean-up. Hence one thread starts
// them all, and lives as long as the runner: its goroutine is locked to it. Starting them one by one costs nothing:
// package syscall holds a lock over fork anyway.
//
// Pdeathsig reaches the command only, not its children; ClearLeftovers deals with those.
//
// The thread has given up new privileges, which commands inherit, whatever way they are started: no program that they
// execute gains rights by its owner, its group or its file capabilities. The thread ends with its goroutine, so that
// nothing else inherits it; the runtime starts no threads from one that is locked.
type spawner struct {
	err    error // of that; owned by the goroutine
	work   chan func()
	closed chan struct{}
	once   sync.Once
	ended  chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), closed: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			s.err = fmt.Errorf("give up new privileges: %w", err)
		}
		for {
			select {
			case f := <-s.work:
				f()
			case <-s.closed:
				return
			}
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error, 1)
	select {
	case s.work <- func() {
		if err := cmp.Or(s.err, closeOnExec()); err != nil {
			result <- err
		} else {
			result <- cmd.Start()
		}
	}:
		return <-result
	case <-s.closed:
		return errors.New("the runner is closed")
	}
}

func (s *spawner) close() {
	s.once.Do(func() { close(s.closed) })
	<-s.ended
}

// closeOnExec keeps from programs that this process executes what it has open besides the standard streams. What Go
// opens is kept from them anyway; what this process inherited is not.
func closeOnExec() error {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	return closeListedOnExec("/proc/self/fd") // before Linux 5.11, or a filter of system calls
}

// awaitExit waits until a child has exited and leaves it unreaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
