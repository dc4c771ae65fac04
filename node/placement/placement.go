// Package placement decides which nodes have the replicas of a group, and which of them is to lead it. It only
// computes: package membership says what is known of the nodes, and acts on the answer.
package placement

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/store"
)

const (
	// MaxReplicas is how many replicas a group has, if there are as many nodes and it was told nothing else.
	MaxReplicas = 3
	// copysetSize is how many nodes are in a copyset. If groups had their replicas on any three nodes, the loss of any
	// two would cost some group its majority.
	copysetSize = 3
)

// Nodes are what replicas are placed by.
type Nodes struct {
	Self      string
	Voters    []string          // of the control group, by id
	Able      map[string]bool   // they may be given a replica: they vote, stay, answer and have room
	Timely    map[string]bool   // their clocks are known to be right, so that they may begin a group
	Instances map[string]string // of the data directories of those who stay
	Load      map[string]int    // how many replicas a node is to have
}

// Least is the node that a new group begins on. Where the clock is wrong, the group would hold until another node can
// lead it.
func (p *Nodes) Least() string {
	return cmp.Or(p.best(nil, func(id string) bool { return p.Able[id] && p.Timely[id] }), p.Self)
}

// best is the voter that is chosen of some: one of a set before all others, then the one with the fewest replicas.
func (p *Nodes) best(set []string, may func(id string) bool) (best string) {
	outside := func(id string) int {
		if slices.Contains(set, id) {
			return 0
		}
		return 1
	}
	for _, id := range p.Voters {
		if may(id) && (best == "" || cmp.Or(cmp.Compare(outside(id), outside(best)),
			cmp.Compare(p.Load[id], p.Load[best])) < 0) {
			best = id
		}
	}
	return best
}

// copyset are the nodes among which a group has its replicas if it can: of all voters in the order of their ids, three
// and three. One that is not whole is none.
func (p *Nodes) copyset(id string) []string {
	i := slices.Index(p.Voters, id)
	if i < 0 {
		return nil
	}
	first := i - i%copysetSize
	if first+copysetSize > len(p.Voters) {
		return nil
	}
	return p.Voters[first : first+copysetSize]
}

// Another is a replica that a group is to have besides those that it has, near that of a node.
func (p *Nodes) Another(row *store.GroupRow, near string) (store.GroupReplica, bool) {
	id := p.best(p.copyset(near), func(id string) bool {
		return p.Able[id] && !slices.ContainsFunc(row.Replicas, func(r store.GroupReplica) bool { return r.Node == id })
	})
	return store.GroupReplica{Node: id, Number: row.Last + 1, Instance: p.Instances[id]}, id != ""
}

// stays says that the node of a replica is there, with the data directory that has it, and is not to leave.
func (p *Nodes) stays(r store.GroupReplica) bool {
	instance, ok := p.Instances[r.Node]
	return ok && (r.Instance == "" || r.Instance == instance)
}

// Next is the row that is to follow one; false: it is as it should be. A group is not moved for the sake of order: its
// replicas stay where they are for as long as their nodes do.
func (p *Nodes) Next(row store.GroupRow) (store.GroupRow, bool) {
	row.Replicas = slices.Clone(row.Replicas)
	staying, first, lost := 0, "", -1
	for i, r := range row.Replicas {
		switch {
		case r.Leaving:
		case p.stays(r):
			staying++
			first = cmp.Or(first, r.Node)
		case lost < 0:
			lost = i
		}
	}
	if lost >= 0 {
		first = row.Replicas[lost].Node
	}
	add, ok := p.Another(&row, first)
	ok = ok && staying < cmp.Or(row.Size, MaxReplicas)
	switch {
	case lost >= 0 && !ok && staying == 0:
		return row, false // what it has is there and nowhere else
	case lost >= 0:
		row.Replicas[lost].Leaving = true
	case !ok:
		return row, false
	}
	if ok {
		row.Replicas = append(row.Replicas, add)
	}
	return row, true
}

// Leader is the node that is to lead a group if it can: of those that have a replica of it, in the order of their
// names, the first leads the first group, the second the second, and so on. No node has to count who leads how many.
// The order in which they got their replicas is another one in each group.
func Leader(row *store.GroupRow) string {
	var ids []string
	for _, r := range row.Replicas {
		if !r.Leaving {
			ids = append(ids, r.Node)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	return ids[int(row.Number-1)%len(ids)]
}
