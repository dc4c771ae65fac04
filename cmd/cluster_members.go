package cmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) membersCmd() *cobra.Command {
	return &cobra.Command{
		Use: "members", Short: "List the members", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s client.Status
			return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
				s, err = c.Status(ctx)
				return err
			}, func(p *printer) { p.members(s) })
		},
	}
}

func (p *printer) members(s client.Status) {
	var t table
	t.row("MEMBER", "ADDRESS", "ROLE", "VERSION", "LEVEL", "JOINED", "APPLIED", "")
	for _, m := range s.Members {
		level, applied, joined := "-", "-", "-"
		if m.Level > 0 {
			level = strconv.Itoa(m.Level)
		}
		if m.Applied > 0 {
			applied = strconv.FormatUint(m.Applied, 10)
		}
		if m.JoinedAt != 0 && s.Now != 0 {
			joined = relative(m.JoinedAt.Time().Sub(s.Now.Time()).Truncate(time.Second))
		}
		t.row(m.ID, m.Address, role(m), dash(m.Version), level, joined, applied, p.paint(red, m.Problem))
	}
	p.table(t)
	if s.Level > 0 {
		p.printf("\nfeature level %d is committed%s\n", s.Level, behind(s))
	}
}

// behind says who keeps the feature level from being raised.
func behind(s client.Status) string {
	most := 0
	for _, m := range s.Members {
		most = max(most, m.Level)
	}
	if most <= s.Level {
		return ""
	}
	var old []string
	for _, m := range s.Members {
		if m.Level < most {
			old = append(old, m.ID)
		}
	}
	if len(old) == 0 {
		return fmt.Sprintf("; level %d follows", most)
	}
	return fmt.Sprintf("; level %d follows when every member supports it; still to come: %s", most,
		strings.Join(old, ", "))
}

// nodeCmd is a command about one member.
func (a *app) nodeCmd(use, short, long, done string,
	call func(*client.Client, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " NODE", Short: short, Long: long, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.show(cmd, func(ctx context.Context, c *client.Client) error { return call(c, ctx, args[0]) },
				func(p *printer) { p.printf(done+"\n", args[0]) })
		},
	}
}

func (a *app) removeCmd() *cobra.Command {
	return a.nodeCmd("remove", "Take a node out of the cluster for good",
		`The node gets no more work and no more entries, and its data directory cannot come back: to use the machine again, empty it and start
it with --join. The last voter, and a voter without which those who live would be no majority, is refused. A leader hands over first.`,
		"%s is no longer a member; stop it, and empty its data directory before it joins again", (*client.Client).RemoveNode)
}

func (a *app) promoteCmd() *cobra.Command {
	return a.nodeCmd("promote", "Let a node vote",
		`New nodes are promoted by themselves when they have caught up. This is for one that was demoted.`,
		"%s votes", (*client.Client).PromoteNode)
}

func (a *app) demoteCmd() *cobra.Command {
	return a.nodeCmd("demote", "Take a node's vote away",
		`The node goes on to follow and to work, and does not count for a majority, until it is promoted again.`,
		"%s follows without a vote", (*client.Client).DemoteNode)
}

func (a *app) transferCmd() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "transfer [NODE]", Short: "Hand the leadership to another node", Args: cobra.MaximumNArgs(1),
		Long: `Without a node, to one whose clock agrees with the majority's and whose disk has room. A node that is stopped with SIGTERM hands over by itself.

A node whose clock differs by more than 2.5 s from the majority's, or is not known, is refused: as leader it would hold, and nothing would run.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			to := ""
			if len(args) > 0 {
				to = args[0]
			}
			return a.show(cmd, func(ctx context.Context, c *client.Client) error {
				if force {
					return c.ForceTransfer(ctx, to)
				}
				return c.TransferLeadership(ctx, to)
			}, func(p *printer) {
				if to == "" {
					p.printf("the leadership was handed over\n")
				} else {
					p.printf("%s leads\n", to)
				}
			})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also to a node whose clock is wrong or not known")
	return c
}

func (a *app) leaveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "leave", Short: "Take the node at --addr out of the cluster for good", Args: cobra.NoArgs,
		Long: `The same as remove, for the node that is asked. It goes on to run until it is stopped.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.Contains(a.addr, ",") {
				return job.Invalid("--addr",
					"give the address of the node that is to leave, or use `carillon cluster remove NODE`",
					"it is not clear which of several nodes is meant")
			}
			id := ""
			return a.show(cmd, func(ctx context.Context, c *client.Client) error {
				n, err := c.Node(client.WithRaw(ctx, func([]byte) {}))
				if err != nil {
					return err
				}
				id = n.NodeID
				return c.RemoveNode(ctx, id)
			}, func(p *printer) {
				p.printf("%s is no longer a member; stop it, and empty its data directory before it joins again\n", id)
			})
		},
	}
}
