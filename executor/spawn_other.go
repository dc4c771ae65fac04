//go:build unix && !linux

package executor

import (
	"errors"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// spawner starts commands. There is no Pdeathsig here.
type spawner struct{}

func newSpawner() *spawner { return &spawner{} }

func (*spawner) start(cmd *exec.Cmd) error {
	if err := closeListedOnExec("/dev/fd"); err != nil {
		return err
	}
	return cmd.Start()
}

func (*spawner) canIsolate() error { return errors.New("it needs Linux") }
func (*spawner) close()            {}

// awaitExit waits until a child has exited and leaves it unreaped. Without waitid it can only look: a zombie has no
// group to ask for.
func awaitExit(pid int) {
	for {
		if _, err := unix.Getpgid(pid); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
