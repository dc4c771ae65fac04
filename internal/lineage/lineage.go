// Package lineage says whether two nodes belong to the same history of a cluster. A recovery begins a new one without
// the nodes that it gives up, and those may come back, or be recovered themselves.
package lineage

import "fmt"

// Cluster is the history of a cluster that a data directory, a state or a worker belongs to.
type Cluster struct {
	ID       string
	Epoch    uint64 // rises with each recovery and restore
	Recovery string // drawn by the recovery that began the epoch; empty: none did
}

// String is for people. The recovery's id tells them nothing.
func (c Cluster) String() string {
	if c.Epoch == 0 {
		return c.ID
	}
	return fmt.Sprintf("%s (epoch %d)", c.ID, c.Epoch)
}

// Relation is what another node's history is to one's own.
type Relation int

// The relations.
const (
	Same     Relation = iota
	Stranger          // it is another cluster
	Earlier           // the cluster was recovered or restored without the other node
	Later             // the cluster was recovered or restored without this node
	Rival             // both were recovered, each without the other, and neither is above the other
)

// Compare is what the history of another node is to this one. Nodes talk only if it is the same. Of two epochs the
// higher one wins; between rivals only an operator can choose.
func (c Cluster) Compare(other Cluster) Relation {
	switch {
	case other.ID != c.ID:
		return Stranger
	case other.Epoch < c.Epoch:
		return Earlier
	case other.Epoch > c.Epoch:
		return Later
	case other.Recovery != c.Recovery:
		return Rival
	}
	return Same
}

// Differ says why two nodes do not belong together, and what to do; "": they do.
func Differ(node string, c Cluster, otherNode string, other Cluster) (text, remedy string) {
	switch c.Compare(other) {
	case Stranger:
		return fmt.Sprintf("node %s is in cluster %s, and node %s in %q: they do not talk to each other", node, c.ID,
			otherNode, other.ID), "check --join and the addresses, or empty the data directory of the wrong node"
	case Earlier:
		return givenUp(c, otherNode, other)
	case Later:
		return givenUp(other, node, c)
	case Rival:
		return fmt.Sprintf("nodes %s and %s were both recovered, each without the other, to epoch %d", node, otherNode,
				c.Epoch), "choose one: stop both, run `carillon cluster recover` on the one that is to continue, and " +
				"empty the data directory of the other and let it rejoin"
	}
	return "", ""
}

func givenUp(c Cluster, node string, was Cluster) (text, remedy string) {
	return fmt.Sprintf("the cluster was recovered or restored (epoch %d) and node %s was not part of that (epoch %d)",
		c.Epoch, node, was.Epoch), "empty its data directory and let it rejoin"
}
