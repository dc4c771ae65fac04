package node

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// sampleAge is how long the measurement of a clock counts.
const sampleAge = 10 * time.Second

// skew is how far this node's clock is from the majority's. It is 0 while no majority's is known.
func (m *members) skew() time.Duration {
	median, ok := m.median()
	if !ok {
		return 0
	}
	return -median
}

// median is the majority's clock minus ours. The leader asks for it whenever it stamps, also on behalf of somebody who reads the store,
// so it must never wait for the store itself: raft's own list of servers says all that is needed.
func (m *members) median() (time.Duration, bool) {
	var offsets []time.Duration
	voters := 0
	servers := m.configured()
	m.mu.Lock()
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) == m.id() {
			offsets = append(offsets, 0)
		} else if o, ok := m.offset(string(s.ID)); ok {
			offsets = append(offsets, o)
		}
	}
	m.mu.Unlock()
	return medianOf(offsets, voters)
}

// offset is a member's clock minus ours, if it was measured not long ago. The lock is held.
func (m *members) offset(id string) (time.Duration, bool) {
	p := m.peers[id]
	if p == nil || p.seen.at.IsZero() || time.Since(p.seen.at) > sampleAge {
		return 0, false
	}
	return p.seen.offset, true
}

// medianOf is the middle of the offsets if they are a majority's. Of two in the middle the one that is farther from ours counts: with
// two clocks that disagree there is no majority on our side.
func medianOf(offsets []time.Duration, voters int) (time.Duration, bool) {
	if len(offsets) < 2 || len(offsets) <= voters/2 {
		return 0, false
	}
	slices.Sort(offsets)
	m := offsets[len(offsets)/2]
	if len(offsets)%2 == 0 {
		if other := offsets[len(offsets)/2-1]; other.Abs() > m.Abs() {
			m = other
		}
	}
	return m, true
}

// eachSkew calls fn with how far each member's clock is from the majority's, as far as that is known.
func (m *members) eachSkew(fn func(node string, d time.Duration)) {
	median, known := m.median()
	servers := m.configured()
	if known || len(servers) == 1 {
		fn(m.id(), -median)
	}
	for _, s := range servers {
		m.mu.Lock()
		o, ok := m.offset(string(s.ID))
		m.mu.Unlock()
		if ok && known {
			fn(string(s.ID), o-median)
		}
	}
}
