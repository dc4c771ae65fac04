package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
)

func (a *app) clusterCmd() *cobra.Command {
	return group("cluster", "Operate a cluster", a.membersCmd(), a.removeCmd(), a.leaveCmd(), a.promoteCmd(),
		a.demoteCmd(), a.transferCmd(), a.recoverCmd(), a.releaseCmd(), a.clockResetCmd())
}

func (a *app) clockResetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "clock-reset", Short: "Lower the clock mark after a clock that ran ahead was put right", Args: cobra.NoArgs,
		Long: `A leader never stamps a time below the highest one that was committed. If a leader's clock ran ahead and was put right, the cluster
would wait until that time is reached. This lowers the mark to the leader's clock, which is recorded.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.show(cmd, func(ctx context.Context, c *client.Client) error { return c.ClockReset(ctx) },
				func(p *printer) { p.printf("the clock mark is at the leader's clock\n") })
		},
	}
}

func (a *app) releaseCmd() *cobra.Command {
	return &cobra.Command{
		Use: "release", Short: "Let a cluster that was restored from a backup run", Args: cobra.NoArgs,
		Long: `A restored cluster is on hold. Release it when you are certain that the cluster which the backup was taken from fires nothing any more.

What was due up to now is recorded as missed (restored), and the runs that were open in the backup as lost; none of them runs by itself. Releasing
a cluster that is not on hold changes nothing.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var r client.ReleaseResult
			return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
				r, err = c.Release(ctx)
				return err
			}, func(p *printer) {
				switch {
				case !r.Released && !r.Releasing:
					p.printf("the cluster is not on hold\n")
				case r.Releasing:
					p.printf("released; the open runs of the backup are still being recorded as lost, and nothing runs until that is done\n")
				default:
					p.printf("released: the cluster runs what is due from now on\n")
				}
			})
		},
	}
}
