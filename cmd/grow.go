package cmd

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/watch"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) growCmd() *cobra.Command {
	var noWait bool
	c := &cobra.Command{
		Use: "grow-groups N", Short: "Give the cluster more Raft groups for jobs", Args: cobra.ExactArgs(1),
		Long: `N is the total number of groups for jobs, from 2 to 64. The cluster keeps working meanwhile. Existing jobs stay in their groups, and
new ones are spread over all groups. The number of groups can never be lowered.

The command waits until the new groups take jobs and prints each that has begun. If you interrupt it, the cluster continues; repeat the
command to see the progress.`,
		Example: "  carillon cluster grow-groups 4",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil {
				return job.Invalid("N", fmt.Sprintf("use a number from 2 to %d", job.MaxGroups),
					"%q is not a number of groups", args[0])
			}
			ctx, c := a.keyed(cmd.Context()), a.client()
			g, err := c.GrowGroups(ctx, n)
			already := g.Done
			if err == nil && !noWait {
				err = watch.Growth(ctx, c, &g, func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) })
			}
			if err != nil {
				if ctx.Err() != nil && g.Want > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "the cluster keeps growing to %d groups\n", g.Want)
				}
				return err
			}
			return a.result(cmd, g, func(p *printer) { p.Printf("%s\n", watch.GrowthText(g, already)) })
		},
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until the new groups take jobs")
	return c
}
