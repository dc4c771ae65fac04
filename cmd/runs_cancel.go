package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) runsCancelCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cancel RUN", Short: "Cancel an open run", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r job.Run
			return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
				r, err = c.CancelRun(ctx, args[0])
				return err
			}, func(p *printer) { p.printf("run %s is %s\n", args[0], r.Status) })
		},
	}
}
