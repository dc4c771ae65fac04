package cmd

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) jobsCmd() *cobra.Command {
	c := a.jobsListCmd("jobs", "List jobs, and show or change one")
	get, create := a.jobsGetCmd(), a.submitCmd()
	get.Aliases = []string{"describe", "show"}
	create.Use, create.Short = "create [FILE|-]...", "Same as carillon submit"
	c.AddCommand(a.jobsListCmd("list", "List jobs"), get, create, a.jobsEditCmd(),
		a.jobAction("pause", "Stop a job from firing until it is resumed", "paused", (*client.Client).PauseJob),
		a.jobAction("resume", "Undo a pause or a quarantine", "resumed", (*client.Client).ResumeJob),
		a.jobsRunCmd(), a.jobsCancelCmd(), a.jobsBackfillCmd(), a.jobsDeleteCmd(), a.jobsOccurrencesCmd(),
		a.whyCmd(),
		jobQuestion(a, "stats", "Show how the last runs of a job went", (*client.Client).JobStats,
			func(p *printer, s client.JobStats) { p.JobStats(s) }))
	return c
}

func (a *app) jobsListCmd(use, short string) *cobra.Command {
	var q client.JobQuery
	var status, kind string
	var tags []string
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
		Aliases: map[string][]string{"list": {"ls"}, "jobs": {"job"}}[use]}
	c.Flags().StringVar(&status, "status", "", "scheduled, paused, completed, failed or quarantined; or failing: "+
		"its last run failed")
	c.Flags().StringVar(&kind, "type", "", strings.Join(job.Types(), ", "))
	c.Flags().StringVar(&q.Prefix, "prefix", "", "only jobs whose names begin with this")
	c.Flags().StringArrayVar(&tags, "tag", nil, "label k=v; repeatable")
	part := pages(c, &q.Limit, 100, &q.Cursor)
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		q.Status, q.Type = job.Status(status), job.Type(kind)
		if q.Failing = status == "failing"; q.Failing { // lists show it as a status
			q.Status = ""
		}
		if q.Tags, err = values.Pairs("--tag", tags); err != nil {
			return err
		}
		return askPages(a, cmd, part, func(c *client.Client, ctx context.Context) (client.JobPage, error) {
			return c.ListJobs(ctx, q)
		}, (*printer).jobs)
	}
	return a.watched(a.listsAll(c))
}

func (p *printer) jobs(page client.JobPage) {
	if len(page.Jobs) == 0 {
		p.Printf("no jobs\n")
		p.More(page.NextCursor) // a page of a filter may be empty
		return
	}
	var t output.Table
	head := []string{"NAME", "ID", "TYPE", p.Paint(terminal.Plain, "STATUS"), "NEXT RUN", "LAST RUN", "SCHEDULE"}
	// A terminal has no room for a column of reasons: there each is a line of its own.
	waiting := p.Width == 0 && (p.Several() ||
		slices.ContainsFunc(page.Jobs, func(j job.Job) bool { return j.WaitReason != "" }))
	if waiting {
		head = append(head, "WAITING")
	}
	t.Row(p.a.spaces.column("NAMESPACE", head...)...)
	for _, j := range page.Jobs {
		schedule := j.Schedule
		if j.Timezone != "" && j.Timezone != "UTC" {
			schedule += " " + j.Timezone
		}
		last := p.WhenCell(j.LastRunAt)
		if j.LastRunStatus != job.RunNone && j.LastRunAt != 0 {
			last = j.LastRunStatus.String() + " " + last
		}
		cells := []string{output.Dash(j.Name), j.ID.String(), string(j.Type), p.jobState(j), p.nextCell(j), last,
			output.Line(schedule)}
		if waiting {
			cells = append(cells, output.Line(j.WaitReason))
		}
		t.Row(p.a.spaces.column(j.Namespace, cells...)...)
		if p.Width > 0 && j.WaitReason != "" {
			t.Text("  waits: " + output.Line(j.WaitReason))
		}
	}
	p.Table(t)
	p.More(page.NextCursor)
}

// failing says that a job does not do its work, whether or not it is told of by notifications.
func failing(j job.Job) bool {
	switch j.LastRunStatus {
	case job.RunFailed, job.RunDead, job.RunLost, job.RunExpired:
		return true
	}
	return j.Failing
}

// jobState is the status of a job, and of one that goes on whether it works.
func (p *printer) jobState(j job.Job) string {
	if j.Status == job.StatusScheduled && failing(j) {
		return p.Paint(terminal.Red, "failing")
	}
	return p.JobStatus(j.Status)
}

// overdue is how long a job's next run has been due, 0 if it is not; less than a second is on its way.
func (p *printer) overdue(at job.Instant) time.Duration {
	if late := p.Now.Sub(at.Time()); at != 0 && late >= time.Second {
		return late
	}
	return 0
}

// nextRun is when a job runs next, or for how long it should have.
func (p *printer) nextRun(j job.Job) string {
	late := p.overdue(j.NextRunAt)
	if late == 0 || j.Status != job.StatusScheduled {
		return p.When(j.NextRunAt)
	}
	return p.Paint(terminal.Yellow, output.Coarse(late)+" overdue") + " (" + p.Clock(j.NextRunAt) + ")"
}

func (p *printer) nextCell(j job.Job) string { return output.AsCell(p.nextRun(j)) }

// jobCmd is a command about one job.
func (a *app) jobCmd(name, short string, run func(cmd *cobra.Command, ref string) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " JOB", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd, args[0]) },
	}
}
