package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
)

func (a *app) deadRedriveCmd() *cobra.Command {
	return a.deadAction("redrive", "Put dead letters back to work", "redrove",
		func(ctx context.Context, c *client.Client, q client.DeadQuery) (client.DeadResult, error) {
			return c.Redrive(ctx, q)
		})
}
