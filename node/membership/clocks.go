package membership

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
)

// sampleAge is how long the measurement of a clock counts.
const sampleAge = 10 * time.Second

// maxVoters is for how many voters Skew needs no memory of its own: it is asked several times for each run.
const maxVoters = 9

// Skew is how far this node's clock is from the majority's, if that is known. The only voter of a cluster is the
// majority.
func (m *Members) Skew() (time.Duration, bool) {
	var room [maxVoters]time.Duration
	d, ok := stamp.NearMajority(m.offsets(room[:0]))
	return -d, ok
}

// median is the majority's clock minus ours.
func (m *Members) median() (time.Duration, bool) { return stamp.Median(m.offsets(nil)) }

// judges are the servers whose voters say what time it is, and the part of this node in their group. A group with one
// voter asks those of the control group: by its own clock alone it would stamp times that never were, and stand still
// until they come once that clock is right again.
func (m *Members) judges() (in *Members, servers []raft.Server) {
	servers = m.Configured()
	own, is := FindServer(servers, m.id())
	if m.o.Of == nil || !is || own.Suffrage != raft.Voter || m.Voters() != 1 {
		return m, servers
	}
	return m.o.Of.Control, m.o.Of.Control.Configured()
}

// offsets appends the clocks of the voters that count minus ours, as far as they are known. The leader asks for it
// whenever it stamps, also on behalf of a reader of the store, so it must never wait for the store itself: raft's own
// list of servers says all that is needed.
func (m *Members) offsets(offsets []time.Duration) (_ []time.Duration, voters int) {
	in, servers := m.judges()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if replica.Node(s.ID) == in.id() {
			offsets = append(offsets, 0)
		} else if o, ok := in.offset(replica.Node(s.ID)); ok {
			offsets = append(offsets, o)
		}
	}
	return offsets, voters
}

// offset is a member's clock minus ours, if it was measured not long ago. The lock is held.
func (m *Members) offset(id string) (time.Duration, bool) {
	seen := m.measured(id)
	if seen == nil || seen.at.IsZero() || time.Since(seen.at) > m.o.Pace(sampleAge) {
		return 0, false
	}
	return seen.offset(m.o.Clock), true
}

// measured is the last measurement of a member's clock; nil if there is none. The lock is held.
func (m *Members) measured(id string) *probeReply {
	seen := m.clocks[id]
	if p := m.peers[id]; p != nil && (seen == nil || p.seen.at.After(seen.at)) {
		return &p.seen
	}
	return seen
}

// askClocks asks the voters of the control group for the time, on behalf of groups that this node leads: the leader of
// the control group asks them anyway, and what one of those groups has just asked is good for the others.
func (m *Members) askClocks(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range m.Servers() {
		id := replica.Node(s.ID)
		m.mu.Lock()
		seen := m.measured(id)
		fresh := seen != nil && time.Since(seen.at) < m.o.Interval
		m.mu.Unlock()
		if s.Suffrage != raft.Voter || id == m.id() || fresh {
			continue
		}
		wg.Go(func() {
			if seen, err := m.Probe(ctx, string(s.Address)); err == nil && seen.NodeID == id {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.clocks[id] = &seen
			}
		})
	}
	wg.Wait()
}

// EachSkew calls fn with how far each member's clock is from the majority's, as far as that is known.
func (m *Members) EachSkew(fn func(node string, d time.Duration)) {
	median, known := m.median()
	if _, servers := m.judges(); known || len(servers) == 1 {
		fn(m.id(), -median)
	}
	for _, s := range m.Configured() {
		m.mu.Lock()
		o, ok := m.offset(replica.Node(s.ID))
		m.mu.Unlock()
		if ok && known {
			fn(replica.Node(s.ID), o-median)
		}
	}
}
