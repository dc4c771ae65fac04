package fsm

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/carillon-scheduler/carillon/store"
)

// PutNode writes a member's row. Index, Vote and JoinedAt are set in apply.
type PutNode struct {
	Head `codec:"h"`
	Node store.Node `codec:"n"`
	Join string     `codec:"j,omitempty"` // the join token that a new member came with
}

// maxNodeField bounds what becomes part of a row: it travels in every handshake.
const maxNodeField = 255

// apply writes a member's row. Which data directory may speak under an id is decided here and nowhere else, so that two
// requests that pass each other cannot both succeed: raft itself would take the second one's address and let a server
// that forgot its vote elect a leader.
func (c *PutNode) apply(a *applier) error {
	n := c.Node
	refuse := func(format string, args ...any) error {
		a.outcome(Outcome{Code: CodeRefused, Text: fmt.Sprintf(format, args...)})
		return nil
	}
	for _, s := range []string{n.ID, n.Instance, n.Address} {
		if s == "" || len(s) > maxNodeField {
			return refuse("a node needs an id, an instance and an address of reasonable length")
		}
	}
	if have := a.b.Info().Level; n.Level < have {
		return refuse("the cluster is at feature level %d, and this node supports levels up to %d: start it with "+
			"the carillon that the others run", have, n.Level)
	}
	old, known, err := a.b.Node(n.ID)
	if err != nil {
		return err
	}
	switch {
	case known && old.Removed && old.Instance == n.Instance:
		return refuse("node %s was removed from the cluster: empty its data directory before it rejoins", n.ID)
	case known && !old.Removed && old.Instance != n.Instance:
		return refuse("the cluster already has a node %s with another data directory: if that one is gone, run "+
			"`carillon cluster remove %s` first; otherwise choose another --node-id", n.ID, n.ID)
	}
	taken := ""
	err = a.b.EachNode(func(o store.Node) {
		if o.ID != n.ID && o.Address == n.Address && !o.Removed {
			taken = o.ID
		}
	})
	if err != nil {
		return err
	}
	if taken != "" {
		return refuse("node %s already has the address %s: set another --advertise, or remove that node",
			taken, n.Address)
	}
	n.Removed, n.GivenUp = false, false
	if known && !old.Removed {
		n.JoinedAt, n.Index, n.Vote, n.Key = old.JoinedAt, old.Index, old.Vote, cmp.Or(old.Key, n.Key)
		n.Leaving = n.Leaving || old.Leaving // what it says of itself when it comes back does not change that
		if n.Address != old.Address {
			n.Index = a.b.C.Index
		}
		if n.Standby != old.Standby {
			n.Vote = a.b.C.Index
		}
		if sameNode(n, old) {
			a.outcome(Outcome{Code: CodeOK})
			return nil
		}
	} else {
		if c.Join != "" {
			if why := a.useJoin(c.Join, n.Standby); why != "" {
				return refuse("%s: carillon cluster token create makes a new one", why)
			}
		}
		n.JoinedAt, n.Index, n.Vote = a.now, a.b.C.Index, a.b.C.Index
	}
	a.outcome(Outcome{Code: CodeOK, Count: 1})
	return a.b.PutNode(n)
}

func sameNode(x, y store.Node) bool {
	return maps.Equal(x.Tags, y.Tags) && x.ID == y.ID && x.Instance == y.Instance && x.Address == y.Address &&
		x.Version == y.Version && x.Level == y.Level && x.Slots == y.Slots && x.Standby == y.Standby &&
		x.JoinedAt == y.JoinedAt && x.Index == y.Index && x.Removed == y.Removed && x.Key == y.Key &&
		x.Leaving == y.Leaving
}

// RemoveNode marks a member as removed. Instance "": whichever.
type RemoveNode struct {
	Head     `codec:"h"`
	ID       string `codec:"i"`
	Instance string `codec:"n,omitempty"`
}

// apply keeps the row and marks it: the directory that lived under the id must not come back by itself.
func (c *RemoveNode) apply(a *applier) error {
	n, ok, err := a.b.Node(c.ID)
	if err != nil {
		return err
	}
	if !ok || n.Removed || c.Instance != "" && c.Instance != n.Instance {
		a.outcome(Outcome{Code: CodeNotFound})
		return nil
	}
	n.Removed, n.Leaving, n.Index = true, false, a.b.C.Index
	a.outcome(Outcome{Code: CodeOK, Count: 1})
	if err := a.b.PutNode(n); err != nil {
		return err
	}
	return a.finishRotation()
}
