package membership

import (
	"errors"
	"maps"
	"sync"

	"github.com/carillon-scheduler/carillon/store"
)

// keptRows are rows of members as they were read last. Every handshake and every connection of raft asks for one, and
// they change when a node joins.
type keptRows struct {
	mu   sync.Mutex
	gen  uint64 // counts changes of rows
	rows map[string]keptRow
	all  map[string]store.Node // nil: not read since the last change
}

type keptRow struct {
	row store.Node
	ok  bool
}

// changed hears of each commit, before its proposer does.
func (k *keptRows) changed(c *store.Changes) {
	if !c.Nodes && !c.Reset {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gen++
	k.rows, k.all = nil, nil
}

func (k *keptRows) get(id string) (r keptRow, known bool, gen uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, known = k.rows[id]
	return r, known, k.gen
}

// put keeps what was read since gen, unless it may have changed meanwhile.
func (k *keptRows) put(id string, r keptRow, gen uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gen != gen || len(k.rows) >= 1000 { // ids come from strangers too
		return
	}
	if k.rows == nil {
		k.rows = map[string]keptRow{}
	}
	k.rows[id] = r
}

// Row is a member's row in this node's own state. Its maps are not to be changed.
func (m *Members) Row(id string) (store.Node, bool) {
	r, known, gen := m.kept.get(id)
	if known {
		return r.row, r.ok
	}
	err := m.o.Store.View(func(v *store.View) (err error) {
		r.row, r.ok, err = v.Node(id)
		return err
	})
	if err != nil {
		if !errors.Is(err, store.ErrClosed) {
			m.log("row of a member not readable", "node", id, "error", err)
		}
		return store.Node{}, false
	}
	m.kept.put(id, r, gen)
	return r.row, r.ok
}

// Rows are all rows of living members, by id. Their maps are not to be changed.
func (m *Members) Rows() (map[string]store.Node, error) {
	k := &m.kept
	k.mu.Lock()
	out, gen := maps.Clone(k.all), k.gen
	k.mu.Unlock()
	if out != nil {
		return out, nil
	}
	out = map[string]store.Node{}
	err := m.o.Store.View(func(v *store.View) error {
		return v.EachNode(func(r store.Node) {
			if !r.Removed {
				out[r.ID] = r
			}
		})
	})
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
