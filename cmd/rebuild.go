package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/watch"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// rejoinWithin is how long the join token of a rebuilt node is valid.
const rejoinWithin = 24 * time.Hour

func (a *app) nodesCmd() *cobra.Command {
	return group("node", "Repair a node", a.rebuildCmd())
}

// rebuilt is what a rebuild did.
type rebuilt struct {
	NodeID string   `json:"node_id"`
	Join   []string `json:"join"` // the members that it asks at its next start
	Voter  bool     `json:"voter"`
}

func (a *app) rebuildCmd() *cobra.Command {
	var dir string
	var sure confirmation
	c := &cobra.Command{
		Use: "rebuild", Short: "Empty the data directory of a stopped node, and let it join its cluster again",
		Args: cobra.NoArgs,
		Long: `For a node whose disk returned other data than was written, or whose state differs from the others'. Check the disk and the memory of its
machine first. The node must not be running; --addr names other nodes of the cluster.

The command removes the node from the cluster, deletes what is in the directory, with its keys, and notes there how the node joins again: at
its next start it does so, with the same command line as before, even with --bootstrap. On a secure cluster it needs a token of the role
admin, for a voter one with --shell, and the node must be started within 24 hours.

Without a majority of the other voters nothing is changed. If the command is interrupted, repeat it.`,
		Example: "  carillon node rebuild --data-dir /var/lib/carillon --addr 10.0.0.1:7400,10.0.0.2:7400",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return noDataDir("give the directory of a node that is not running")
			}
			d, err := datadir.OpenRebuild(dir)
			if err != nil {
				return err
			}
			defer d.Close()
			err = sure.ask(a, cmd, false, func() (string, error) {
				return "This takes " + d.NodeID + " out of its cluster, and deletes what is in " + d.Path + ".", nil
			})
			if err != nil {
				return err
			}
			r, err := a.rebuild(cmd, d)
			if err != nil {
				return err
			}
			return a.result(cmd, r, func(p *printer) {
				as := "has no vote until you run `carillon cluster promote " + r.NodeID + "`"
				if r.Voter {
					as = "gets its vote when it has caught up"
				}
				p.Printf("%s is empty; start %s as before: it joins through %s, and %s\n", d.Path, r.NodeID,
					strings.Join(r.Join, ", "), as)
			})
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "directory of the node's state")
	sure.register(c)
	return c
}

// rebuild makes sure that the cluster can do without the node and takes it back before it removes anything.
func (a *app) rebuild(cmd *cobra.Command, d *datadir.Rebuild) (r rebuilt, err error) {
	c, ctx := a.client(), a.keyed(cmd.Context())
	s, err := c.Status(ctx)
	if err != nil {
		return r, err
	}
	if s.Leader == "" {
		return r, job.Errorf(job.CodeNoLeader, "start another voter; if a majority is lost for good, run `carillon "+
			"cluster recover` on the node that is furthest ahead", "the cluster has no leader, so it can neither let "+
			"node %s go nor take it back; nothing was changed", d.NodeID)
	}
	i := slices.IndexFunc(s.Members, func(m client.Member) bool { return m.ID == d.NodeID })
	switch {
	case i >= 0 && s.Members[i].Instance != d.Instance:
		return r, job.Errorf(job.CodeState, "is --addr in the right cluster? if it is, empty the directory yourself",
			"node %s of that cluster has another data directory than %s; nothing was changed", d.NodeID, d.Path)
	case i < 0 && s.ClusterID != d.ClusterID:
		return r, job.Errorf(job.CodeState, "is --addr in the right cluster? if the node was removed from it, empty "+
			"the directory yourself, and start the node with --join", "that cluster has no node %s; nothing was "+
			"changed", d.NodeID)
	}
	how := datadir.Rejoin{}
	r.NodeID = d.NodeID
	for _, m := range s.Members {
		if m.ID != d.NodeID {
			how.Addresses = append(how.Addresses, m.Address)
		}
	}
	if len(how.Addresses) == 0 {
		return r, job.Errorf(job.CodeState, "restore a backup into a new directory: `carillon restore`",
			"node %s is alone in its cluster: nobody else has the state; nothing was changed", d.NodeID)
	}
	r.Join = how.Addresses
	// A voter is to vote again. Of one whose removal was interrupted it is not known any more.
	if r.Voter = i >= 0 && !s.Members[i].Standby || s.CA == ""; s.CA != "" {
		made, err := c.CreateJoinToken(ctx, client.JoinTokenRequest{TTL: job.Duration(rejoinWithin), Uses: 1,
			Voter: r.Voter})
		if err != nil {
			return r, err
		}
		how.Token = made.Text
	}
	if i >= 0 {
		if err := watch.Remove(ctx, c, d.NodeID, cmd.ErrOrStderr()); err != nil {
			return r, err
		}
	}
	if err := d.Empty(s.ClusterID, version().Version, how); err != nil {
		return r, errors.Join(fmt.Errorf("%s was removed from the cluster, and its directory is not empty: repeat the "+
			"command", d.NodeID), err)
	}
	return r, nil
}
