//go:build unix

package executor

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// launch is how a command is started where more is asked for than os/exec can do: the limits that it gets, whose rights
// it has, and the cgroups that it joins. Who does that is a process between the node and the command; see confine. A
// command that runs as another user finds its program and its directory there, with the rights of that user.
type launch struct {
	Path    string          `json:"path"` // of the program, or its name
	Limits  job.ShellLimits `json:"limits"`
	Cgroups []string        `json:"cgroups,omitempty"` // files to write its number to
	Held    bool            `json:"held,omitempty"`    // memory and processes are bounded by a cgroup
	Switch  bool            `json:"switch,omitempty"`
	UID     int             `json:"uid,omitempty"`
	GID     int             `json:"gid,omitempty"`
	Groups  []int           `json:"groups,omitempty"`
	Home    string          `json:"home,omitempty"`
	Dir     string          `json:"dir,omitempty"`     // empty: home
	Stay    bool            `json:"stay,omitempty"`    // where it is started, which the operator chose
	Isolate bool            `json:"isolate,omitempty"` // it sees its own processes only
}

// limitsFor are the limits of an attempt: the job's own, which may not be above the worker's, or else the worker's.
func (s *Shell) limitsFor(p job.ShellPayload) (job.ShellLimits, error) {
	out, node := p.Limits, s.o.Limits
	for _, l := range []struct {
		name, flag string
		mine, most int64
		set        func()
		show       func(int64) string
	}{
		{"memory", "--shell-memory", int64(out.Memory), int64(node.Memory), func() { out.Memory = node.Memory },
			func(n int64) string { return job.Size(n).String() }},
		{"processes", "--shell-processes", int64(out.Processes), int64(node.Processes),
			func() { out.Processes = node.Processes }, decimal},
		{"cpu", "--shell-cpu", int64(out.CPU), int64(node.CPU), func() { out.CPU = node.CPU },
			func(n int64) string { return time.Duration(n).String() }},
		{"open_files", "--shell-open-files", int64(out.OpenFiles), int64(node.OpenFiles),
			func() { out.OpenFiles = node.OpenFiles }, decimal},
		{"file_size", "--shell-file-size", int64(out.FileSize), int64(node.FileSize),
			func() { out.FileSize = node.FileSize }, func(n int64) string { return job.Size(n).String() }},
	} {
		switch {
		case l.mine == 0:
			l.set()
		case l.most != 0 && l.mine > l.most:
			// Not hopeless: another worker may allow more.
			return out, fmt.Errorf("payload: limits.%s: %s is more than the %s that this worker allows (%s)", l.name,
				l.show(l.mine), l.show(l.most), l.flag)
		}
	}
	if out.Processes == 0 && s.cgroups != nil {
		out.Processes = defaultProcesses
	}
	return out, nil
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// become fills in whose rights a command has.
func (l *launch) become(u *user.User) error {
	var err1, err2 error
	l.Switch, l.Home = true, u.HomeDir
	l.UID, err1 = strconv.Atoi(u.Uid)
	l.GID, err2 = strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("the groups of %s: %w", u.Username, err)
	}
	for _, id := range ids {
		n, err := strconv.Atoi(id)
		if err != nil {
			return err
		}
		l.Groups = append(l.Groups, n)
	}
	return nil
}
