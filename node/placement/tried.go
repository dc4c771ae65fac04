package placement

import (
	"sync"

	"github.com/hashicorp/raft"
)

// Tried are the servers to which a transfer was tried in one term: a new term replicates anew and knows nothing of the
// requests of the one before.
type Tried struct {
	mu   sync.Mutex
	term uint64
	to   map[raft.ServerID]int // how often
}

// Begin notes a try and returns how many there were before it. It is noted before raft is asked: the caller may have
// given up waiting for the answer, and the next must not ask again.
func (t *Tried) Begin(id raft.ServerID, term uint64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if term < t.term {
		return 0 // that term is over, and raft is not asked in it
	}
	if t.term != term {
		t.term, t.to = term, map[raft.ServerID]int{}
	}
	t.to[id]++
	return t.to[id] - 1
}

// Times is how often a transfer to a server was tried in a term.
func (t *Tried) Times(id raft.ServerID, term uint64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != term {
		return 0
	}
	return t.to[id]
}
