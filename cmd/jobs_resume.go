package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) jobsResumeCmd() *cobra.Command {
	return a.jobCmd("resume", "Undo a pause or a quarantine", func(cmd *cobra.Command, ref string) error {
		return a.changeJob(cmd, "resumed",
			func(ctx context.Context, c *client.Client) (job.Job, error) { return c.ResumeJob(ctx, ref) })
	})
}
