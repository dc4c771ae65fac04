package datadir

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/fsm/chain"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/job"
)

// Stopped is why a replica takes no part in its group any more: it does not vote, lead or execute anything. It is
// written to node.json, so that a start does not forget it. Only an operator can say that this side is the right one,
// by a recovery of it.
type Stopped struct {
	Group  uint32      `json:"group"` // that of group 0 is about the whole node
	Reason string      `json:"reason"`
	Text   string      `json:"text"`
	Remedy string      `json:"remedy"`
	Node   string      `json:"by_node,omitempty"` // the member it was heard from; empty: not known
	At     job.Instant `json:"at"`                // when it was found out, by the node's own clock

	Own      uint64 `json:"own_epoch,omitempty"` // of StoppedSuperseded and StoppedRival
	Epoch    uint64 `json:"epoch,omitempty"`     // that of the other node by then
	Recovery string `json:"recovery,omitempty"`  // that began it
	Index    uint64 `json:"index,omitempty"`     // of StoppedDiffers: the states differ at this entry, or before it
}

const (
	// StoppedSuperseded is the reason of a replica that heard of a later epoch of its cluster: that was recovered
	// without this node, and what the directory has is from before that.
	StoppedSuperseded = "superseded"
	// StoppedRival is the reason of a replica that heard of another recovery of its cluster, to the same epoch.
	StoppedRival = "rival"
	// StoppedDiffers is the reason of a replica whose state is another one than the leader's.
	StoppedDiffers = "differs"
	// StoppedDamaged is the reason of a replica that read something else from its disk than it had written.
	StoppedDamaged = "damaged"
)

// StoppedOtherCluster is the reason of a node that is alone in its cluster, and was told addresses that belong to
// another one. It is not written down: the addresses, or what is there, may be put right.
const StoppedOtherCluster = "other_cluster"

// Superseded is why the replica of a group takes no part that is of one history of its cluster, while a node is of a
// later one, or of one that stands beside it.
func Superseded(group uint32, own, other lineage.Cluster, node string, at job.Instant) Stopped {
	what := "this node's data"
	if group != 0 {
		what = fmt.Sprintf("this node's replica of group %d", group)
	}
	s := Stopped{Group: group, Reason: StoppedSuperseded, Own: own.Epoch, Epoch: other.Epoch,
		Recovery: other.Recovery, Node: node, At: at,
		Text: fmt.Sprintf("%s is from before the recovery (it is of epoch %d, and node %[4]s says that the cluster "+
			"is at epoch %[3]d): it takes no part in the cluster", what, own.Epoch, other.Epoch, node),
		Remedy: "empty its data directory and let it rejoin; or, only if this side should continue instead, stop " +
			"node " +
			node + " and the nodes with it for good, and run `carillon cluster recover` here"}
	if own.Compare(other) == lineage.Rival {
		s.Reason = StoppedRival
		s.Text = fmt.Sprintf("%s and node %s were both recovered, each without the other, to epoch %d: neither takes "+
			"part in the cluster", what, node, own.Epoch)
		s.Remedy = "choose the side that is to continue: stop both, run `carillon cluster recover` there, and start " +
			"it; empty the data directory of the other, and let it rejoin"
	}
	return s
}

// Difference is how the state of a group was found to be another one than the leader's.
type Difference struct {
	Group  uint32
	Leader string // empty: not known
	Index  uint64 // they differ there, or before it
	How    string
}

// CutBack is the difference that shows when raft is to cut off entries that were applied.
func CutBack(first, applied uint64) Difference {
	return Difference{Index: first, How: fmt.Sprintf("the leader has a different entry %d, and the state of this "+
		"node contains all entries up to %d", first, applied)}
}

// Hashed is the difference that shows in a hash over the log.
func Hashed(d chain.Difference) Difference { return Difference{Index: d.Mine.Index, How: d.String()} }

// Stopped is why a node with such a state takes no part. It is about the whole node, whichever group it shows in: the
// groups have one data directory, and what happened to that happened to all of them.
func (d Difference) Stopped(node string, at job.Instant) Stopped {
	what, whose := "the state of this node", "the leader's"
	if d.Group != 0 {
		what = fmt.Sprintf("this node's state of group %d", d.Group)
	}
	if d.Leader != "" {
		whose = "that of the leader " + d.Leader
	}
	return Stopped{Reason: StoppedDiffers, At: at, Index: d.Index, Node: d.Leader,
		Text: fmt.Sprintf("%s differs from %s at entry %d or before it (%s): a data directory was replaced by an "+
			"older copy, or lost what it had written", what, whose, d.Index, d.How),
		Remedy: fmt.Sprintf("find out which side is right; to keep the leader's, stop node %s, %s", node, rebuild)}
}

// Damaged is why a replica takes no part whose files are not what was written to them.
func Damaged(group uint32, node, what string, at job.Instant) Stopped {
	whose := "this node"
	if group != 0 {
		whose = fmt.Sprintf("this node's replica of group %d", group)
	}
	return Stopped{Group: group, Reason: StoppedDamaged, At: at,
		Text:   fmt.Sprintf("the disk of %s returns other data than was written: %s", whose, what),
		Remedy: fmt.Sprintf("check the disk and the memory of its machine; then stop node %s, %s", node, rebuild)}
}

// GoesOn says whether a snapshot is of the history that the state is of, and as far. A state that is further on is
// replaced only by one that is too: what was applied was committed, and a leader has it. Two leaders may be behind all
// the same, for a moment: one whose snapshot was on its way for long, and one that sends it because this node's log
// ends before its state, which came with a snapshot. Those are refused, and no difference.
func (f *Files) GoesOn(h fsm.Header) (*Difference, error) {
	index, term := f.FSM.Applied()
	d, known := f.FSM.Recent.Compare(chain.Point{Index: h.Index, Chain: h.Chain})
	err := fmt.Errorf("a snapshot that ends at entry %d was sent to a node that has entries up to %d", h.Index, index)
	switch {
	case d != nil:
		return new(Hashed(*d)), err
	case h.Index >= index:
		return nil, nil
	case !known && f.Log.Has(index, term):
		return &Difference{Index: index, How: fmt.Sprintf("the leader sends a state that ends at entry %d, and this "+
			"node's contains all entries up to %d", h.Index, index)}, err
	}
	return nil, err
}

// rebuild is what to do with a stopped node whose files do not count.
const rebuild = "run `carillon node rebuild --data-dir DIR --addr OTHER-NODE` there, and start it again"

// Err is what requests are answered with that need a part in the group.
func (s *Stopped) Err() error { return job.Errorf(job.CodeStopped, s.Remedy, "%s", s.Text) }

// Stop writes down why a replica takes no part. When it returns, that is on the disk. The first reason stays.
func (d *Dir) Stop(s Stopped) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if stoppedIn(d.Stopped, s.Group) != nil {
		return nil
	}
	id := d.Identity
	if d.cluster != nil {
		id.ClusterIdentity = *d.cluster
	}
	id.Stopped = append(slices.Clone(d.Stopped), s)
	if err := d.write(id); err != nil {
		return err
	}
	d.Stopped = id.Stopped
	return nil
}

// StoppedIn is what was written down about the replica of a group; nil: nothing that counts. own is the history that it
// is of.
func (d *Dir) StoppedIn(group uint32, own lineage.Cluster) *Stopped {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := stoppedIn(d.Stopped, group)
	if s == nil || s.Reason != StoppedSuperseded && s.Reason != StoppedRival {
		return s
	}
	switch own.Compare(lineage.Cluster{ID: own.ID, Epoch: s.Epoch, Recovery: s.Recovery}) {
	case lineage.Same, lineage.Earlier:
		return nil // it was recovered, or joined anew, since
	}
	return s
}

func stoppedIn(list []Stopped, group uint32) *Stopped {
	if i := slices.IndexFunc(list, func(s Stopped) bool { return s.Group == group }); i >= 0 {
		return &list[i]
	}
	return nil
}
