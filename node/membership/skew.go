package membership

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
)

// sampleAge is how long the measurement of a clock counts.
const sampleAge = 10 * time.Second

// Skew is how far this node's clock is from the majority's, if that is known. The only voter is the majority.
func (m *Members) Skew() (time.Duration, bool) {
	d, ok := nearMajority(m.offsets())
	return -d, ok
}

// nearMajority is how far from our clock one has to look to find a majority of all voters' (ours is one of them). That
// is stricter than the distance from the median: of three clocks that all differ, one is the median, and no two agree.
func nearMajority(offsets []time.Duration, voters int) (time.Duration, bool) {
	if len(offsets) <= voters/2 {
		return 0, false
	}
	slices.SortFunc(offsets, func(a, b time.Duration) int { return cmp.Compare(a.Abs(), b.Abs()) })
	return offsets[voters/2], true
}

// median is the majority's clock minus ours.
func (m *Members) median() (time.Duration, bool) { return medianOf(m.offsets()) }

// offsets are the voters' clocks minus ours, as far as they are known. The leader asks for it whenever it stamps, also
// on behalf of a reader of the store, so it must never wait for the store itself: raft's own list of servers says all
// that is needed.
func (m *Members) offsets() (offsets []time.Duration, voters int) {
	servers := m.Configured()
	m.mu.Lock()
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if replica.Node(s.ID) == m.id() {
			offsets = append(offsets, 0)
		} else if o, ok := m.offset(replica.Node(s.ID)); ok {
			offsets = append(offsets, o)
		}
	}
	m.mu.Unlock()
	return offsets, voters
}

// offset is a member's clock minus ours, if it was measured not long ago. The lock is held.
func (m *Members) offset(id string) (time.Duration, bool) {
	p := m.peers[id]
	if p == nil || p.seen.at.IsZero() || time.Since(p.seen.at) > m.o.Pace(sampleAge) {
		return 0, false
	}
	return p.seen.offset(m.o.Clock), true
}

// medianOf is the middle of the offsets if they are a majority's. Of two in the middle the one that is farther from
// ours counts: with two clocks that disagree there is no majority on our side.
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

// EachSkew calls fn with how far each member's clock is from the majority's, as far as that is known.
func (m *Members) EachSkew(fn func(node string, d time.Duration)) {
	median, known := m.median()
	servers := m.Configured()
	if known || len(servers) == 1 {
		fn(m.id(), -median)
	}
	for _, s := range servers {
		m.mu.Lock()
		o, ok := m.offset(replica.Node(s.ID))
		m.mu.Unlock()
		if ok && known {
			fn(replica.Node(s.ID), o-median)
		}
	}
}
