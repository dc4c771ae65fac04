package node

import (
	"sync"

	"github.com/hashicorp/raft"
)

// recentLogs are the newest entries of the log as they were appended. A leader reads each again for every follower, and every node to
// apply it: from the file that is a search, a decoding and a copy. Raft's own cache counts entries, and entries may be large; this one
// is bounded by their bytes.
type recentLogs struct {
	mu    sync.Mutex
	slots [recentSlots]*raft.Log // by index
	bytes int
	last  uint64 // the highest index, 0 if there is none
	count int    // how many there are from it downwards, without a hole
}

const (
	recentSlots = 1024
	recentBytes = 16 << 20
)

func (r *recentLogs) slot(index uint64) **raft.Log { return &r.slots[index%recentSlots] }

// add takes in entries that were just appended. Raft and its log never change an entry that they have.
func (r *recentLogs) add(logs []*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range logs {
		if l.Index != r.last+1 {
			r.clear()
		}
		if r.count == recentSlots {
			r.dropOldest()
		}
		kept := *l
		*r.slot(l.Index) = &kept
		r.last, r.count, r.bytes = l.Index, r.count+1, r.bytes+len(l.Data)
	}
	for r.bytes > recentBytes {
		r.dropOldest()
	}
}

func (r *recentLogs) dropOldest() {
	s := r.slot(r.last - uint64(r.count) + 1)
	r.bytes -= len((*s).Data)
	*s = nil
	r.count--
}

// clear forgets all. Entries that are replaced by those of another leader, and those that are compacted, are rare enough for that.
func (r *recentLogs) clear() {
	clear(r.slots[:])
	r.bytes, r.last, r.count = 0, 0, 0
}

func (r *recentLogs) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
}

func (r *recentLogs) get(index uint64, out *raft.Log) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := *r.slot(index)
	if l == nil || l.Index != index {
		return false
	}
	*out = *l
	return true
}
