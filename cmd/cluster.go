package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
)

func (a *app) clusterCmd() *cobra.Command {
	return group("cluster", "Operate a cluster", a.membersCmd(), a.removeCmd(), a.leaveCmd(), a.promoteCmd(), a.demoteCmd(), a.transferCmd(), a.recoverCmd(), a.clockResetCmd())
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
