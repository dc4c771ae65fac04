package raftlog

import (
	"sync"

	"github.com/hashicorp/raft"
)

// cache has the newest entries of the log as they were appended. A leader reads each again for every follower, and
// every node to apply it: from the file that is a search, a decoding and a copy. Raft's own cache counts entries, and
// entries may be large; this one is bounded by their bytes.
type cache struct {
	mu    sync.Mutex
	slots [cacheSlots]*raft.Log // by index
	bytes int
	last  uint64 // the highest index, 0 if there is none
	count int    // how many there are from it downwards, without a hole
}

const (
	cacheSlots = 1024
	cacheBytes = 16 << 20
)

func (c *cache) slot(index uint64) **raft.Log { return &c.slots[index%cacheSlots] }

// add takes in entries that were just appended. Raft and its log never change an entry that they have.
func (c *cache) add(entries []*raft.Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		if e.Index != c.last+1 {
			c.reset()
		}
		if c.count == cacheSlots {
			c.dropOldest()
		}
		kept := *e
		*c.slot(e.Index) = &kept
		c.last, c.count, c.bytes = e.Index, c.count+1, c.bytes+len(e.Data)
	}
	for c.bytes > cacheBytes {
		c.dropOldest()
	}
}

func (c *cache) dropOldest() {
	s := c.slot(c.last - uint64(c.count) + 1)
	c.bytes -= len((*s).Data)
	*s = nil
	c.count--
}

func (c *cache) reset() {
	clear(c.slots[:])
	c.bytes, c.last, c.count = 0, 0, 0
}

// clear drops everything. Truncations and compactions are rare enough for that.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset()
}

func (c *cache) get(index uint64, out *raft.Log) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := *c.slot(index)
	if e == nil || e.Index != index {
		return false
	}
	*out = *e
	return true
}
