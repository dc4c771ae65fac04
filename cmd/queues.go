package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) queuesCmd() *cobra.Command {
	c := a.queuesListCmd("queues", "List queues, and limit, pause or resume one")
	c.AddCommand(a.queuesListCmd("list", "List queues"),
		askAbout(a, "get NAME", "Show one queue", (*client.Client).GetQueue, (*printer).queue), a.queuesSetCmd(),
		a.queueAction("pause", "Stop handing out runs of a queue until it is resumed", "paused",
			(*client.Client).PauseQueue),
		a.queueAction("resume", "Undo a pause", "resumed", (*client.Client).ResumeQueue), a.queuesDeleteCmd())
	return c
}

func (a *app) queuesListCmd(use, short string) *cobra.Command {
	return a.watched(a.listsAll(&cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, (*client.Client).Queues, (*printer).queues)
		},
	}))
}

func (p *printer) queues(all []client.Queue) {
	if len(all) == 0 {
		p.Printf("no queues\n")
		return
	}
	var t output.Table
	spaces := &p.a.spaces
	t.Row(spaces.column("NAMESPACE", "NAME", "STATE", "JOBS", "RUNNING", "BACKLOG", "OLDEST DUE", "WORKERS",
		"WAITING FOR")...)
	for _, q := range all {
		t.Row(spaces.column(q.Namespace, q.Name, p.queueState(q), strconv.Itoa(q.Jobs), running(q),
			backlog(q.Backlog, q.BacklogMore), p.WhenCell(q.OldestDueAt), strconv.Itoa(len(q.Workers)),
			output.Dash(q.WaitReason))...)
	}
	p.Table(t)
}

func (p *printer) queueState(q client.Queue) string {
	if q.Paused {
		return p.Paint(terminal.Yellow, "paused")
	}
	return "open"
}

// running shows how full a queue is: "3", or "3 of 10".
func running(q client.Queue) string {
	if q.Concurrency == 0 {
		return strconv.Itoa(q.Running)
	}
	return fmt.Sprintf("%d of %d", q.Running, q.Concurrency)
}

func backlog(n int64, more bool) string {
	return map[bool]string{true: "≥"}[more] + strconv.FormatInt(n, 10)
}

func (p *printer) queue(q client.Queue) {
	limit := "none"
	if q.Concurrency > 0 {
		limit = strconv.Itoa(q.Concurrency)
	}
	version := ""
	if q.Version > 0 {
		version = strconv.FormatUint(q.Version, 10)
	}
	p.Fields("name", q.Name, "namespace", unusual(q.Namespace), "state", p.queueState(q), "waiting", q.WaitReason,
		"limit", limit, "running", strconv.Itoa(q.Running), "backlog", backlog(q.Backlog, q.BacklogMore),
		"oldest due", p.When(q.OldestDueAt), "jobs", strconv.Itoa(q.Jobs), "workers",
		cmp.Or(strings.Join(q.Workers, ", "), "none"), "version", version, "updated", p.When(q.UpdatedAt))
}

func (a *app) queuesSetCmd() *cobra.Command {
	var concurrency int
	var version uint64
	c := &cobra.Command{
		Use: "set NAME --concurrency N", Short: "Declare a queue, or change its limit", Args: cobra.ExactArgs(1),
		Example: "  carillon queues set mail --concurrency 10     # at most ten at a time, over all workers\n" +
			"  carillon queues set mail --concurrency 0      # no limit",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("concurrency") {
				return usage("give --concurrency N; 0 means no limit", "there is nothing to set")
			}
			change := client.QueueChange{Concurrency: &concurrency}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.Queue, error) {
				// The pause of a queue that exists is left alone; one that does not is made.
				q, err := c.PatchQueue(ctx, args[0], change, version)
				switch job.CodeOf(err) {
				case job.CodeUnknownQueue, job.CodeKeyReused: // the key may be that of a try that made it
					return c.PutQueue(ctx, args[0], change, version)
				}
				return q, err
			}, func(p *printer, q client.Queue) {
				limit := "no limit"
				if q.Concurrency > 0 {
					limit = "at most " + strconv.Itoa(q.Concurrency) + " at a time"
				}
				p.Printf("set queue %s: %s\n", q.Name, limit)
			})
		},
	}
	c.Flags().IntVar(&concurrency, "concurrency", 0, "how many of its runs workers may have at once; 0 for no limit")
	c.Flags().Uint64Var(&version, "version", 0, "only if the queue is at this version")
	return c
}

func (a *app) queueAction(name, short, done string,
	call func(*client.Client, context.Context, string) (client.Queue, error)) *cobra.Command {
	return askAbout(a, name+" NAME", short, call, func(p *printer, q client.Queue) {
		p.Printf("%s queue %s: %s running, %s waiting\n", done, q.Name, running(q), backlog(q.Backlog, q.BacklogMore))
	})
}

func (a *app) queuesDeleteCmd() *cobra.Command {
	var version uint64
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a queue's limit and pause; its jobs continue",
		Args: cobra.ExactArgs(1), Aliases: []string{"rm"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.show(cmd, func(ctx context.Context, c *client.Client) error {
				return c.DeleteQueue(ctx, args[0], version)
			},
				func(p *printer) { p.Printf("deleted queue %s\n", args[0]) })
		},
	}
	c.Flags().Uint64Var(&version, "version", 0, "only if the queue is at this version")
	return c
}
