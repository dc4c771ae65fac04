package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/watch"
	"github.com/carillon-scheduler/carillon/internal/enroll"
)

func (a *app) rotateCmd() *cobra.Command {
	var rq client.RotateRequest
	var finish bool
	c := &cobra.Command{
		Use: "rotate-ca", Short: "Replace the CA and the cluster key of a secure cluster while it works",
		Args: cobra.NoArgs,
		Long: `Every member gets a certificate of the new CA, and voters the new keys, without a restart. Both CAs are trusted until all
members have them. Tokens and clients that know the cluster by the old CA go on to work: it vouches for the new one.
The last four are remembered. If tokens that are in use are from the one that would be forgotten, they are named, and nothing is done without
--force; carillon token list says what the CA of each is.

A member that is off holds the end of it up until it is back or removed; the cluster works meanwhile. Repeating the command shows how far it is.

With --distrust-old the old CA vouches for nothing from now on: for a key that others may know. Tokens and clients that know the
cluster by it must then be replaced; join tokens are revoked. For a node that others took over use cluster remove --compromised.`,
		Example: "  carillon cluster rotate-ca --wait\n  carillon cluster rotate-ca --abort",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if finish && (rq.Abort || rq.DistrustOld) {
				return usage("leave one of them out; `carillon status` shows how far it is",
					"--wait is for a rotation that goes on to trust the old CA")
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
					p.Printf("%s", enroll.ToReplace)
				}
			})
		},
	}
	c.Flags().BoolVar(&finish, "wait", false, "until every member has what it needs")
	c.Flags().BoolVar(&rq.Abort, "abort", false, "give up the rotation that is under way")
	c.Flags().BoolVar(&rq.Force, "force", false, "also if it locks out tokens that are in use")
	c.Flags().BoolVar(&rq.DistrustOld, "distrust-old", false, "trust the old CA no longer: others may know its key")
	return c
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
	c := a.nodeCmd("remove", "Take a node out of the cluster for good",
		`The node gets no more work and no more entries, and its data directory cannot come back: to use the machine again, empty it and start
it with --join. The last voter, and a voter without which those who live would be no majority, is refused. A leader hands over first.

If it has replicas of groups, other nodes are given them first. That goes on if you stop waiting with Ctrl-C, and if the node comes back.

With --compromised the CA and the cluster key are replaced as well, and the old ones are not trusted from then on: for a node whose machine, disk
or keys others may have. It says what else to replace. Repeat it if it was interrupted.`,
		removedText, (*client.Client).RemoveNode)
	c.Flags().BoolVar(&compromised, "compromised", false,
		"others may have its keys: replace the CA and the cluster key")
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
			p.Printf("%s", enroll.ToReplace)
		})
	}
	return c
}
