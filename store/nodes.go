package store

import (
	"encoding/json"
	"fmt"
)

// Node is a member's row: who it is, where it is, and what it can do. Membership itself (who votes) is raft's
// configuration; the row says which data directory may speak under the id, which raft never asks.
type Node struct {
	ID       string            `json:"id" codec:"i"`
	Instance string            `json:"instance" codec:"n"` // of its data directory
	Address  string            `json:"address" codec:"a"`  // host:port that it advertises
	Version  string            `json:"version,omitempty" codec:"v,omitempty"`
	Level    int               `json:"level" codec:"l"` // the highest feature level that its binary supports
	Slots    int               `json:"slots,omitempty" codec:"s,omitempty"`
	Tags     map[string]string `json:"tags,omitempty" codec:"t,omitempty"`
	Standby  bool              `json:"standby,omitempty" codec:"b,omitempty"` // stays a non-voter until it is promoted
	Vote     uint64            `json:"vote,omitempty" codec:"o,omitempty"`    // the log entry that last changed Standby
	JoinedAt int64             `json:"joined_at" codec:"j"`                   // ms
	Leaving  bool              `json:"leaving,omitempty" codec:"g,omitempty"` // it is removed when it has no replica

	// Index is the log entry that last changed the instance, the address or Removed. Of two nodes that disagree about a
	// member the one with the higher index is right, which lets a node that was away take the word of one that was not.
	Index uint64 `json:"index" codec:"x"`
	// Removed keeps the row of a member that was removed: its directory must not come back.
	Removed bool `json:"removed,omitempty" codec:"r,omitempty"`
	// GivenUp says that a recovery removed it, and not an operator: its directory may have been recovered too.
	GivenUp bool `json:"given_up,omitempty" codec:"u,omitempty"`
	// Key is the hash of the key that the node joined a secure cluster with. A join that is repeated is known by it.
	Key string `json:"key,omitempty" codec:"k,omitempty"`
}

// Node reads a member's row, also that of a removed one.
func (r reads) Node(id string) (n Node, ok bool, err error) {
	b := r.tx.Bucket(bucketNodes)
	if b == nil {
		return n, false, nil // a file from before there were rows, opened for reading
	}
	return decoded(b.Get([]byte(id)), decodeNode)
}

// EachNode calls fn for every row, by id.
func (r reads) EachNode(fn func(Node)) error {
	b := r.tx.Bucket(bucketNodes)
	if b == nil {
		return nil
	}
	return b.ForEach(func(_, v []byte) error {
		n, err := decodeNode(v)
		if err == nil {
			fn(n)
		}
		return err
	})
}

func decodeNode(v []byte) (n Node, err error) {
	if err := json.Unmarshal(v, &n); err != nil {
		return n, fmt.Errorf("%w: node: %w", ErrCorrupt, err)
	}
	return n, nil
}

// PutNode writes a member's row. Maps are written in the order of their keys, so that all replicas write the same
// bytes.
func (b *Batch) PutNode(n Node) error {
	v, err := json.Marshal(n)
	if err != nil {
		return err
	}
	b.changes.Nodes = true
	return b.tx.Bucket(bucketNodes).Put([]byte(n.ID), v)
}

// DropNodes removes every row: those of another cluster say nothing about this one.
func (b *Batch) DropNodes() error {
	b.changes.Nodes = true
	if err := b.tx.DeleteBucket(bucketNodes); err != nil {
		return err
	}
	_, err := b.tx.CreateBucket(bucketNodes)
	return err
}

// nodes looks at the rows of the members.
func (c *checker) nodes() error {
	at := map[string]string{}
	b := c.tx.Bucket(bucketNodes)
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		n, err := decodeNode(v)
		switch {
		case err != nil:
			c.bad("the row of node %q cannot be read", k)
			return nil
		case n.ID != string(k):
			c.bad("the row of node %q is about %q", k, n.ID)
		case n.Instance == "" || n.Address == "":
			c.bad("the row of node %q has no instance or no address", k)
		case n.Index > c.count.Index:
			c.bad("the row of node %q was changed by entry %d, the state ends at %d", k, n.Index, c.count.Index)
		}
		if n.Removed {
			return nil
		}
		c.stats.Nodes++
		if other, twice := at[n.Address]; twice {
			c.bad("nodes %q and %q have the same address %s", other, n.ID, n.Address)
		}
		at[n.Address] = n.ID
		return nil
	})
}

// TouchNodes has listeners look at the members again: what they are judged by has changed.
func (b *Batch) TouchNodes() { b.changes.Nodes = true }
