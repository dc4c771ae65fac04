//go:build unix

package executor

import (
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/carillon-scheduler/carillon/job"
)

// checkApart refuses at the start what would let a command have what the process has. Who may write shell jobs could
// otherwise read the keys of the cluster, act through the admin socket or trace the process.
func (o ShellOptions) checkApart(users shellUsers) error {
	if !o.Apart {
		return nil
	}
	switch {
	case o.AsNode:
		return job.Invalid("--shell-as-node", "give --shell-user, or run shell jobs on a `carillon worker`",
			"a node of a secure cluster may become a voter and then has the cluster's keys, which every shell job "+
				"could read")
	case len(o.User) == 0:
		return job.Invalid(flagUser, "name a user for them; the node then runs as root",
			"on a secure cluster shell jobs may not run as the node's own user: they could read its keys")
	}
	if err := users.find(); err != nil {
		if e, ok := errors.AsType[*job.Error](err); ok {
			return e
		}
		return job.Invalid(flagUser, "run the node as root, with CAP_SETUID, CAP_SETGID and CAP_KILL; or run "+
			"shell jobs on a `carillon worker`", "%v", err)
	}
	own := []int{0, os.Geteuid()}
	if o.Private != "" {
		st, err := os.Stat(o.Private)
		if err != nil {
			return err
		}
		if st.Mode().Perm()&0o077 != 0 {
			return job.Invalid("--data-dir", "chmod 700 "+o.Private, "other users can open %s (%s), and so can "+
				"shell jobs", o.Private, st.Mode().Perm())
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			own = append(own, int(sys.Uid))
		}
	}
	for _, f := range users.list() {
		if slices.Contains(own, users.ids[f.name]) {
			return job.Invalid(f.flag, "name a user that is neither root nor the user of the node or the owner of its "+
				"data directory", "%s could read the node's private files", f.name)
		}
	}
	return nil
}

// canSwitch says why this process cannot run commands as another user, and end them.
func canSwitch() error {
	if os.Geteuid() != 0 {
		return errors.New("the process does not run as root")
	}
	return lacksCapabilities()
}
