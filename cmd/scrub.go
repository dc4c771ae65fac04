package cmd

import (
	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/watch"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) scrubCmd() *cobra.Command {
	return &cobra.Command{
		Use: "scrub", Short: "Compare the states of all replicas now", Args: cobra.NoArgs,
		Long: `The nodes compare their states by themselves within a day. This does it at once, and waits: it prints the progress, and what was found.
A node whose state is not that of the majority stops. Ctrl-C does not stop the comparison.

The exit code is 1 unless all voters of every group were compared and agree.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := watch.Scrub(a.keyed(cmd.Context()), a.client(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			err = a.result(cmd, found, func(p *printer) {
				for _, line := range found.Text() {
					p.Printf("%s\n", line)
				}
			})
			if err != nil || found.Sound() {
				return err
			}
			return job.Errorf(job.CodeInternal, "`carillon status` shows what is wrong with each node",
				"the replicas differ, or not all could be compared")
		},
	}
}
