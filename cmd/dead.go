package cmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) deadCmd() *cobra.Command {
	c := a.deadListCmd("dead", "List dead letters (runs whose last attempt failed), redrive or purge them")
	c.AddCommand(a.deadListCmd("list", "List dead letters"), a.deadGetCmd(),
		a.deadAction("redrive", "Put dead letters back to work", "redrove", (*client.Client).Redrive),
		a.deadAction("purge", "Remove dead letters for good", "purged", (*client.Client).PurgeDead))
	return c
}

func (a *app) deadListCmd(use, short string) *cobra.Command {
	var q client.DeadQuery
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	c.Flags().StringVar(&q.Job, "job", "", "only those of this job")
	part := pages(c, &q.Limit, 50, &q.Cursor)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return askPages(a, cmd, part, func(c *client.Client, ctx context.Context) (client.DeadPage, error) {
			return c.DeadLetters(ctx, q)
		}, (*printer).dead)
	}
	return a.watched(a.listsAll(c))
}

func (p *printer) dead(page client.DeadPage) {
	if len(page.Dead) == 0 {
		p.Printf("no dead letters\n")
		return
	}
	t := output.Table{Below: true}
	spaces := &p.a.spaces
	t.Row(spaces.column("NAMESPACE", "ID", "JOB", "SCHEDULED", "FAILED", "ATTEMPTS", "")...)
	for _, d := range page.Dead {
		t.Row(spaces.column(d.Namespace, strconv.FormatUint(d.Seq, 10), runJob(d.Run), p.WhenCell(d.ScheduledAt),
			p.WhenCell(d.FinishedAt), output.Dash(number(d.Attempt)), p.why(d.Run))...)
	}
	if !p.Unfinished {
		t.Text("redrive them: " + output.Program() + " dead redrive" + spaces.again() + " ID... | --job JOB | --all")
	}
	p.Table(t)
	p.More(page.NextCursor)
}

// numbers lists numbers, and not more than one can read.
func numbers(list []uint64) string {
	var out []string
	for _, n := range list[:min(len(list), 10)] {
		out = append(out, strconv.FormatUint(n, 10))
	}
	text := strings.Join(out, ", ")
	if more := len(list) - len(out); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (a *app) deadGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show one dead letter", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := deadIDs(args)
			if err != nil {
				return err
			}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (job.DeadLetter, error) {
				return c.GetDead(ctx, ids[0])
			}, func(p *printer, d job.DeadLetter) { p.run(d.Run) })
		},
	}
}

func deadIDs(args []string) ([]uint64, error) {
	var ids []uint64
	for _, s := range args {
		id, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, usage("`carillon dead` lists them", "%q is not the number of a dead letter", s)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// deadAction is a command that takes some dead letters, and never all of them by accident.
func (a *app) deadAction(name, short, done string,
	call func(*client.Client, context.Context, client.DeadQuery) (client.DeadResult, error)) *cobra.Command {
	var q client.DeadQuery
	c := &cobra.Command{Use: name + " (ID... | --job JOB | --all)", Short: short}
	c.Flags().StringVar(&q.Job, "job", "", "all dead letters of this job")
	c.Flags().BoolVar(&q.All, "all", false, "all dead letters of the namespace")
	var sure confirmation
	if name == "purge" {
		sure.register(c)
	}
	c.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if q.IDs, err = deadIDs(args); err != nil {
			return err
		}
		given := 0
		for _, g := range []bool{len(args) > 0, q.Job != "", q.All} {
			if g {
				given++
			}
		}
		if given != 1 {
			return usage("give the numbers, --job or --all", "it is not clear which dead letters you mean")
		}
		if name == "purge" && len(q.IDs) == 0 {
			err = sure.ask(a, cmd, q.All, func() (string, error) { return a.purged(cmd, q) })
			if err != nil {
				return err
			}
		}
		var r client.DeadResult
		paused := func() []string { return nil }
		if name == "redrive" {
			paused = a.pausedJobs(cmd, q)
		}
		err = a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
			r, err = call(c, ctx, q)
			return err
		}, func(p *printer) {
			p.Printf("%s %s\n", done, plural(r.Count, "dead letter"))
			for _, name := range paused() {
				p.Printf("%s is paused: its runs wait until %s jobs resume %[1]s\n", name, output.Program())
			}
		})
		if err == nil {
			err = notTaken(r)
		}
		return err
	}
	return c
}

// notTaken is the error about dead letters that were meant and are not taken; nil if all were.
func notTaken(r client.DeadResult) error {
	switch {
	case len(r.Unknown) > 0:
		return job.Errorf(job.CodeNotFound, "`carillon dead` lists them; the others were done",
			"there is no dead letter %s", numbers(r.Unknown))
	case r.Gone > 0:
		return job.Errorf(job.CodeState, "create the job again and run it, or remove them with `carillon dead purge`",
			"%s left alone: their job was deleted", plural(r.Gone, "dead letter"))
	case r.Open > 0:
		return job.Errorf(job.CodeState, "`carillon runs` lists open runs; try again when that run has ended",
			"%s left alone: the same run is open already", plural(r.Open, "dead letter"))
	}
	return nil
}

// pausedMost is how many dead letters are looked at for whether their jobs are paused.
const pausedMost = 20

// pausedJobs looks whose the dead letters are before they are put back, and says then which of these jobs are paused:
// what was put back waits. It is advice, so what cannot be found out is left out.
func (a *app) pausedJobs(cmd *cobra.Command, q client.DeadQuery) func() []string {
	ctx, c := cmd.Context(), a.client()
	jobs := map[string]bool{}
	switch {
	case q.Job != "":
		jobs[q.Job] = true
	case q.All:
		if page, err := c.DeadLetters(ctx, client.DeadQuery{Limit: pausedMost}); err == nil {
			for _, d := range page.Dead {
				jobs[d.JobID.String()] = true
			}
		}
	default:
		for _, id := range q.IDs[:min(len(q.IDs), pausedMost)] {
			if d, err := c.GetDead(ctx, id); err == nil {
				jobs[d.JobID.String()] = true
			}
		}
	}
	return func() (names []string) {
		for _, ref := range slices.Sorted(maps.Keys(jobs)) {
			if j, err := c.GetJob(ctx, ref); err == nil && j.Status == job.StatusPaused {
				names = append(names, cmp.Or(j.Name, ref))
			}
		}
		return names
	}
}

// purged says what a purge would remove.
func (a *app) purged(cmd *cobra.Command, q client.DeadQuery) (string, error) {
	page, err := a.client().DeadLetters(cmd.Context(), client.DeadQuery{Job: q.Job, Limit: 1000})
	if err != nil {
		return "", err
	}
	count := plural(len(page.Dead), "dead letter")
	if page.NextCursor != "" {
		count = "more than " + count
	}
	if q.Job != "" {
		return "This removes " + count + " of " + q.Job + ".", nil
	}
	return "This removes " + count + ", all of namespace " + cmp.Or(a.spaces.name, job.DefaultNamespace) + ".", nil
}
