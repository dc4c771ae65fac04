package cmd

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
)

// toolFlags are what a worker carries runs out with, in a node and alone.
type toolFlags struct {
	Executors []string
	Brokers   []string
	Shell     executor.ShellOptions
	Egress    egress.Config
}

func (c *toolFlags) register(fl *pflag.FlagSet) {
	c.registerBrokers(fl)
	c.registerEgress(fl)
	l := &c.Shell.Limits
	fl.Var(&l.Memory, "shell-memory", "how much memory a shell job may use, such as 512MiB (default no limit)")
	fl.IntVar(&l.Processes, "shell-processes", 0, "how many processes a shell job may have (default no limit)")
	fl.DurationVar((*time.Duration)(&l.CPU), "shell-cpu", 0,
		"how much CPU time each process of a shell job may use (default no limit)")
	fl.IntVar(&l.OpenFiles, "shell-open-files", 0, "how many files each process of a shell job may have open "+
		"(default no limit)")
	fl.Var(&l.FileSize, "shell-file-size", "largest file that a shell job may write (default no limit)")
	for _, name := range []string{"shell-memory", "shell-file-size"} {
		fl.Lookup(name).DefValue = "" // 0B stands for what the text says
	}
	fl.StringSliceVar(&c.Shell.User, "shell-user", nil, "user that shell jobs run as, NAMESPACE=USER for those of one "+
		"namespace; repeatable; needs root (default that of this process, which a secure cluster does not allow)")
	fl.BoolVar(&c.Shell.AsNode, "shell-as-node", false,
		"let shell jobs run as the user of this process, so that they can read its secrets; refused on a node of a "+
			"secure cluster")
	fl.StringSliceVar(&c.Shell.Users, "shell-users", nil, "users that a shell job may ask to run as, "+
		"NAMESPACE=USER for those of one namespace; needs root")
	fl.StringVar(&c.Shell.Cgroup, "shell-cgroup", "",
		"cgroup v2 directory in which each shell job gets a cgroup, auto for this process's own, or none (default "+
			"auto with --shell-memory or --shell-processes)")
}

func (c *toolFlags) registerEgress(fl *pflag.FlagSet) {
	fl.StringSliceVar(&c.Egress.Allow, "egress-allow", nil,
		"what http and message jobs and webhooks may also connect to: address, range or host, loopback, all")
	fl.StringSliceVar(&c.Egress.Deny, "egress-deny", nil,
		"what they may not connect to, in the same form; the more specific of two rules decides")
	fl.StringVar(&c.Egress.Proxy, "egress-proxy", "",
		"http, https or socks5 URL of a proxy for http jobs and webhooks (default $CARILLON_EGRESS_PROXY)")
}

func (c *toolFlags) registerBrokers(fl *pflag.FlagSet) {
	fl.StringArrayVar(&c.Brokers, "broker", nil,
		"[NAMESPACES/]NAME=URL of a broker that message jobs refer to by its name; repeatable (or CARILLON_BROKERS)")
}

// readEnv adds what is in the environment, where others cannot see it.
func (c *toolFlags) readEnv(env func(string) string) {
	c.Brokers = append(c.Brokers, strings.Fields(env("CARILLON_BROKERS"))...)
	c.Egress.Proxy = cmp.Or(c.Egress.Proxy, env("CARILLON_EGRESS_PROXY"))
}

// validate checks the flags; known are the executors that there are.
func (c *toolFlags) validate(known []string, or string) error {
	for _, e := range c.Executors {
		if !slices.Contains(known, e) {
			return job.Invalid("--executors", "use "+strings.Join(known, ", ")+or, "there is no executor %q", e)
		}
	}
	if _, err := c.brokers(); err != nil {
		return err
	}
	if _, err := egress.New(egress.Options{Config: c.Egress}); err != nil {
		if e, ok := errors.AsType[*egress.ConfigError](err); ok {
			return job.Invalid(e.Flag, e.Remedy, "%v", e.Err)
		}
		return err
	}
	if err := c.Shell.Limits.Validate(); err != nil {
		e := err.(*job.Error)
		e.Field = "--shell-" + strings.ReplaceAll(e.Field, "_", "-")
		return e
	}
	if err := c.Shell.CheckUsers(); err != nil {
		return err
	}
	if g := c.Shell.Cgroup; g != "" && !slices.Contains([]string{"auto", "none"}, g) && !filepath.IsAbs(g) {
		return job.Invalid("--shell-cgroup",
			"use auto, none, or a directory such as /sys/fs/cgroup/system.slice/carillon.service", "%q is relative", g)
	}
	return nil
}

func (c *toolFlags) types() []job.Type {
	types := make([]job.Type, len(c.Executors))
	for i, e := range c.Executors {
		types[i] = job.Type(e)
	}
	return types
}

func (c *toolFlags) brokers() (map[string]job.Broker, error) {
	b, err := executor.ParseBrokers(c.Brokers)
	if err != nil {
		err = job.Invalid("--broker", "", "%v", err)
	}
	return b, err
}
