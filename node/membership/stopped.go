package membership

import (
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm/chain"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/scrub"
)

// StoppedPeer is why another member takes no part, as it told this leader; nil: it does, or does not answer.
func (m *Members) StoppedPeer(id string) *datadir.Stopped {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[id]; p != nil {
		return p.seen.Stopped
	}
	return nil
}

// Scrubs are the newest hashes of parts of the state that the other members have made, of those that answer.
func (m *Members) Scrubs() map[string]scrub.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]scrub.Result{}
	for id, p := range m.peers {
		switch {
		case p.problem != "" || p.seen.Stopped != nil:
		case p.seen.Scrub == nil:
			out[id] = scrub.Result{}
		default:
			out[id] = *p.seen.Scrub
		}
	}
	return out
}

// anyDiffers says that a member that takes part told this leader another hash over the log than this leader has at the
// same entry.
func (m *Members) anyDiffers() bool {
	f := m.o.Files(m.group())
	if f == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		if p.problem != "" || p.seen.Stopped != nil {
			continue
		}
		if d, _ := f.FSM.Recent.Compare(p.seen.Chain); d != nil {
			return true
		}
	}
	return false
}

// LeaderID is the node that leads, as far as raft knows; empty: none. It may be asked by raft's own goroutines.
func (m *Members) LeaderID() string {
	r := m.raft.Load()
	if r == nil {
		return ""
	}
	_, id := r.LeaderWithID()
	return replica.Node(id)
}

// stopped is why it takes no part, in words.
func (p *peer) stopped() string {
	if p.seen.Stopped == nil {
		return ""
	}
	return p.seen.Stopped.Text
}

// LogHash implements api.Cluster.
func (m *Members) LogHash(group uint32, index uint64) (wire.LogHash, error) {
	f := m.o.Files(group)
	if f == nil {
		return wire.LogHash{}, job.Errorf(job.CodeNotFound, "ask another node", "node %s has no replica of group %d",
			m.id(), group)
	}
	c := m.Cluster()
	h := wire.LogHash{NodeID: m.id(), ClusterID: c.ID, Epoch: c.Epoch, Recovery: c.Recovery, Group: group,
		Index: index}
	h.Oldest, h.Applied = f.FSM.Recent.Bounds()
	if hash, known := f.FSM.Recent.At(index); known {
		h.Hash = chain.Text(hash)
	}
	return h, nil
}
