package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) jobsBackfillCmd() *cobra.Command {
	var b client.BackfillRequest
	var from, to string
	c := a.jobCmd("backfill", "Run a job for the occurrences of a past interval",
		func(cmd *cobra.Command, ref string) error {
			if from == "" || to == "" {
				return usage("give --from and --to, both ends are included", "a backfill needs an interval")
			}
			for _, t := range []struct {
				flag, text string
				to         *job.Instant
			}{{"--from", from, &b.From}, {"--to", to, &b.To}} {
				at, err := instant(t.flag, t.text, a.now(), a.loc)
				if err != nil {
					return err
				}
				*t.to = job.At(at)
			}
			var r client.BackfillResult
			return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
				r, err = c.Backfill(ctx, ref, b)
				return err
			}, func(p *printer) { p.backfill(r) })
		})
	c.Flags().StringVar(&from, "from", "", "beginning: RFC 3339, or date and time in the local zone")
	c.Flags().StringVar(&to, "to", "", "end")
	c.Flags().IntVar(&b.Max, "max", 0, "refuse to make more runs than this (default 100, at most 1000)")
	c.Flags().BoolVar(&b.DryRun, "dry-run", false, "only show what would run")
	c.Flags().BoolVar(&b.Force, "force", false, "repeat what ran already, with a new idempotency key")
	return c
}

func (p *printer) backfill(r client.BackfillResult) {
	done := "made"
	if r.DryRun {
		done = "would make"
	}
	p.printf("%s %s", done, plural(len(r.Times), "run"))
	if n := len(r.Skipped); n > 0 {
		p.printf("; %s ran already (--force repeats)", plural(n, "occurrence"))
	}
	p.printf("\n")
	for _, t := range r.Times {
		p.printf("  %s\n", t)
	}
}
