package cmd

import (
	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
)

// namespaceEnv is what a shell says once for all its commands.
const namespaceEnv = "CARILLON_NAMESPACE"

// spaces is which namespace a command is about.
type spaces struct {
	name string // empty: the node's choice, which is the usual one
	from string // what says so, if it is not the flag
	all  bool
}

// inNamespace gives commands, and those below them, the flag that names a namespace.
func (a *app) inNamespace(cmds ...*cobra.Command) []*cobra.Command {
	for _, c := range cmds {
		c.PersistentFlags().StringVarP(&a.spaces.name, "namespace", "n", "",
			"namespace of the jobs, queues, calendars and secrets (default \"default\"; or "+namespaceEnv+")")
	}
	return cmds
}

// listsAll gives a command that lists things the flag for all namespaces.
func (a *app) listsAll(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&a.spaces.all, "all-namespaces", "A", false, "list all namespaces")
	return c
}

// check refuses what is no namespace before anything is asked.
func (s *spaces) check(cmd *cobra.Command) error {
	f := cmd.Flags().Lookup("namespace")
	if f == nil || s.name == "" {
		return nil
	}
	if s.all && f.Changed {
		return usage("give one of them", "--namespace and --all-namespaces are both given")
	}
	if err := job.CheckNamespace(s.name); err != nil {
		said := *err.(*job.Error) //nolint:errorlint // it is one, and is not wrapped
		if said.Field = "--namespace"; !f.Changed {
			said.Field = s.from
		}
		return &said
	}
	return nil
}

// typed is the namespace that was typed: who follows a hint has to type it again.
func (s *spaces) typed() string {
	if s.from != "" {
		return ""
	}
	return s.name
}

// again is the flag of it, with a blank before it.
func (s *spaces) again() string {
	if s.typed() == "" {
		return ""
	}
	return " -n " + s.typed()
}

// asked is what requests say.
func (s *spaces) asked() string {
	if s.all {
		return job.AllNamespaces
	}
	return s.name
}

// column puts a namespace before the cells of a row where a list is over all of them.
func (s *spaces) column(namespace string, cells ...string) []string {
	if s.all {
		return append([]string{namespace}, cells...)
	}
	return cells
}

// unusual is a namespace as the view of one thing shows it: only if it is not the usual one.
func unusual(namespace string) string {
	if namespace == job.DefaultNamespace {
		return ""
	}
	return namespace
}
