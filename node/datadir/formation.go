package datadir

import (
	"cmp"

	"github.com/carillon-scheduler/carillon/store"
)

// Formation is what a directory has promised about the cluster that its node is to form with those of a list, and, once
// that was founded, with whom. A promise is on the disk before another node hears of it: see node/formation.
type Formation struct {
	List    []string     `json:"list"`
	Ballot  Ballot       `json:"ballot"`
	Members []store.Node `json:"members,omitempty"` // with which the cluster was founded; none: it is promised only
	Admin   store.Token  `json:"admin,omitzero"`    // that a secure cluster begins with
}

// Ballot is one attempt to found a cluster. A promise is only ever replaced by a later one.
type Ballot struct {
	Round   uint64 `json:"round"`
	Founder string `json:"founder"` // the instance of the node that founds
}

// Compare orders ballots.
func (b Ballot) Compare(o Ballot) int {
	return cmp.Or(cmp.Compare(b.Round, o.Round), cmp.Compare(b.Founder, o.Founder))
}
