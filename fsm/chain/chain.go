// Package chain is the hash over the log that says which entries a state came about by. Two replicas that applied the
// same have the same.
package chain

import (
	"encoding/binary"
	"fmt"
	"sort"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// Point is a place in the log and the hash over all entries up to it.
type Point struct{ Index, Chain uint64 }

// Difference says that this replica's state came about by other entries than the leader's.
type Difference struct {
	Mine   Point
	Theirs uint64 // the leader's hash at the same place
}

func (d Difference) String() string {
	return fmt.Sprintf("the hash over all entries up to %d is %s, and the leader's is %s", d.Mine.Index,
		Text(d.Mine.Chain), Text(d.Theirs))
}

// Text is a hash as people see it.
func Text(chain uint64) string { return fmt.Sprintf("%016x", chain) }

// next is the hash over an entry and all before it. One that was passed over by order counts as another one: its
// effects are missing.
func next(before uint64, l *raft.Log, skipped bool) uint64 {
	var head [25]byte
	binary.BigEndian.PutUint64(head[:], before)
	binary.BigEndian.PutUint64(head[8:], l.Index)
	binary.BigEndian.PutUint64(head[16:], l.Term)
	if skipped {
		head[24] = 1
	}
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(head[:]) // it never fails
	_, _ = d.Write(l.Data)
	return d.Sum64()
}

// most is how far back a replica knows its own hashes: 256 KiB. To compare with the leader a few hundred are enough,
// which are as many as can be between a state and the stamp that tells of it; the others are for `carillon check
// --against`.
const most = 16 << 10

// Recent are the newest hashes of a replica, in the order of the log. They are not a part of the state: after a start
// there is one.
type Recent struct {
	mu      sync.Mutex
	ring    []Point
	next    int         // where the next one goes, once the ring is full
	differs *Difference // found, and not told
}

// Reset forgets all but that of a state.
func (r *Recent) Reset(c store.Counters) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring, r.next, r.differs = append(r.ring[:0], Point{c.Index, c.Chain}), 0, nil
}

// Add takes in an entry that is being applied, and returns the hash after it. Entries that are no commands leave it.
func (r *Recent) Add(before uint64, l *raft.Log, skipped bool) uint64 {
	pt := Point{l.Index, before}
	if l.Type == raft.LogCommand {
		pt.Chain = next(before, l, skipped)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < most {
		r.ring = append(r.ring, pt)
		return pt.Chain
	}
	r.ring[r.next] = pt
	r.next = (r.next + 1) % most
	return pt.Chain
}

// at is the i-th, the oldest first.
func (r *Recent) at(i int) Point { return r.ring[(r.next+i)%len(r.ring)] }

// At is the hash over all entries up to one. Those between two that it has are of raft alone, and change nothing. It
// does not know what was before the oldest, nor what is after the newest.
func (r *Recent) At(index uint64) (chain uint64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.ring)
	if n == 0 || index > r.at(n-1).Index {
		return 0, false
	}
	i := sort.Search(n, func(i int) bool { return r.at(i).Index > index })
	if i == 0 {
		return 0, false
	}
	return r.at(i - 1).Chain, true
}

// Bounds are the first and the last entry that At knows.
func (r *Recent) Bounds() (oldest, newest uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at(0).Index, r.at(len(r.ring) - 1).Index
}

// Compare holds this replica's state against what is said of another's. known is false where that is too old, or not
// applied yet.
func (r *Recent) Compare(theirs Point) (d *Difference, known bool) {
	mine, known := r.At(theirs.Index)
	if known && mine != theirs.Chain {
		return &Difference{Point{theirs.Index, mine}, theirs.Chain}, true
	}
	return nil, known
}

// Hear compares with what a leader's stamp says. What is applied does not depend on it: every replica applies the stamp
// alike, and Tell says what was found when the batch is on the disk.
func (r *Recent) Hear(theirs Point) {
	if theirs.Index == 0 || mutant.On(mutant.TrustChain) {
		return
	}
	if d, _ := r.Compare(theirs); d != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.differs == nil {
			r.differs = d
		}
	}
}

// Tell tells of a difference that was found since the last time, if there is somebody to be told.
func (r *Recent) Tell(told func(Difference)) {
	r.mu.Lock()
	d := r.differs
	r.differs = nil
	r.mu.Unlock()
	if d != nil && told != nil {
		told(*d)
	}
}
