package node

import (
	"fmt"
	"sync"
)

// progress is how far a replica says that it is, and how far it was when its process opened the directory.
type progress struct {
	Instance string
	Epoch    uint64
	Process  string // random, of this start
	Opened   uint64 // what the log, the newest snapshot and the state reached then
	Applied  uint64
}

// replicas remembers how far each other replica was. One that comes back with less had its volume put back from an earlier time: it has
// forgotten votes, and entries that were acknowledged because it had them.
//
// A healthy one is never refused. What was applied is committed, and was in the replica's own log or snapshot, synced, before: no later
// start finds less, and no change of leaders takes it out of the log. And a directory is put back only between two processes, so what
// one process says is compared with what others said and never with itself, whichever way messages overtake each other.
//
// It is kept in memory: after a restart of its own a node knows nothing of the others, and a cluster that is put back as a whole starts.
type replicas struct {
	mu sync.Mutex
	by map[string]*replica
}

type replica struct {
	last progress
	past uint64 // the highest index that earlier processes had applied
}

// see compares what a replica says with what is known of it, and remembers it if that fits.
func (r *replicas) see(id string, p progress) error {
	if p.Process == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]*replica{}
	}
	old := r.by[id]
	if old == nil || old.last.Instance != p.Instance || old.last.Epoch != p.Epoch {
		if old == nil && len(r.by) >= 64 { // names that were made up must not fill the memory
			clear(r.by)
		}
		r.by[id] = &replica{last: p}
		return nil
	}
	if old.last.Process == p.Process {
		old.last.Applied = max(old.last.Applied, p.Applied)
		return nil
	}
	past := max(old.past, old.last.Applied)
	if p.Opened < past {
		return fmt.Errorf("node %s had applied entry %d and its data directory now ends at %d: the volume was put back from an earlier time and has forgotten votes and entries; put the current one back, or run `carillon cluster remove %s`, empty its data directory and start it with --join", id, past, p.Opened, id)
	}
	r.by[id] = &replica{last: p, past: past}
	return nil
}

// opened is how far the files of the group reach before raft runs.
func (g *group) opened() (uint64, error) {
	last, err := g.logs.LastIndex()
	if err != nil {
		return 0, fmt.Errorf("last entry of the log: %w", err)
	}
	snaps, err := g.snaps.List()
	if err != nil {
		return 0, fmt.Errorf("list the snapshots: %w", err)
	}
	for _, s := range snaps {
		last = max(last, s.Index)
	}
	return max(last, g.store.Counters().Index), nil
}
