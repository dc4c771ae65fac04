package harness

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawner starts every process of the tests from one thread that lives as long as the tests do: Pdeathsig is about the
// thread that forked, not about the process, and Go ends threads when it likes (golang/go#27505).
var spawner = sync.OnceValue(func() chan<- spawn {
	ch := make(chan spawn)
	go func() {
		runtime.LockOSThread() // never unlocked
		for s := range ch {
			s.done <- s.cmd.Start()
		}
	}()
	return ch
})

type spawn struct {
	cmd  *exec.Cmd
	done chan error
}

// Spawn starts a command in a process group of its own. It dies with the test, however the test dies.
func Spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	s := spawn{cmd, make(chan error, 1)}
	spawner() <- s
	return <-s.done
}

// killGroup ends a command and everything it started.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
