package membership

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// After a recovery the nodes that were given up may come back as they were, and they may be a majority of the cluster
// that they know. They must not go on with it: a node that hears of a later epoch of its cluster from a member that it
// knows writes that down and takes no part any more.

// WhyStopped is why this node's replica takes no part in its group; nil: it does.
func (m *Members) WhyStopped() *datadir.Stopped { return m.o.Standing.Why() }

// Stopped is the same as an error.
func (m *Members) Stopped() error { return m.o.Standing.Err() }

// Halted are closed when the replica ceases to take part, for its own sake and with the whole node.
func (m *Members) Halted() (own, node <-chan struct{}) { return m.o.Standing.Halted() }

// TakePart lets raft speak when the members were asked whether the cluster went on without this node, and ends this
// node's part in the group if it did. look is called when it may lead, and when it may not any more.
func (m *Members) TakePart(ctx context.Context, look func()) {
	m.o.Standing.Follow(ctx, m.askMembers, m.o.Tracker.Halt, look)
}

// askMembers asks every member that this node knows once, side by side, for a second at most, before raft may vote or
// lead. Nodes that were given up by a recovery and are started together would otherwise elect a leader within
// milliseconds, and execute until one of them happens to hear of the later epoch. A port that refuses the connection is
// an answer. Who has no part in a cluster yet asks nobody.
func (m *Members) askMembers(ctx context.Context) {
	if m.o.Trusting || m.Stopped() != nil || len(m.Configured()) == 0 {
		return
	}
	at := map[string]string{}
	rows, err := m.Rows()
	if err != nil {
		m.log("rows of the members not readable", "error", err)
	}
	for id, r := range rows {
		at[id] = r.Address
	}
	for _, s := range m.Configured() {
		at[replica.Node(s.ID)] = string(m.AddressOf(s.ID))
	}
	delete(at, m.id())
	for _, r := range m.givenUp() {
		at[r.ID] = r.Address
	}
	var asking sync.WaitGroup
	if m.o.Former != nil {
		asking.Go(func() { m.o.Former.Look(ctx) })
	}
	m.meet(ctx, at)
	asking.Wait()
}

// meet has this node and those at addresses, by id, hear of each other's histories.
func (m *Members) meet(ctx context.Context, at map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, whoTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, addr := range at {
		// Both ways are heard by: a node that was given up gets no answer by HTTP in a secure cluster, and only a probe
		// says what the other one was told itself.
		asking.Go(func() { m.o.Greet(addr, whoTimeout) })
		asking.Go(func() {
			_, _ = m.Probe(ctx, addr) //nolint:errcheck // it hears what there is to hear
		})
	}
	asking.Wait()
}

// givenUp are the rows of the nodes that a recovery gave up and that did not come back as members since.
func (m *Members) givenUp() (rows []store.Node) {
	if m.o.Of != nil || m.Cluster().Epoch == 0 {
		return nil
	}
	err := m.o.Store.View(func(v *store.View) error {
		return v.EachNode(func(r store.Node) {
			if r.GivenUp && r.Instance != m.o.Instance {
				rows = append(rows, r)
			}
		})
	})
	if err != nil && !errors.Is(err, store.ErrClosed) {
		m.log("rows of the members not readable", "error", err)
	}
	return rows
}

const lookAgain = 5 * time.Second

// watchGivenUp has the leader of a recovered cluster look again and again for nodes that the recovery gave up. They may
// be cut off when they start, and one that was recovered as well has no other reason to talk to this cluster.
func (m *Members) watchGivenUp(ctx context.Context) {
	for wait.For(ctx, m.o.Pace(lookAgain)) {
		if m.o.Tracker.Epoch() == nil {
			continue
		}
		at := map[string]string{}
		for _, r := range m.givenUp() {
			at[r.ID] = r.Address
		}
		m.meet(ctx, at)
	}
}

// hearHello looks at how another node introduced itself: to this node, which dialled the address at, or, if that is
// empty, was dialled.
func (m *Members) hearHello(h transport.Hello, at string) {
	id := m.Cluster().ID
	if h.ClusterID != id || h.Group != m.group() || h.GroupID != m.groupID() {
		return
	}
	if m.o.Keys != nil {
		if p := h.Certificate; p.Node != h.NodeID || p.Instance != h.InstanceID || p.Cluster != id ||
			m.vouched(p) != nil {
			return
		}
	}
	m.hear(h.Cluster(), h.NodeID, h.NodeID, h.InstanceID, at)
}

// hearProbe looks at the answer of the node at an address. In a secure cluster the connection is to a node that the
// CA vouches for.
func (m *Members) hearProbe(s *probeReply, at string) {
	its := lineage.Cluster{ID: s.ClusterID, Epoch: s.Epoch, Recovery: s.Recovery}
	m.hear(its, s.NodeID, s.NodeID, s.InstanceID, at)
	if h := s.Stopped; h != nil && h.Group == m.group() {
		// It was told itself, and may be the only one left that was.
		its.Epoch, its.Recovery = h.Epoch, h.Recovery
		m.hear(its, h.Node, s.NodeID, s.InstanceID, at)
	}
}

// hear acts on the word of a node that one of them, by, is of a history.
func (m *Members) hear(its lineage.Cluster, by, node, instance, at string) {
	own := m.Cluster()
	if r := own.Compare(its); r != lineage.Later && r != lineage.Rival {
		return
	}
	if m.o.Trusting || m.Stopped() != nil || !m.knows(node, instance, at) || mutant.On(mutant.OldEpoch) {
		return
	}
	m.o.Standing.Stop(datadir.Superseded(m.group(), own, its, by, job.Instant(m.now())))
}

// knows says that a node is a member as far as this one knows. The word of others counts for nothing, or any stranger
// could stop a node. In a secure cluster a member is who has a certificate, which is looked at before. In a plain one
// it is who has the data directory of its row, or answers where this node dials that member; a member whose row this
// node does not have yet is known by raft's configuration. Who was removed is none, and its directory cannot stop those
// who threw it out; one that a recovery gave up may have been recovered as well.
func (m *Members) knows(node, instance, at string) bool {
	r, ok := m.Row(node)
	switch {
	case ok && r.Instance == instance:
		return !r.Removed || r.GivenUp
	case m.o.Keys != nil:
		return true
	}
	s, in := FindServer(m.Servers(), node)
	return in && (at == "" && !ok || at == string(s.Address))
}
