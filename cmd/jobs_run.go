package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) jobsRunCmd() *cobra.Command {
	c := a.jobCmd("run", "Run a job now, besides its schedule", func(cmd *cobra.Command, ref string) error {
		var r job.Run
		return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
			r, err = c.RunJob(ctx, ref)
			return err
		}, func(p *printer) { p.printf("run %s is %s; see carillon runs get %s\n", r.RunID, r.Status, r.RunID) })
	})
	return c
}
