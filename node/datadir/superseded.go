package datadir

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// Superseded says that a member was heard of which is at a later epoch than this directory: the cluster was recovered
// without this node, and what the directory holds is from before that. Its node takes no part in the group any more,
// whatever happens to the others; only an operator can say that this side is the right one, by a recovery of it.
type Superseded struct {
	Group uint32      `json:"group"` // that of group 0 is about the whole node
	Own   uint64      `json:"own_epoch"`
	Epoch uint64      `json:"epoch"`
	Node  string      `json:"by_node"` // who is at it
	At    job.Instant `json:"at"`      // when this node heard of it
}

// Supersede writes that down. When it returns, it is on the disk.
func (d *Dir) Supersede(s Superseded) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := d.Identity
	if d.cluster != nil {
		id.ClusterIdentity = *d.cluster
	}
	id.Superseded = append(without(d.Superseded, s.Group), s)
	if err := d.write(id); err != nil {
		return err
	}
	d.Superseded = id.Superseded
	return nil
}

// SupersededIn is what was written down about a group; nil: nothing.
func (d *Dir) SupersededIn(group uint32) *Superseded {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.Superseded {
		if s.Group == group {
			return &s
		}
	}
	return nil
}

func without(list []Superseded, group uint32) []Superseded {
	return slices.DeleteFunc(slices.Clone(list), func(s Superseded) bool { return s.Group == group })
}
