package bench

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawner starts all children from one thread that lives as long as we do: Linux sends the death signal when the thread
// that started a process ends, and Go ends threads when it likes (golang/go#27505).
var spawner = sync.OnceValue(func() chan<- func() {
	ch := make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked
		for fn := range ch {
			fn()
		}
	}()
	return ch
})

// startChild starts a process in a group of its own, because an interrupt in the terminal is ours to pass on. It dies
// with us, however we die: forgotten nodes would go on with their work and spoil the next measurement.
func startChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done := make(chan error)
	spawner() <- func() { done <- cmd.Start() }
	return <-done
}
