package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
)

func (a *app) jobsDeleteCmd() *cobra.Command {
	var version uint64
	c := a.jobCmd("delete", "Delete a job; its open runs are canceled", func(cmd *cobra.Command, ref string) error {
		return a.show(cmd, func(ctx context.Context, c *client.Client) error { return c.DeleteJob(ctx, ref, version) },
			func(p *printer) { p.printf("deleted %s\n", ref) })
	})
	c.Aliases = []string{"rm"}
	c.Flags().Uint64Var(&version, "version", 0, "only if the job is at this version")
	return c
}
