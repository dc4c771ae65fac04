package cmd

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/cmd/watch"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

const removedText = "%s is no longer a member; stop it, and empty its data directory before it rejoins"

func (a *app) clusterCmd() *cobra.Command {
	return group("cluster", "Operate a cluster", a.membersCmd(),
		a.removeCmd(), a.rotateCmd(),
		a.leaveCmd(), a.moveGroupCmd(),
		a.nodeCmd("promote", "Let a node vote",
			`A new node gets its vote automatically once it has caught up, on a secure cluster only if its join token was made with --voter.
Use this command for a node on standby, or one that was demoted.`,
			"%s votes", (*client.Client).PromoteNode),
		a.nodeCmd("demote", "Take a node's vote away",
			`The node still follows and carries out runs, but does not count for a majority until it is promoted again.`,
			"%s follows without a vote", (*client.Client).DemoteNode),
		a.transferCmd(), a.growCmd(), a.recoverCmd(), a.releaseCmd(), a.clockResetCmd(), a.scrubCmd(),
		a.initCmd(), a.joinTokenCmd())
}

func (a *app) clockResetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "clock-reset", Short: "Lower the clock mark after a clock that ran ahead was corrected",
		Args: cobra.NoArgs,
		Long: `A leader never stamps a time below the highest one that was committed. If a leader's clock ran ahead and was corrected, the cluster
waits until it reaches that time. This command lowers the mark to the leader's clock instead, and records that.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.show(cmd, func(ctx context.Context, c *client.Client) error { return c.ClockReset(ctx) },
				func(p *printer) { p.Printf("the clock mark was set to the leader's clock\n") })
		},
	}
}

func (a *app) releaseCmd() *cobra.Command {
	return &cobra.Command{
		Use: "release", Short: "Start a cluster that was restored from a backup", Args: cobra.NoArgs,
		Long: `A restored cluster is on hold. Release it when you are certain that the cluster the backup was taken from no longer runs anything.

What was due up to now is recorded as missed (restored), and runs that were open in the backup as lost; none of them runs automatically. Releasing
a cluster that is not on hold changes nothing.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, (*client.Client).Release, func(p *printer, r client.ReleaseResult) {
				switch {
				case len(r.Waiting) > 0:
					p.Printf("groups not released yet: %s; they follow automatically as soon as they have a leader\n",
						strings.Trim(fmt.Sprint(r.Waiting), "[]"))
				case !r.Released && !r.Releasing:
					p.Printf("the cluster is not on hold\n")
				case r.Releasing:
					p.Printf("released; the open runs of the backup are still being recorded as lost, and nothing " +
						"runs until that is done\n")
				default:
					p.Printf("released: the cluster runs what is due from now on\n")
				}
			})
		},
	}
}

func (a *app) membersCmd() *cobra.Command {
	return a.watched(&cobra.Command{
		Use: "members", Short: "List the members", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (output.Members, error) {
				s, err := c.Status(ctx)
				return output.Members{Status: s}, err
			}, (*printer).members)
		},
	})
}

func (p *printer) members(m output.Members) {
	s := m.Status
	var t output.Table
	t.Row("MEMBER", "ADDRESS", "ROLE", "VERSION", "LEVEL", "JOINED", "APPLIED", "")
	for _, m := range s.Members {
		level, applied, joined := "-", "-", "-"
		if m.Level > 0 {
			level = strconv.Itoa(m.Level)
		}
		if m.Applied > 0 {
			applied = strconv.FormatUint(m.Applied, 10)
		}
		if m.JoinedAt != 0 && s.Now != 0 {
			joined = output.Relative(m.JoinedAt.Time().Sub(s.Now.Time()).Truncate(time.Second))
		}
		t.Row(m.ID, m.Address, output.Role(m), output.Dash(m.Version), level, joined, applied,
			p.Paint(terminal.Red, m.Problem))
	}
	p.Table(t)
	if s.Level > 0 {
		p.Printf("\nfeature level %d is committed%s\n", s.Level, behind(s))
	}
	if s.Rotation != nil {
		p.Printf("rotation under way: %s\n", watch.RotationText(s.Rotation))
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
				func(p *printer) { p.Printf(done+"\n", args[0]) })
		},
	}
}

func (a *app) transferCmd() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "transfer [NODE]", Short: "Transfer the leadership to another node", Args: cobra.MaximumNArgs(1),
		Long: `If you name no node, it goes to one whose clock agrees with the majority's and whose disk has room. A node that you stop with SIGTERM hands over by itself.

A node whose clock is unknown or more than 2.5 s from the majority's is refused: as leader it would hold, and nothing would run.`,
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
					p.Printf("the leadership was handed over\n")
				} else {
					p.Printf("%s leads\n", to)
				}
			})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "even to a node whose clock is wrong or unknown")
	return c
}

func (a *app) leaveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "leave", Short: "Remove the node at --addr from the cluster for good", Args: cobra.NoArgs,
		Long: `The same as remove, for the node at --addr. Its process keeps running until you stop it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.Contains(a.addr, ",") {
				return job.Invalid("--addr",
					"give the address of the node that is to leave, or use `carillon cluster remove NODE`",
					"several addresses are given: it is not clear which node should leave")
			}
			id, secure := "", false
			return a.show(cmd, func(ctx context.Context, c *client.Client) error {
				n, err := c.Node(client.WithRaw(ctx, func([]byte) {}))
				if err != nil {
					return err
				}
				id, secure = n.NodeID, isSecure(ctx, c)
				return watch.Remove(ctx, c, id, cmd.ErrOrStderr())
			}, func(p *printer) { p.removed(id, secure) })
		},
	}
}

func (a *app) moveGroupCmd() *cobra.Command {
	var to []string
	var noWait bool
	c := &cobra.Command{
		Use: "move-group GROUP --to NODE,NODE,NODE", Short: "Move a group to other nodes", Args: cobra.ExactArgs(1),
		Long: `Adds replicas on the named nodes that have none, and removes the others once all new ones have caught up; the group keeps working
meanwhile. The command waits; Ctrl-C stops the waiting, not the move. A later move of the same group replaces this one.`,
		Example: "  carillon cluster move-group 5 --to n4,n5,n6",
		RunE: func(cmd *cobra.Command, args []string) error {
			group, err := watch.GroupNumber(args[0])
			if err != nil {
				return err
			}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.GroupMove, error) {
				rq := client.MoveGroupRequest{Group: group, To: append([]string{}, to...)}
				return watch.Move(ctx, c, rq, !noWait, cmd.ErrOrStderr())
			}, func(p *printer, r client.GroupMove) { p.Printf("%s\n", watch.MoveText(r)) })
		},
	}
	c.Flags().StringSliceVar(&to, "to", nil, "the one to three nodes that should have a replica")
	c.Flags().BoolVar(&noWait, "no-wait", false, "print the progress and do not wait for the end")
	return c
}

func (a *app) recoverCmd() *cobra.Command {
	var dir string
	var peers []string
	var skip uint64
	c := &cobra.Command{
		Use: "recover", Short: "Repair a cluster whose members cannot find each other, or that lost its majority",
		Args: cobra.NoArgs,
		Long: `The node must not be running.

With all members in --peers it only records their new addresses: for a cluster in which the addresses of a majority changed at once. Run it
with the same --peers on each node, then start them. Nothing is lost.

With only this node in --peers it begins again without the others: for a cluster that lost its majority for good. What only the others had
is lost; entries that this node has and that may not have been committed become part of the state. Choose the node that is furthest ahead
(index), and let the others rejoin with empty data directories: otherwise they are refused. If the keys of a secure cluster are not in the
directory, the cluster is plain afterwards: make new ones with ` + "`carillon cluster init --data-dir`" + `.

With --skip the node skips one entry of its log from its next start on: for an entry that cannot be applied and stops every node. What the
entry would have changed is lost. Stop all nodes and run this on each of them, or their states will differ. The log at every start and the
status show it for as long as the data directory exists.`,
		Example: "  carillon cluster recover --data-dir /var/lib/carillon --peers " +
			"n1=10.0.1.1:7400,n2=10.0.1.2:7400,n3=10.0.1.3:7400\n" +
			"  carillon cluster recover --data-dir /var/lib/carillon --peers n1=10.0.1.1:7400\n" +
			"  carillon cluster recover --data-dir /var/lib/carillon --skip 81204",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return noDataDir("give the directory of a node that is not running")
			}
			if cmd.Flags().Changed("skip") {
				if len(peers) > 0 {
					return job.Invalid("--skip", "run it once with each", "--skip and --peers exclude each other")
				}
				return a.skipEntry(cmd, dir, skip)
			}
			list, err := values.Pairs("--peers", peers)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return job.Invalid("--peers",
					"use id=host:port for all members, or for this node only; --skip needs no peers", "which nodes?")
			}
			r, err := recovers(dir, list, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			if err != nil {
				return err
			}
			r.Lost = append([]string{}, r.Lost...) // [] in JSON
			return a.result(cmd, r, func(p *printer) { p.recovered(r) })
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "directory of the node's state")
	c.Flags().Uint64Var(&skip, "skip", 0, "index of a log entry to skip because it cannot be applied")
	c.Flags().StringSliceVar(&peers, "peers", nil, "id=host:port of all members, or of this node only")
	return c
}

func (p *printer) recovered(r datadir.Recovered) {
	if !r.Alone {
		p.Printf("%s will look for the members at these addresses; run the same command on the other nodes, then "+
			"start them\n",
			r.NodeID)
		return
	}
	p.Printf("%s is a cluster of one, at entry %d, epoch %d; start it\n", r.NodeID, r.Index, r.Epoch)
	if r.Unsure > 0 {
		p.Printf("%d log entries that may not have been committed were kept\n", r.Unsure)
	}
	p.renamed(r.Renamed)
	if len(r.Lost) > 0 {
		p.Printf("%s: empty the data directory and start with --join\n", strings.Join(r.Lost, ", "))
	}
	if r.KeysLost {
		p.Printf("its keys are lost: the cluster is plain, and its secrets cannot be read; `%s cluster init "+
			"--data-dir` makes new keys\n", output.Program())
	}
	if r.NewKey {
		p.Printf("its own key was lost; it has a new one\n")
	}
}

// skipEntry has a node that is not running pass over an entry of its log.
func (a *app) skipEntry(cmd *cobra.Command, dir string, index uint64) error {
	if index == 0 {
		return job.Invalid("--skip", "take the index from the message that the node stopped with",
			"entries are counted from 1")
	}
	r, err := skips(dir, index, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	if err != nil {
		return err
	}
	return a.result(cmd, r, func(p *printer) {
		p.Printf("%s will skip entry %d of term %d (%s)\n", r.NodeID, r.Index, r.Term, r.What)
		p.Printf("run the same command on every other node, then start them\n")
	})
}
