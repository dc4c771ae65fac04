package cmd

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

// shellFlags are what bounds the shell jobs of a node.
func shellFlags(fl *pflag.FlagSet, c *node.ShellConfig) {
	l := &c.Limits
	fl.Var(&l.Memory, "shell-memory", "most memory of a shell job, such as 512MiB (default no limit)")
	fl.IntVar(&l.Processes, "shell-processes", 0, "most processes of a shell job (default no limit)")
	fl.DurationVar((*time.Duration)(&l.CPU), "shell-cpu", 0, "most CPU time of a process of a shell job (default no limit)")
	fl.IntVar(&l.OpenFiles, "shell-open-files", 0, "most open files of a process of a shell job (default no limit)")
	fl.Var(&l.FileSize, "shell-file-size", "largest file that a shell job may write (default no limit)")
	fl.StringVar(&c.User, "shell-user", "", "user that shell jobs run as; needs root (default the node's own)")
	fl.StringSliceVar(&c.Users, "shell-users", nil, "users that a shell job may name to run as; needs root")
	fl.StringVar(&c.Cgroup, "shell-cgroup", "", "cgroup v2 directory for a group per shell job, auto for the node's own, or none (default auto with --shell-memory or --shell-processes)")
}

func checkShellFlags(c *ServerConfig) error {
	if err := c.Shell.Limits.Validate(); err != nil {
		e := err.(*job.Error)
		e.Field = "--shell-" + strings.ReplaceAll(e.Field, "_", "-")
		return e
	}
	if g := c.Shell.Cgroup; g != "" && !slices.Contains([]string{"auto", "none"}, g) && !filepath.IsAbs(g) {
		return job.Invalid("--shell-cgroup", "use auto, none, or a directory such as /sys/fs/cgroup/system.slice/carillon.service", "%q is relative", g)
	}
	return nil
}
