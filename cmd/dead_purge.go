package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
)

func (a *app) deadPurgeCmd() *cobra.Command {
	return a.deadAction("purge", "Remove dead letters for good", "purged",
		func(ctx context.Context, c *client.Client, q client.DeadQuery) (client.DeadResult, error) {
			return c.PurgeDead(ctx, q)
		})
}
