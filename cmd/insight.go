package cmd

import (
	"cmp"
	"context"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

// jobQuestion is a command that makes one call about one job.
func jobQuestion[T any](a *app, name, short string, call func(*client.Client, context.Context, string) (T, error),
	human func(*printer, T)) *cobra.Command {
	return a.jobCmd(name, short, func(cmd *cobra.Command, ref string) error {
		return ask(a, cmd, func(c *client.Client, ctx context.Context) (T, error) { return call(c, ctx, ref) }, human)
	})
}

func (a *app) whyCmd() *cobra.Command {
	return a.jobCmd("why", "Explain why a job does not run now, or when it will",
		func(cmd *cobra.Command, ref string) error {
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.Why, error) {
				return c.Why(ctx, ref)
			}, func(p *printer, w client.Why) {
				j, _ := a.client().GetJob(cmd.Context(), ref) // how it went last is beside the answer
				p.whyNot(w, j)
			})
		})
}

// instants are the times in what a node says, which knows nothing of the zone of the reader.
var instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`)

func (p *printer) whyNot(w client.Why, j job.Job) {
	local := func(text string) string {
		return instants.ReplaceAllStringFunc(text, func(s string) string {
			at, err := time.Parse(time.RFC3339Nano, s)
			if err != nil {
				return s
			}
			return p.Clock(job.Instant(at.UnixMilli())) + " (" + output.Relative(at.Sub(p.Now)) + ")"
		})
	}
	p.Printf("%s\n", local(w.Verdict))
	if failing(j) {
		p.Printf("its last run is %s, %s: %[4]s logs %[3]s, %[4]s runs %[3]s\n",
			p.RunStatus(j.LastRunStatus), p.When(j.LastRunAt), cmp.Or(j.Name, j.ID.String())+p.a.spaces.again(),
			output.Program())
	}
	t := output.Table{Wrap: true}
	for _, c := range w.Checks {
		state, text := c.State, local(c.Text)
		if c.Check == "due" && state == wire.CheckBlocked && c.Remedy == "" {
			state = "later" // its time has not come: nothing is wrong
		}
		if c.Remedy != "" && state != wire.CheckOK {
			text += "; " + exit.AsCommands(c.Remedy, p.a.spaces.typed())
		}
		color := map[string]string{wire.CheckOK: terminal.Green, wire.CheckBlocked: terminal.Red}[state]
		t.Row(p.Paint(cmp.Or(color, terminal.Yellow), state), c.Check, text)
	}
	p.Table(t)
}

func (a *app) jobsOccurrencesCmd() *cobra.Command {
	var q client.OccurrenceQuery
	var from, to string
	c := a.jobCmd("occurrences", "Show what became of each occurrence of a job, and what comes next",
		func(cmd *cobra.Command, ref string) error {
			err := a.instants(a.loc, values.Before, timeFlag{"--from", from, &q.From}, timeFlag{"--to", to, &q.To})
			if err != nil {
				return err
			}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.OccurrencePage, error) {
				return c.Occurrences(ctx, ref, q)
			}, func(p *printer, page client.OccurrencePage) { p.Occurrences(page) })
		})
	c.Flags().StringVar(&from, "from", "",
		"beginning: RFC 3339, or date and time in the local zone (default a day ago)")
	c.Flags().StringVar(&to, "to", "", "end (default: the next ones)")
	c.Flags().IntVar(&q.Limit, "limit", 100, "how many, at most 1000")
	c.Flags().StringVar(&q.Cursor, "cursor", "", "continue where a list ended, with older ones")
	return c
}

func (a *app) upcomingCmd() *cobra.Command {
	var q client.UpcomingQuery
	c := &cobra.Command{Use: "upcoming [JOB]", Short: "List the next occurrences", Args: cobra.MaximumNArgs(1)}
	c.Flags().IntVar(&q.Limit, "limit", 20, "how many, at most 1000")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			q.Job = args[0]
		}
		return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.UpcomingPage, error) {
			return c.Upcoming(ctx, q)
		}, func(p *printer, page client.UpcomingPage) {
			var t output.Table
			t.Row(a.spaces.column("NAMESPACE", "SCHEDULED", "JOB", "TYPE", "QUEUE")...)
			for _, o := range page.Occurrences {
				t.Row(a.spaces.column(o.Namespace, p.WhenCell(o.ScheduledAt), cmp.Or(o.Name, o.JobID.String()),
					string(o.Type), output.Dash(o.Queue))...)
			}
			p.Table(t)
		})
	}
	return a.watched(a.listsAll(c))
}
