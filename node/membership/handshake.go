package membership

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/transport"
)

// Hello is how this node introduces itself to another.
func (m *Members) Hello() transport.Hello {
	c := m.Cluster()
	h := transport.Hello{
		ClusterID: c.ID, Group: m.group(), Epoch: c.Epoch, Recovery: c.Recovery,
		NodeID: m.id(), Replica: m.number(), InstanceID: m.o.Instance, Address: m.address(),
	}
	if of := m.o.Of; of != nil {
		h.GroupID, h.Index = of.GroupID, of.Control.Hello().Index
		return h
	}
	m.mu.Lock()
	h.Index = m.identity.Index
	m.mu.Unlock()
	if r, ok := m.Row(m.id()); ok && r.Instance == h.InstanceID && !r.Removed {
		h.Index = max(h.Index, r.Index)
	}
	return h
}

// Check lets in only the data directories that belong to this cluster. Raft would talk to any peer: a directory
// that was wiped has forgotten in which terms it voted, and one that was copied votes twice; either makes two leaders
// of one term possible.
//
// What this node knows may be old. So a peer without a row is let in (a stranger cannot know the cluster's id: rows are
// committed before the id is told), and one that knows of a later change of its own membership is believed: were it
// refused, a node that slept through a change could make an election impossible for ever.
func (m *Members) Check(h transport.Hello) error {
	if m.o.Trusting {
		return nil
	}
	m.hearHello(h, "")
	own := m.Cluster()
	if own.ID == "" {
		return errors.New(NotJoined)
	}
	why, remedy := lineage.Differ(m.id(), own, h.NodeID, h.Cluster())
	switch {
	case h.ClusterID != own.ID:
		return fmt.Errorf("%s: %s", why, remedy)
	case (h.Group != m.group() || h.GroupID != m.groupID()) && !mutant.On(mutant.WrongGroup):
		return fmt.Errorf("node %s calls for group %d (%s) and reached group %d (%s) of node %s: start it with the "+
			"carillon that the others run", h.NodeID, h.Group, h.GroupID, m.group(), m.groupID(), m.id())
	case m.o.Of == nil && h.Replica != replica.First:
		return fmt.Errorf("node %s calls as its replica %d of group 0, and a node has only one: start it with the "+
			"carillon that the others run", h.NodeID, h.Replica)
	case why != "":
		return fmt.Errorf("%s: %s", why, remedy)
	case m.Stopped() != nil:
		return m.Stopped()
	case h.NodeID == m.id():
		return fmt.Errorf("another process acts as node %s, from %s: its data directory was copied, or two nodes "+
			"have the same id; stop one of them", h.NodeID, h.Address)
	}
	if err := m.checkReplica(h); err != nil {
		return err
	}
	r, ok := m.Row(h.NodeID)
	if err := m.vouched(h.Certificate); err != nil {
		return err
	}
	switch {
	case !ok:
		return m.checkFounder(h)
	case m.o.Keys != nil && r.Instance == h.InstanceID && !r.Removed && h.Index > r.Index:
		return nil // it moved, and says so itself
	case m.o.Keys != nil && r.Instance != h.InstanceID && h.Certificate.Joined > r.Index:
		return nil // a leader certified that it came later
	case m.o.Keys == nil && h.Index > r.Index:
		return nil
	case r.Removed:
		return fmt.Errorf("node %s "+wasRemoved+": stop it; to bring it back, empty its data directory "+
			"and start it with --join", h.NodeID)
	case r.Instance != h.InstanceID && !mutant.On(mutant.OtherDirectory):
		return fmt.Errorf("node %s has another data directory than when it joined (it was wiped, or replaced by a "+
			"copy): run `carillon cluster remove %s`, empty its data directory "+
			"and start it with --join", h.NodeID, h.NodeID)
	case r.Address != h.Address && m.Override(h.NodeID) != h.Address:
		return fmt.Errorf("node %s is known at %s and calls from %s: if it moved, the leader must learn that first; "+
			"if its data directory was copied, stop the copy", h.NodeID, r.Address, h.Address)
	}
	return nil
}

// MayCommand refuses raft's requests from a node of a secure cluster that does not vote: raft itself does what any peer
// says. Whether it votes is said by its certificate, and not by raft's configuration here, which may be from before a
// promotion: a node that slept through that of its leader would refuse it for ever. What this node knows takes a vote
// away only if it is newer than the certificate.
func (m *Members) MayCommand(p keys.Peer) error {
	if m.o.Keys == nil || m.o.Trusting {
		return nil
	}
	r, known := m.Row(p.Node)
	mark := p.Voter
	if p.CA == (keys.Hash{}) && known && !r.Removed && !r.Standby {
		mark = r.Vote // no CA that is known here signed its certificate: it is a member by the key in its row
	}
	switch {
	case mark == 0:
		return fmt.Errorf("node %s has no vote: only voters may command others", p.Node)
	case known && r.Removed && r.Index > mark:
		return fmt.Errorf("node %s "+wasRemoved, p.Node)
	// The row of one that is being demoted comes first. Until raft's configuration follows it is needed as a voter.
	case known && r.Standby && r.Vote > mark && !m.votes(p.Node):
		return fmt.Errorf("node %s has no vote any more: only voters may command others", p.Node)
	}
	return nil
}

// Receives refuses the state of another cluster, or of a time before this one was recovered or restored: raft would put
// it in place of this node's own.
func (m *Members) Receives(h fsm.Header) error {
	if r := m.raft.Load(); r != nil && m.LeadsIn(r.CurrentTerm()) {
		return errors.New("a snapshot of the term in which this node leads: a term has only one leader")
	}
	own, its := m.Cluster(), h.Cluster()
	if m.o.Trusting || own.Compare(its) == lineage.Same && h.Group == m.group() {
		return nil
	}
	return fmt.Errorf("a snapshot of group %d of cluster %s was sent to a node with group %d of cluster %s", h.Group,
		its, m.group(), own)
}

// Follows says whether this node follows a leader in a term.
func (m *Members) Follows(term uint64) bool {
	r := m.raft.Load()
	return r != nil && r.State() == raft.Follower && r.CurrentTerm() == term
}

// LeadsIn says whether this node leads in a term. A snapshot from another leader of that term makes raft take over its
// configuration and go on leading, and panic over the first server in it to which it does not replicate (hashicorp/raft
// 1.7.3, installSnapshot: only a higher term ends a leadership there).
func (m *Members) LeadsIn(term uint64) bool {
	r := m.raft.Load()
	return r != nil && r.State() == raft.Leader && r.CurrentTerm() == term
}

// Expect is who should answer at an address.
func (m *Members) Expect(address string) string {
	if m.o.Of != nil {
		return m.o.Of.Control.Expect(address)
	}
	m.mu.Lock()
	for id, a := range m.identity.Peers {
		if a == address {
			m.mu.Unlock()
			return id
		}
	}
	m.mu.Unlock()
	for _, s := range m.Servers() {
		if string(s.Address) == address {
			return replica.Node(s.ID)
		}
	}
	return ""
}

// Override is where `carillon cluster recover` said that a node is, until the cluster itself knows better.
func (m *Members) Override(id string) string {
	if m.o.Of != nil {
		return m.o.Of.Control.Override(id)
	}
	m.mu.Lock()
	a, at := m.identity.Peers[id], m.identity.PeersAt
	m.mu.Unlock()
	if a == "" {
		return ""
	}
	if r, ok := m.Row(id); ok && r.Index > at {
		return ""
	}
	return a
}

// AddressOf tells raft where to find a server. It is asked before every dial and answers from the rows, not from raft's
// configuration: that a node moved is then known as soon as its row is, and the address of a server that is being
// replicated to need not be changed, which raft 1.7.3 does not do without a data race (raft#681). In the configuration
// an address is corrected by its own server when that leads.
func (m *Members) AddressOf(id raft.ServerID) raft.ServerAddress {
	if f := m.o.Where; f != nil {
		if a := f(replica.Node(id)); a != "" {
			return raft.ServerAddress(a)
		}
	}
	if a := m.where(replica.Node(id)); a != "" {
		return a
	}
	servers := m.Configured()
	s, _ := FindServer(servers, replica.Node(id))
	return s.Address
}

// where is the address of a member as this node knows it, "" if only raft's configuration can say.
func (m *Members) where(id string) raft.ServerAddress {
	if id == m.id() {
		return raft.ServerAddress(m.address())
	}
	if a := m.Override(id); a != "" {
		return raft.ServerAddress(a)
	}
	if r, ok := m.Row(id); ok && !r.Removed {
		return raft.ServerAddress(r.Address)
	}
	return ""
}

// logAgain is how often one refusal is logged.
const logAgain = time.Minute

// NotJoined is why a node that is about to join refuses. The leader's first message is often faster than its answer to
// the join, or than the beginning of a replica; that is worth a word only if it stays so for joinGrace.
const (
	NotJoined = "this node has not joined a cluster yet"
	joinGrace = 5 * time.Second
)

// OnRefused remembers why two nodes do not talk, and says it where it is seen.
func (m *Members) OnRefused(e *transport.RefusedError) {
	if e.At != "" {
		m.hearHello(e.Peer, e.At)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := fmt.Sprint(e.Peer.NodeID, e.Peer.Group, e.ByPeer)
	last := m.refused[key]
	now := time.Now()
	switch since := now.Sub(last.logged); {
	case (e.Reason == NotJoined || strings.HasSuffix(e.Reason, transport.NoReplica)) &&
		(last.text != e.Reason || since > 2*logAgain):
		last = entry{e.Reason, now.Add(joinGrace - logAgain)}
	case last.text != e.Reason || since > logAgain:
		msg := "refused to talk to a node"
		if e.ByPeer {
			msg = "a node refuses to talk to this one"
		}
		m.log(msg, "node", e.Peer.NodeID, "address", e.Peer.Address, "reason", e.Reason)
		last = entry{e.Reason, now}
	}
	if len(m.refused) > 64 { // made-up names must not fill the memory
		clear(m.refused)
	}
	m.refused[key] = last
	// That a node has not begun its replica of a group, or has dropped it, passes without a word of it.
	if e.ByPeer && m.o.Of == nil {
		m.why = fmt.Sprintf("node %s refuses this one: %s", e.Peer.NodeID, e.Reason)
	}
}
