package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exporter"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) runsCmd() *cobra.Command {
	c := a.runsListCmd("runs [JOB]", "List what ran and what did not, and show or cancel a run")
	c.AddCommand(a.runsListCmd("list [JOB]", "List runs"),
		a.watched(askAbout(a, "get RUN", "Show one run with its attempts", (*client.Client).GetRun,
			(*printer).runDetail)),
		a.runsTailCmd(), a.runsCancelCmd(), a.runsExportCmd())
	return c
}

const runStatusNames = "pending, waiting, claimed, running, retrying, canceling, succeeded, failed, dead, skipped, " +
	"missed, expired, canceled, lost"

func (a *app) runsListCmd(use, short string) *cobra.Command {
	var q client.RunQuery
	var statuses []string
	c := &cobra.Command{Use: use, Short: short, Args: cobra.MaximumNArgs(1),
		Long: "With a job: its open runs and then its history, newest first. Without one: the open runs of all jobs " +
			"and what is due and not claimed, or the history of all jobs if --status asks for finished runs."}
	c.Flags().StringSliceVar(&statuses, "status", nil, "only "+runStatusNames)
	part := pages(c, &q.Limit, 50, &q.Cursor)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		q.Statuses = nil
		for _, s := range statuses {
			st, err := job.ParseRunStatus(s)
			if err != nil || st == job.RunNone {
				return job.Invalid("--status", "use "+runStatusNames, "unknown run status %q", s)
			}
			q.Statuses = append(q.Statuses, st)
		}
		return askPages(a, cmd, part, func(c *client.Client, ctx context.Context) (client.RunPage, error) {
			if len(args) == 1 {
				return c.JobRuns(ctx, args[0], q)
			}
			return c.Runs(ctx, q)
		}, func(p *printer, page client.RunPage) {
			if len(page.Runs) == 0 && len(args) == 0 && len(statuses) == 0 {
				p.Printf("no open runs; finished ones: %s runs%s JOB, or --status succeeded,failed,…\n",
					output.Program(), a.spaces.again())
				return
			}
			p.runs(page, len(args) == 0)
		})
	}
	return a.watched(a.listsAll(c))
}

func (p *printer) runs(page client.RunPage, withJob bool) {
	if len(page.Runs) == 0 {
		p.Printf("no runs\n")
		p.More(page.NextCursor)
		return
	}
	t := output.Table{Below: true}
	row := func(namespace, job string, cells ...string) {
		if withJob {
			cells = append([]string{job}, cells...)
		}
		t.Row(p.a.spaces.column(namespace, cells...)...)
	}
	row("NAMESPACE", "JOB", "SCHEDULED", p.Paint(terminal.Plain, "STATUS"), "LAG", "TOOK", "TRY", "WORKER", "RUN", "")
	for _, r := range page.Runs {
		if r.RunID == "" && r.Count > 0 {
			text := p.interval(r)
			if withJob {
				text = strings.Join(p.a.spaces.column(r.Namespace, runJob(r), text), "  ")
			}
			t.Text(text)
			continue
		}
		row(r.Namespace, runJob(r), p.WhenCell(r.ScheduledAt), p.RunStatus(r.Status), lag(r), p.took(r),
			output.Dash(number(r.Attempt)), output.Dash(r.Worker), output.Dash(r.RunID), p.why(r))
		if p.Width > 0 && r.WaitReason != "" {
			t.Text("  waits: " + output.Line(r.WaitReason))
		}
	}
	p.Table(t)
	p.More(page.NextCursor)
}

func runJob(r job.Run) string {
	name := cmp.Or(r.JobName, r.JobID.String())
	if r.JobDeleted {
		name += " (deleted)"
	}
	return name
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
	return fmt.Sprintf("×%s %s%s %s", count, p.RunStatus(r.Status), reason, p.Span(r.First, r.Last))
}

func lag(r job.Run) string {
	if r.LagMS == nil {
		return "-"
	}
	return output.Fine(time.Duration(*r.LagMS) * time.Millisecond)
}

// took is how long an attempt took, or has taken so far.
func (p *printer) took(r job.Run) string {
	switch {
	case r.StartedAt == 0:
		return "-"
	case r.FinishedAt == 0:
		return output.Fine(p.Now.Sub(r.StartedAt.Time())) + "…"
	}
	return output.Fine(r.FinishedAt.Time().Sub(r.StartedAt.Time()))
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
		text = "overdue " + output.Coarse(late)
		if p.Width == 0 && r.WaitReason != "" {
			text += ": " + r.WaitReason
		}
	}
	if r.Status == job.RunRetrying && r.ReadyAt != 0 {
		next := "next attempt " + output.Relative(r.ReadyAt.Time().Sub(p.Now))
		if r.ReadyAt.Time().Before(p.Now) {
			// it waits for a worker or a limit
			next = "next attempt due " + output.Relative(r.ReadyAt.Time().Sub(p.Now))
		}
		text = strings.TrimSuffix(next+": "+text, ": ")
	}
	return output.Line(text)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (p *printer) runDetail(d client.RunDetail) {
	p.run(d.Run)
	if len(d.Attempts) > 0 {
		p.Printf("\n")
		p.attempts(d.Attempts)
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
	p.Fields(
		"run", r.RunID,
		"job", name,
		"namespace", unusual(r.Namespace),
		"status", p.RunStatus(r.Status),
		"reason", r.Reason.String(),
		"scheduled", p.When(r.ScheduledAt),
		"origin", origin(r),
		ready, p.When(r.ReadyAt),
		"waiting", r.WaitReason,
		"claimed", p.When(r.ClaimedAt),
		"started", p.When(r.StartedAt),
		"finished", p.When(r.FinishedAt),
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
	p.Printf("%s:\n", name)
	for line := range strings.SplitSeq(text, "\n") {
		p.Printf("  %s\n", output.Short(line, 500))
	}
}

func (p *printer) attempts(list []job.Run) {
	t := output.Table{Below: true}
	t.Row("ATTEMPT", p.Paint(terminal.Plain, "STATUS"), "STARTED", "DURATION", "WORKER", "")
	for _, r := range list {
		t.Row(output.Dash(number(r.Attempt)), p.RunStatus(r.Status), p.WhenCell(r.StartedAt), p.took(r),
			output.Dash(r.Worker), p.why(r))
	}
	p.Table(t)
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

func (a *app) runsCancelCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cancel RUN", Short: "Cancel an open run", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (job.Run, error) {
				return c.CancelRun(ctx, args[0])
			},
				func(p *printer, r job.Run) { p.Printf("run %s is %s\n", args[0], r.Status) })
		},
	}
}

func (a *app) runsExportCmd() *cobra.Command {
	var from exporter.From
	var limit int
	c := &cobra.Command{
		Use: "export", Short: "Print the history as JSON lines, oldest first", Args: cobra.NoArgs,
		Long:    "Print every record of the history as one line of JSON. " + exporter.Help,
		Example: "  carillon runs export -A --after-file runs.ndjson >> runs.ndjson",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return from.Lines(cmd, func(after client.Seqs, line func(uint64, json.RawMessage) error) error {
				return a.client().ExportHistory(cmd.Context(), after, limit,
					func(r job.Run, raw json.RawMessage) error { return line(r.Seq, raw) })
			})
		},
	}
	from.Register(c.Flags())
	c.Flags().IntVar(&limit, "limit", 0, "how many at most (default all)")
	return a.listsAll(c)
}

func (a *app) runsTailCmd() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "tail RUN", Short: "Print what a run writes, while it writes it", Args: cobra.ExactArgs(1),
		Long: "Print the output of the last attempt of a run: what a running shell job has written so far, or the " +
			"stored end of a finished run's output. With --follow it continues until the run is finished, over all " +
			"its attempts.",
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "continue until the run is finished")
	c.RunE = func(cmd *cobra.Command, args []string) error { return a.tail(cmd, args[0], follow) }
	return c
}

// tail prints what a run wrote, and with follow what it goes on to write.
func (a *app) tail(cmd *cobra.Command, run string, follow bool) error {
	cl := a.client()
	var last job.RunOutput
	var seen tailSeen
	for {
		o, err := cl.RunOutput(cmd.Context(), run, last.Fence, last.Next)
		if err != nil {
			return err
		}
		text := o.Text
		for _, n := range tailNotes(last, o, follow) {
			fmt.Fprintf(cmd.ErrOrStderr(), "--- %s\n", n)
		}
		if o.Fence != last.Fence {
			seen = tailSeen{}
		}
		if o.Done {
			text = seen.rest(text)
		}
		seen.add(text)
		if a.json {
			err = output.JSON(cmd.OutOrStdout(), o)
		} else {
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		}
		if o.Done && follow && o.Status != job.RunSucceeded {
			fmt.Fprintf(cmd.ErrOrStderr(), "--- the run is %s\n", o.Status)
		}
		if err != nil || o.Done || !follow {
			return err
		}
		last = o
	}
}

// logsCmd is tail by the name of the job.
func (a *app) logsCmd() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "logs JOB|RUN", Short: "Print the output of a job's newest run, or of one run",
		Args: cobra.ExactArgs(1),
		Long: "Print the output of the newest run of a job that has begun, or of the run you name: what a running " +
			"shell job has written so far, or the stored end of a finished run's output. With --follow it continues " +
			"until that run is finished, over all its attempts; a run of the job that is about to begin comes first.",
		Example: "  carillon logs backup\n  carillon jobs run backup && carillon logs backup -f",
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "continue until the run is finished")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := job.ParseRunKey(args[0]); err == nil {
			return a.tail(cmd, args[0], follow)
		}
		page, err := a.client().JobRuns(cmd.Context(), args[0], client.RunQuery{Limit: 100})
		if err != nil {
			return err
		}
		newest := newestRun(page.Runs, follow)
		if newest.RunID == "" {
			return job.Errorf(job.CodeNotFound, "`carillon why "+args[0]+
				"` says what it waits for, and `carillon runs "+args[0]+"` what became of it",
				"no run of %s has begun", args[0])
		}
		if !a.json {
			began := "not started yet"
			if newest.StartedAt != 0 {
				began = "started " + a.printer(cmd).When(newest.StartedAt)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "--- run %s, %s, %s\n", newest.RunID, newest.Status, began)
		}
		return a.tail(cmd, newest.RunID, follow)
	}
	return c
}

// newestRun is the one of a job's runs whose output is asked for: the newest that has begun. Who follows a job wants to
// see what it does now or next, such as the run just asked for, which no worker may have yet: an open run comes before
// those that are finished, and one that waits behind another of the job after that.
func newestRun(runs []job.Run, follow bool) (newest job.Run) {
	rank := func(r job.Run) int {
		switch {
		case r.RunID == "" || r.StartedAt == 0 && !(follow && r.Status.Open()):
			return 0
		case !follow || !r.Status.Open():
			return 1
		case r.Status == job.RunWaiting:
			return 2
		}
		return 3
	}
	since := func(r job.Run) job.Instant { return cmp.Or(r.StartedAt, r.ClaimedAt, r.ReadyAt) }
	for _, r := range runs {
		if k, best := rank(r), rank(newest); k > best || k > 0 && k == best && since(r) > since(newest) {
			newest = r
		}
	}
	return newest
}

// tailNotes is what a reader should know beside the text: on standard error, so that the text stays what was written.
func tailNotes(last, o job.RunOutput, follow bool) (notes []string) {
	if o.Fence != last.Fence && last.Fence != 0 && o.Fence != 0 {
		notes = append(notes, fmt.Sprintf("attempt %d", o.Attempt))
	}
	if !o.Done && o.Offset > last.Next && last.Next > 0 && o.Fence == last.Fence {
		notes = append(notes, fmt.Sprintf("%d bytes were written too fast to follow", o.Offset-last.Next))
	}
	if o.Done || o.Text != "" || follow && o.Status == last.Status {
		return notes
	}
	switch o.Status {
	case job.RunClaimed, job.RunRunning, job.RunCanceling:
		if last.Next == 0 { // otherwise it is only quiet
			notes = append(notes, fmt.Sprintf("the run is %s and has written nothing yet", o.Status))
		}
	default:
		notes = append(notes, fmt.Sprintf("the run is %s: no worker has it right now", o.Status))
	}
	return notes
}

// tailSeen is the end of what was printed. The tail of a finished attempt does not say where it begins in all that the
// attempt wrote.
type tailSeen struct{ end string }

func (s *tailSeen) add(text string) {
	s.end += text
	s.end = s.end[max(0, len(s.end)-2*job.MaxOutputBytes):]
}

// rest is what of a finished attempt's tail was not printed yet.
func (s *tailSeen) rest(tail string) string {
	for n := len(tail); n > 0; n-- {
		if strings.HasSuffix(s.end, tail[:n]) {
			return tail[n:]
		}
	}
	return tail
}
