package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
)

func (a *app) jobsCancelCmd() *cobra.Command {
	return a.jobCmd("cancel", "Cancel every open run of a job; its schedule goes on",
		func(cmd *cobra.Command, ref string) error {
			var n int
			return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
				n, err = c.CancelJob(ctx, ref)
				return err
			}, func(p *printer) { p.printf("canceled %s of %s\n", plural(n, "open run"), ref) })
		})
}
