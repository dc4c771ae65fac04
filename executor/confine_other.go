//go:build unix && !linux

package executor

import (
	"errors"
	"os/exec"
	"syscall"

	"github.com/carillon-scheduler/carillon/job"
)

// cgroups do not exist here.
type cgroups struct{}

type runCgroup struct{}

func newCgroups(dir string) (*cgroups, error) {
	if dir != "" && dir != "auto" && dir != "none" {
		return nil, errors.New("cgroups need Linux")
	}
	return nil, nil
}

func (*cgroups) close()                                           {}
func (*cgroups) open(string, job.ShellLimits) (*runCgroup, error) { return nil, nil }
func (*runCgroup) procs() []string                                { return nil }
func (*runCgroup) killed() bool                                   { return false }
func (*runCgroup) close()                                         {}
func confine(*exec.Cmd, launch) (*beginning, error) {
	return nil, errors.New("limits and users of shell jobs need Linux")
}

// beginning does not exist here either.
type beginning struct{}

func (*beginning) signalable() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
func (*beginning) end() (*syscall.WaitStatus, error) { return nil, nil }
func canBoundProcesses(string) bool                  { return false }
