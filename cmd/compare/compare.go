// Package compare holds the states of a data directory against those of a running node.
package compare

import (
	"context"
	"fmt"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm/chain"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// Result is how the state of a group in a directory compares with a running node's.
type Result struct {
	Group  uint32 `json:"group"`
	Index  uint64 `json:"index"` // the last entry in the directory's state
	Result string `json:"result"`
	Text   string `json:"text"`
}

// The results.
const (
	Same    = "same"
	Differs = "differs"
	Unknown = "unknown"
)

// With asks a node about the states of a directory.
func With(ctx context.Context, c *client.Client, ends []datadir.End) (out []Result, err error) {
	for _, e := range ends {
		one := Result{Group: e.Group, Index: e.Index, Result: Unknown}
		what := "the state"
		if len(ends) > 1 {
			what = fmt.Sprintf("the state of group %d", e.Group)
		}
		h, err := c.LogHash(ctx, e.Group, e.Index)
		its := lineage.Cluster{ID: h.ClusterID, Epoch: h.Epoch, Recovery: h.Recovery}
		switch {
		case job.CodeOf(err) == job.CodeNotFound && e.Group != 0:
			one.Text = what + " cannot be compared: that node has no replica of it"
		case err != nil:
			return nil, err
		case e.Cluster.Compare(its) != lineage.Same:
			one.Text = fmt.Sprintf("%s cannot be compared: it belongs to cluster %s, and node %s to cluster %s", what,
				e.Cluster, h.NodeID, its)
		case h.Hash == "" && e.Index < h.Oldest:
			one.Text = fmt.Sprintf("%s cannot be compared: it ends at entry %d, and node %s only remembers entries "+
				"from %d on",
				what, e.Index, h.NodeID, h.Oldest)
		case h.Hash == "":
			one.Text = fmt.Sprintf("%s cannot be compared: it ends at entry %d, and that of node %s at %d", what,
				e.Index, h.NodeID, h.Applied)
		case h.Hash != chain.Text(e.Chain):
			one.Result = Differs
			one.Text = fmt.Sprintf("%s differs from that of node %s at entry %d or before it", what, h.NodeID, e.Index)
		default:
			one.Result = Same
			one.Text = fmt.Sprintf("%s is the same as that of node %s up to entry %d", what, h.NodeID, e.Index)
		}
		out = append(out, one)
	}
	return out, nil
}
