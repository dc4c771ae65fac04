package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) jobsPauseCmd() *cobra.Command {
	return a.jobCmd("pause", "Stop a job from firing until it is resumed", func(cmd *cobra.Command, ref string) error {
		return a.changeJob(cmd, "paused",
			func(ctx context.Context, c *client.Client) (job.Job, error) { return c.PauseJob(ctx, ref) })
	})
}

// changeJob makes a call that answers with the job and says what was done to it.
func (a *app) changeJob(cmd *cobra.Command, done string,
	call func(context.Context, *client.Client) (job.Job, error)) error {
	var j job.Job
	return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
		j, err = call(ctx, c)
		return err
	}, func(p *printer) {
		next := nextRun(p, j)
		if next == ", paused" {
			next = ""
		}
		p.printf("%s %s%s\n", done, nameAndID(j), next)
	})
}
