package membership

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/store"
)

const (
	// maxReplicas is how many replicas a group has, if there are as many nodes and it was told nothing else.
	maxReplicas = 3
	// copysetSize is how many nodes are in a copyset. If groups had their replicas on any three nodes, the loss of any
	// two would cost some group its majority.
	copysetSize = 3
)

// placing is what replicas are placed by.
type placing struct {
	self      string
	voters    []string          // of the control group, by id
	able      map[string]bool   // they may be given a replica: they vote, stay, answer and have room
	timely    map[string]bool   // their clocks are known to be right, so that they may begin a group
	instances map[string]string // of the data directories of those who stay
	load      map[string]int    // how many replicas a node is to have
}

// placing is what is known of the nodes now.
func (m *Members) placing(rows []store.GroupRow) (*placing, error) {
	nodes, err := m.Rows()
	if err != nil {
		return nil, err
	}
	p := &placing{self: m.id(), able: map[string]bool{}, timely: map[string]bool{},
		instances: map[string]string{}, load: map[string]int{}}
	servers := m.Configured()
	disk := m.o.Disk()
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		if s, in := FindServer(servers, id); !in || s.Suffrage != raft.Voter {
			if !nodes[id].Leaving { // it was given its replicas when it voted
				p.instances[id] = nodes[id].Instance
			}
			continue
		}
		p.voters = append(p.voters, id)
		if nodes[id].Leaving {
			continue
		}
		p.instances[id] = nodes[id].Instance
		low := disk.Low
		if id != m.id() {
			m.mu.Lock()
			peer := m.peers[id]
			answers := peer != nil && peer.problem == "" && !peer.seen.at.IsZero()
			low = !answers || peer.seen.Disk.Low
			m.mu.Unlock()
		}
		m.mu.Lock()
		off, known := m.distance(id)
		m.mu.Unlock()
		p.timely[id] = known && off.Abs() <= FitSkew
		p.able[id] = !low
	}
	for _, row := range rows {
		for _, r := range row.Replicas {
			if !r.Leaving {
				p.load[r.Node]++
			}
		}
	}
	return p, nil
}

// least is the node that a new group begins on. Until the group has a second voter its leader's clock is the
// majority's: one that is hours ahead would have the group stand still for hours when it is put right.
func (p *placing) least() string {
	return cmp.Or(p.best(nil, func(id string) bool { return p.able[id] && p.timely[id] }), p.self)
}

// best is the voter that is chosen of some: one of a set before all others, then the one with the fewest replicas.
func (p *placing) best(set []string, may func(id string) bool) (best string) {
	outside := func(id string) int {
		if slices.Contains(set, id) {
			return 0
		}
		return 1
	}
	for _, id := range p.voters {
		if may(id) && (best == "" || cmp.Or(cmp.Compare(outside(id), outside(best)),
			cmp.Compare(p.load[id], p.load[best])) < 0) {
			best = id
		}
	}
	return best
}

// copyset are the nodes among which a group has its replicas if it can: of all voters in the order of their ids, three
// and three. One that is not whole is none.
func (p *placing) copyset(id string) []string {
	i := slices.Index(p.voters, id)
	if i < 0 {
		return nil
	}
	first := i - i%copysetSize
	if first+copysetSize > len(p.voters) {
		return nil
	}
	return p.voters[first : first+copysetSize]
}

// another is a replica that a group is to have besides those that it has, near that of a node.
func (p *placing) another(row *store.GroupRow, near string) (store.GroupReplica, bool) {
	id := p.best(p.copyset(near), func(id string) bool {
		return p.able[id] && !slices.ContainsFunc(row.Replicas, func(r store.GroupReplica) bool { return r.Node == id })
	})
	return store.GroupReplica{Node: id, Number: row.Last + 1, Instance: p.instances[id]}, id != ""
}

// stays says that the node of a replica is there, with the data directory that has it, and is not to leave.
func (p *placing) stays(r store.GroupReplica) bool {
	instance, ok := p.instances[r.Node]
	return ok && (r.Instance == "" || r.Instance == instance)
}

// next is the row that is to follow one; false: it is as it should be. A group is not moved for the sake of order: its
// replicas stay where they are for as long as their nodes do.
func (p *placing) next(row store.GroupRow) (store.GroupRow, bool) {
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
	add, ok := p.another(&row, first)
	ok = ok && staying < cmp.Or(row.Size, maxReplicas)
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
