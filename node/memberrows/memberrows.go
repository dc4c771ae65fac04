// Package memberrows keeps the rows of members as they were read last: every handshake and every connection of raft
// asks for one, and they change only when a node joins or leaves.
package memberrows

import (
	"maps"
	"sync"

	"github.com/carillon-scheduler/carillon/store"
)

// Cache keeps rows until they may have changed.
type Cache struct {
	mu   sync.Mutex
	gen  uint64 // counts changes of rows
	rows map[string]kept
	all  map[string]store.Node // nil: not read since the last change
}

type kept struct {
	row store.Node
	ok  bool
}

// most bounds what is kept: ids come from strangers too.
const most = 1000

// Changed hears of each commit, before its proposer does.
func (k *Cache) Changed(c *store.Changes) {
	if !c.Nodes && !c.Reset {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gen++
	k.rows, k.all = nil, nil
}

// Row is the row of a member, and whether there is one. It is read if it is not kept.
func (k *Cache) Row(id string, read func() (store.Node, bool, error)) (store.Node, bool, error) {
	k.mu.Lock()
	r, known := k.rows[id]
	gen := k.gen
	k.mu.Unlock()
	if known {
		return r.row, r.ok, nil
	}
	row, ok, err := read()
	if err != nil {
		return store.Node{}, false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gen == gen && len(k.rows) < most { // otherwise it may have changed meanwhile
		if k.rows == nil {
			k.rows = map[string]kept{}
		}
		k.rows[id] = kept{row, ok}
	}
	return row, ok, nil
}

// All are the rows of all members, by id. They are read if they are not kept.
func (k *Cache) All(read func() (map[string]store.Node, error)) (map[string]store.Node, error) {
	k.mu.Lock()
	out, gen := maps.Clone(k.all), k.gen
	k.mu.Unlock()
	if out != nil {
		return out, nil
	}
	out, err := read()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gen == gen {
		k.all = maps.Clone(out)
	}
	return out, nil
}
