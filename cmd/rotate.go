package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/watch"
	"github.com/carillon-scheduler/carillon/internal/enroll"
)

func (a *app) rotateCmd() *cobra.Command {
	var rq client.RotateRequest
	var finish bool
	c := &cobra.Command{
		Use: "rotate-ca", Short: "Replace the CA and the cluster key of a running secure cluster",
		Args: cobra.NoArgs,
		Long: `Every member gets a certificate of the new CA, and voters the new keys, without a restart. Both CAs are trusted until all members have
them. Tokens and clients that know the cluster by the old CA keep working, because the old CA vouches for the new one. The cluster remembers
its last four CAs. If tokens in use depend on the one that it would forget, the command lists them and does nothing without --force;
carillon token list shows the CA of each token.

A member that is down delays the end of the rotation until it is back or removed; the cluster works meanwhile. Repeat the command to see
the progress.

With --distrust-old the old CA vouches for nothing from now on: for a key that others may know. All API tokens are suspended, except the
one that you use, and join tokens are revoked. You must then replace the tokens and clients that know the cluster by the old CA. For a
node that others took over use cluster remove --compromised.`,
		Example: "  carillon cluster rotate-ca --wait\n  carillon cluster rotate-ca --abort",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if finish && (rq.Abort || rq.DistrustOld) {
				return usage("leave one of them out; `carillon status` shows how far it is",
					"--wait does not go with --abort or --distrust-old")
			}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.Rotation, error) {
				r, err := c.RotateCA(ctx, rq)
				if err == nil && finish {
					err = watch.Rotation(ctx, c, &r)
				}
				return r, err
			}, func(p *printer, r client.Rotation) {
				switch {
				case rq.Abort:
					p.Printf("no rotation is under way; the CA is %s\n", r.CA)
				case r.Next == "":
					p.Printf("the CA is %s\n", r.CA)
				default:
					p.Printf("%s\n", watch.RotationText(&r))
				}
				if rq.DistrustOld {
					p.toReplace(r)
				}
			})
		},
	}
	c.Flags().BoolVar(&finish, "wait", false, "wait until every member has what it needs; not with --abort or "+
		"--distrust-old")
	c.Flags().BoolVar(&rq.Abort, "abort", false, "give up the rotation in progress")
	c.Flags().BoolVar(&rq.Force, "force", false, "even if it locks out tokens that are in use")
	c.Flags().BoolVar(&rq.DistrustOld, "distrust-old", false, "stop trusting the old CA, because others may know "+
		"its key")
	return c
}

// toReplace says what is left to do when the old CA was distrusted.
func (p *printer) toReplace(r client.Rotation) {
	p.Printf("%s", enroll.ToReplace)
	if len(r.Suspended) == 0 {
		return
	}
	p.Printf("\nThese tokens are suspended. Resume only those that you know: whoever had the keys could make tokens.\n")
	for _, t := range r.Suspended {
		p.Printf("  %s token resume %s    %s (%s), made at %s by %s\n", output.Program(), t.ID, t.Name, t.Role,
			t.CreatedAt, output.Dash(t.CreatedBy))
	}
}

// isSecure says whether the cluster has keys. What keeps it from being known keeps nothing else back.
func isSecure(ctx context.Context, c *client.Client) bool {
	s, err := c.Status(client.WithRaw(ctx, func([]byte) {}))
	return err == nil && s.CA != ""
}

// removed says what is left of a node that is no longer a member.
func (p *printer) removed(id string, secure bool) {
	p.Printf(removedText+"\n", id)
	if secure {
		p.Printf(enroll.StillHasKeys, id)
	}
}

// removeCmd is nodeCmd for a node that may have fallen into the hands of others.
func (a *app) removeCmd() *cobra.Command {
	var compromised bool
	c := a.nodeCmd("remove", "Remove a node from the cluster for good",
		`The node gets no more work and no more log entries, and its data directory cannot come back: to use the machine again, empty the directory
and start the node with --join. The command refuses to remove the last voter, or a voter without which the others would not be a majority.
A leader hands over first.

If the node has replicas of groups, other nodes get them first. That continues if you stop waiting with Ctrl-C, or if the node comes back.

--compromised also replaces the CA and the cluster key, and the old ones are no longer trusted: for a node whose machine, disk or keys others
may have. All API tokens are suspended, except the one that you use: whoever had the keys could make tokens. The command lists them, and
says what else to replace. Repeat it if it was interrupted.`,
		removedText, (*client.Client).RemoveNode)
	c.Flags().BoolVar(&compromised, "compromised", false,
		"others may have its keys: also replace the CA and the cluster key")
	var sure confirmation
	sure.register(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := sure.ask(a, cmd, false, func() (string, error) {
			return "This takes " + args[0] + " out of the cluster; its data directory cannot come back.", nil
		})
		if err != nil {
			return err
		}
		if !compromised {
			secure := false
			return a.show(cmd, func(ctx context.Context, c *client.Client) error {
				secure = isSecure(ctx, c)
				return watch.Remove(ctx, c, args[0], cmd.ErrOrStderr())
			}, func(p *printer) { p.removed(args[0], secure) })
		}
		return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.Rotation, error) {
			quiet := client.WithRaw(ctx, func([]byte) {})
			if err := watch.Remove(quiet, c, args[0], cmd.ErrOrStderr()); err != nil {
				return client.Rotation{}, err
			}
			return c.RotateCA(ctx, client.RotateRequest{DistrustOld: true})
		}, func(p *printer, r client.Rotation) {
			p.Printf(removedText+"\n", args[0])
			if r.Next != "" {
				p.Printf("%s\n", watch.RotationText(&r))
			}
			p.toReplace(r)
		})
	}
	return c
}
