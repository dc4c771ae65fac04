//go:build unix && !linux

package executor

import (
	"errors"
	"os/exec"

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
func confine(*exec.Cmd, launch) (func() error, error) {
	return nil, errors.New("limits and users of shell jobs need Linux")
}
func canBoundProcesses(string) bool { return false }
