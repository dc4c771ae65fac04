package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) jobsRunCmd() *cobra.Command {
	var key string
	c := a.jobCmd("run", "Run a job now, besides its schedule", func(cmd *cobra.Command, ref string) error {
		var r job.Run
		return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
			if key != "" {
				ctx = client.WithIdempotencyKey(ctx, key)
			}
			r, err = c.RunJob(ctx, ref)
			return err
		}, func(p *printer) { p.printf("run %s is %s; see carillon runs get %s\n", r.RunID, r.Status, r.RunID) })
	})
	c.Flags().StringVar(&key, "idempotency-key", "", "key of this request: repeating it makes no second run")
	return c
}
