//go:build !linux

package harness

import "os/exec"

func start(cmd *exec.Cmd) error { return cmd.Start() }

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
