//go:build !linux

package harness

import "os/exec"

// Spawn starts a command.
func Spawn(cmd *exec.Cmd) error { return cmd.Start() }

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
