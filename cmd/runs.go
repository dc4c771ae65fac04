package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) runsCmd() *cobra.Command {
	c := a.runsListCmd("runs [JOB]", "List what ran and what did not, and look at or cancel a run")
	c.AddCommand(a.runsListCmd("list [JOB]", "List runs"), a.runsGetCmd(), a.runsTailCmd(), a.runsCancelCmd(),
		a.runsExportCmd())
	return c
}

const runStatusNames = "pending, waiting, claimed, running, retrying, canceling, succeeded, failed, dead, skipped, missed, expired, canceled, lost"

func (a *app) runsListCmd(use, short string) *cobra.Command {
	var q client.RunQuery
	var statuses []string
	c := &cobra.Command{Use: use, Short: short, Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeJobs,
		Long: "With a job: its open runs and then its history, newest first. Without: the open runs of all jobs and what is due and not claimed, or with a finished --status their history."}
	c.Flags().StringSliceVar(&statuses, "status", nil, "only "+runStatusNames)
	c.Flags().IntVar(&q.Limit, "limit", 50, "how many, at most 1000")
	c.Flags().StringVar(&q.Cursor, "cursor", "", "go on where a list ended")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		q.Statuses = nil
		for _, s := range statuses {
			st, err := job.ParseRunStatus(s)
			if err != nil || st == job.RunNone {
				return job.Invalid("--status", "use "+runStatusNames, "unknown run status %q", s)
			}
			q.Statuses = append(q.Statuses, st)
		}
		var page client.RunPage
		return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
			if len(args) == 1 {
				page, err = c.JobRuns(ctx, args[0], q)
			} else {
				page, err = c.Runs(ctx, q)
			}
			return err
		}, func(p *printer) { p.runs(page, len(args) == 0) })
	}
	return c
}

func (p *printer) runs(page client.RunPage, withJob bool) {
	if len(page.Runs) == 0 {
		p.printf("no runs\n")
		return
	}
	var t table
	row := func(job string, cells ...string) {
		if withJob {
			cells = append([]string{job}, cells...)
		}
		t.row(cells...)
	}
	row("JOB", "SCHEDULED", p.paint(plain, "STATUS"), "LAG", "TOOK", "TRY", "WORKER", "RUN", "")
	for _, r := range page.Runs {
		if r.RunID == "" && r.Count > 0 {
			text := p.interval(r)
			if withJob {
				text = runJob(r) + "  " + text
			}
			t.text(text)
			continue
		}
		row(runJob(r), p.whenCell(r.ScheduledAt), p.runStatus(r.Status), lag(r), p.took(r), dash(number(r.Attempt)),
			dash(r.Worker), dash(r.RunID), p.why(r))
		if p.a.width > 0 && r.WaitReason != "" {
			t.text("  waits: " + line(r.WaitReason))
		}
	}
	p.table(t)
	p.more(page.NextCursor)
}

func runJob(r job.Run) string {
	if r.JobName != "" {
		return r.JobName
	}
	return r.JobID.String()
}

// interval is occurrences that did not run, on one line: "×12 skipped: overlap 12:00–12:11".
func (p *printer) interval(r job.Run) string {
	count := fmt.Sprint(r.Count)
	if r.CountAtLeast {
		count = "≥" + count
	}
	reason := ""
	if r.Reason != job.ReasonNone {
		reason = ": " + r.Reason.String()
	}
	return fmt.Sprintf("×%s %s%s %s", count, p.runStatus(r.Status), reason, p.span(r.First, r.Last))
}

func lag(r job.Run) string {
	if r.LagMS == nil {
		return "-"
	}
	return fine(time.Duration(*r.LagMS) * time.Millisecond)
}

// took is how long an attempt took, or has taken so far.
func (p *printer) took(r job.Run) string {
	switch {
	case r.StartedAt == 0:
		return "-"
	case r.FinishedAt == 0:
		return fine(p.now.Sub(r.StartedAt.Time())) + "…"
	}
	return fine(r.FinishedAt.Time().Sub(r.StartedAt.Time()))
}

// why is the short of it: the reason, the error, and when it is tried again.
func (p *printer) why(r job.Run) string {
	text := r.Reason.String()
	if r.Forced {
		text = strings.TrimSuffix("forced "+text, " ")
	}
	switch {
	case r.Error == "":
	case text == "" || r.Error == text || strings.HasPrefix(r.Error, text+":") || strings.HasPrefix(r.Error, text+" "):
		text = r.Error // "canceled" and "canceled: killed by SIGTERM" need not stand side by side
	default:
		text += ": " + r.Error
	}
	if late := p.overdue(r.ReadyAt); r.Status == job.RunPending && late > 0 {
		text = "overdue " + coarse(late)
		if p.a.width == 0 && r.WaitReason != "" {
			text += ": " + r.WaitReason
		}
	}
	if r.Status == job.RunRetrying && r.ReadyAt != 0 {
		next := "next attempt " + relative(r.ReadyAt.Time().Sub(p.now))
		if r.ReadyAt.Time().Before(p.now) {
			next = "next attempt due " + relative(r.ReadyAt.Time().Sub(p.now)) // it waits for a worker or a limit
		}
		text = strings.TrimSuffix(next+": "+text, ": ")
	}
	return line(text)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
