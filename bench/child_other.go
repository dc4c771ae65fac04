//go:build !linux

package bench

import (
	"os/exec"
	"syscall"
)

// startChild starts a process in a group of its own: an interrupt in the terminal is ours to pass on.
func startChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}
