package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/watch"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) statusCmd() *cobra.Command {
	var ready bool
	c := &cobra.Command{Use: "status", Short: "Show a node, its cluster and what is wrong", Args: cobra.NoArgs}
	c.Flags().BoolVar(&ready, "ready", false, "exit with 5 unless the node is ready: for health checks")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var s client.Status
		err := ask(a, cmd, func(c *client.Client, ctx context.Context) (_ client.Status, err error) {
			s, err = c.Status(ctx)
			return s, err
		}, (*printer).status)
		if err == nil && ready && !s.Ready {
			err = job.Errorf(job.CodeNotReady, "", "node %s is not ready: %s", s.Node, s.NotReady)
		}
		return err
	}
	return a.watched(c)
}

func (p *printer) status(s client.Status) {
	ready := p.Paint(terminal.Green, "yes")
	if !s.Ready {
		ready = p.Paint(terminal.Red, "no") + ": " + s.NotReady
	}
	up := ""
	if s.StartedAt != 0 && s.Now > s.StartedAt {
		up = ", up " + output.Coarse(s.Now.Time().Sub(s.StartedAt.Time()))
	}
	leader := cmp.Or(s.Leader, p.Paint(terminal.Red, "no node"))
	skew := ""
	if d := s.Now.Time().Sub(p.Now); s.Now != 0 && d.Abs() > 2*time.Second {
		skew = "the node's clock is " + output.Fine(d) + " from this machine's"
	}
	hold := ""
	if s.Hold != nil {
		hold = p.Paint(terminal.Red, "restored from a backup of "+s.Hold.FromCluster+"; nothing runs") +
			": " + s.Hold.Remedy
	}
	cluster := fmt.Sprintf("%s, led by %s in term %d, feature level %d", s.ClusterID, leader, s.Term, s.Level)
	if s.ClusterID == "" {
		cluster = "none yet"
	}
	rotation := watch.RotationText(s.Rotation)
	history := fmt.Sprintf("records %d to %d", s.History.First, s.History.Last)
	switch {
	case s.History.Records == 0:
		history = "empty"
	case s.History.Last == 0:
		history = plural(int(s.History.Records), "record")
	}
	p.Fields(
		"node", fmt.Sprintf("%s (%s), version %s%s", s.Node, s.State, s.Version, up),
		"cluster", cluster,
		"ready", ready,
		"hold", hold,
		"rotation", rotation,
		"clock", skew,
		"jobs", fmt.Sprintf("%d, %s, backlog %s, %s", s.Jobs, plural(s.OpenRuns, "open run"),
			backlog(s.Backlog, s.BacklogMore), plural(int(s.DeadLetters), "dead letter")),
		"next due", p.When(s.NextDueAt),
		"history", history,
		"disk", p.DiskSpace(s),
	)
	p.Troubles(s)
	if n := s.Notifications; n != nil {
		p.Printf("%s\n", p.Paint(terminal.Red,
			fmt.Sprintf("%s not sent yet, some since %s: %s", plural(n.Waiting, "notification"), n.Since, n.Error)))
	}
	for _, e := range s.Skipped {
		p.Printf("%s\n", p.Paint(terminal.Red,
			fmt.Sprintf("This node was told to skip entry %d of its log (at %s); every node must be.",
				e.Index, e.At)))
	}
	if len(s.Members) > 0 {
		p.Printf("\n")
		p.Table(p.Members(s))
	}
	if len(s.Groups) > 1 {
		p.Printf("\n")
		p.Table(p.groupTable(s))
	}
	if g := s.Growth; g != nil {
		p.Printf("\ngrowing from %d to %d groups; waiting: %s\n", g.Groups, g.Want, output.Dash(g.Waiting))
	}
	if len(s.Workers) > 0 {
		var t output.Table
		t.Row("WORKER", "TYPES", "BUSY", "HEARD", "TAGS", "WHERE")
		for _, w := range s.Workers {
			heard := "-"
			if w.LastHeard != 0 && s.Now != 0 { // against the node's clock: ours may differ
				heard = output.Relative(w.LastHeard.Time().Sub(s.Now.Time()))
			}
			where := output.Dash(w.Where)
			if w.Waiting {
				where = p.Paint(terminal.Yellow, "not heard from since the leader changed")
			}
			t.Row(w.Worker, joinTypes(w.Types), fmt.Sprintf("%d/%d", w.Busy, w.Slots), heard,
				output.Dash(labels(w.Tags)), where)
		}
		p.Printf("\n")
		p.Table(t)
	}
}

// groupTable is who leads which group, and what is in it.
func (p *printer) groupTable(s client.Status) output.Table {
	var t output.Table
	t.Row("GROUP", "LEADER", "TERM", "MEMBERS", "JOBS", "OPEN RUNS", "BACKLOG", "DEAD", "")
	for _, g := range s.Groups {
		t.Row(strconv.FormatUint(uint64(g.ID), 10), cmp.Or(g.Leader, p.Paint(terminal.Red, "none")),
			strconv.FormatUint(g.Term, 10), output.Dash(strings.Join(g.Members, ",")),
			strconv.FormatUint(g.Jobs, 10), strconv.Itoa(g.OpenRuns), backlog(g.Backlog, g.BacklogMore),
			strconv.FormatUint(g.DeadLetters, 10), p.Paint(terminal.Red, g.Problem))
	}
	return t
}

func joinTypes(types []job.Type) string {
	var out []string
	for _, t := range types {
		out = append(out, string(t))
	}
	return output.Dash(strings.Join(out, ","))
}
