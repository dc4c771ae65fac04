package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) runsGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get RUN", Short: "Show one run with its attempts", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var d client.RunDetail
			return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
				d, err = c.GetRun(ctx, args[0])
				return err
			}, func(p *printer) {
				p.run(d.Run)
				if len(d.Attempts) > 0 {
					p.printf("\n")
					p.attempts(d.Attempts)
				}
			})
		},
	}
}

func (p *printer) run(r job.Run) {
	fence := ""
	if r.Fence > 0 {
		fence = fmt.Sprint(r.Fence)
	}
	name := r.JobID.String()
	if r.JobName != "" {
		name = r.JobName + " (" + name + ")"
	}
	ready := "ready"
	if r.Status == job.RunRetrying {
		ready = "next attempt"
	}
	p.fields(
		"run", r.RunID,
		"job", name,
		"status", p.runStatus(r.Status),
		"reason", r.Reason.String(),
		"scheduled", p.when(r.ScheduledAt),
		"origin", origin(r),
		ready, p.when(r.ReadyAt),
		"waiting", r.WaitReason,
		"claimed", p.when(r.ClaimedAt),
		"started", p.when(r.StartedAt),
		"finished", p.when(r.FinishedAt),
		"lag", lag(r),
		"duration", p.took(r),
		"attempt", number(r.Attempt),
		"worker", r.Worker,
		"fence", fence,
		"key", r.Key,
		"job version", number(int(r.JobVersion)),
	)
	p.block("error", r.Error)
	p.block("output", r.Output)
}

// block prints a text of several lines, without what could steer the terminal.
func (p *printer) block(name, text string) {
	if text = strings.TrimRight(text, "\n"); text == "" {
		return
	}
	p.printf("%s:\n", name)
	for line := range strings.SplitSeq(text, "\n") {
		p.printf("  %s\n", short(line, 500))
	}
}

func (p *printer) attempts(list []job.Run) {
	var t table
	t.row("ATTEMPT", p.paint(plain, "STATUS"), "STARTED", "DURATION", "WORKER", "")
	for _, r := range list {
		t.row(dash(number(r.Attempt)), p.runStatus(r.Status), p.whenCell(r.StartedAt), p.took(r), dash(r.Worker), p.why(r))
	}
	p.table(t)
}

// origin is why a run exists.
func origin(r job.Run) string {
	switch {
	case r.Origin == 0:
		return ""
	case r.Forced:
		return r.Origin.String() + ", forced"
	}
	return r.Origin.String()
}
