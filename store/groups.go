package store

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// The states of a group. They only go forward.
const (
	GroupPreparing = "preparing" // its replicas are being brought together
	GroupActive    = "active"    // it may be given jobs
)

// GroupRow is a row of the table of groups, which group 0 has: what the group is called, and who has a replica of it.
type GroupRow struct {
	Number   uint32         `json:"number" codec:"n"`
	ID       string         `json:"id" codec:"i"`    // random
	Begin    string         `json:"begin" codec:"b"` // the one node that begins it
	State    string         `json:"state" codec:"s"`
	Replicas []GroupReplica `json:"replicas" codec:"r"`
	Last     uint64         `json:"last" codec:"l"`                      // the highest number that a replica ever had
	Version  uint64         `json:"version" codec:"v"`                   // the log entry that wrote it; set in apply
	Size     int            `json:"size,omitempty" codec:"z,omitempty"`  // how many replicas it is to have; 0: 3
	Epoch    uint64         `json:"epoch,omitempty" codec:"e,omitempty"` // of a copy: that of group 0 when it was made
}

// Newer says that a copy of a row was made from a later one than another. A recovery of group 0 begins a new epoch.
func (g *GroupRow) Newer(than *GroupRow) bool {
	return g.Epoch > than.Epoch || g.Epoch == than.Epoch && g.Version > than.Version
}

// GroupReplica is one replica of a group. One that was removed has forgotten its vote, so its number is never used
// again.
type GroupReplica struct {
	Node     string `json:"node" codec:"o"`
	Number   uint64 `json:"number" codec:"n"`
	Instance string `json:"instance,omitempty" codec:"i,omitempty"` // of the node's data directory, once it is known
	Leaving  bool   `json:"leaving,omitempty" codec:"l,omitempty"`
}

// Wrong says why a row cannot take the place of old, a zero one if there is none; "" if it can.
func (g *GroupRow) Wrong(old *GroupRow) string {
	switch {
	case g.Number == 0 || g.Number > job.MaxGroups:
		return fmt.Sprintf("a group of jobs has a number from 1 to %d", job.MaxGroups)
	case g.ID == "" || g.Begin == "":
		return "a group needs an id and a node that begins it"
	case g.State != GroupPreparing && g.State != GroupActive:
		return fmt.Sprintf("%q is no state of a group", g.State)
	case old.Number != 0 && (g.ID != old.ID || g.Begin != old.Begin):
		return "the group has another id, or another node begins it"
	case old.State == GroupActive && g.State != GroupActive:
		return "the group is active already"
	}
	for i, r := range g.Replicas {
		was := slices.IndexFunc(old.Replicas, func(o GroupReplica) bool { return o.Number == r.Number })
		same := was >= 0 && old.Replicas[was].Node == r.Node &&
			(old.Replicas[was].Instance == "" || old.Replicas[was].Instance == r.Instance)
		switch {
		case r.Node == "" || r.Number == 0 || r.Number > g.Last:
			return "a replica needs a node and a number that was given out"
		case !same && r.Number <= old.Last:
			return fmt.Sprintf("the number %d was that of another replica", r.Number)
		case slices.ContainsFunc(g.Replicas[:i], func(o GroupReplica) bool {
			return o.Number == r.Number || o.Node == r.Node && !o.Leaving && !r.Leaving
		}):
			return fmt.Sprintf("the number %d or the node %s has two replicas", r.Number, r.Node)
		}
	}
	return ""
}

// Groups are the rows of the table of groups, by number. With one group there are none.
func (r reads) Groups() (rows []GroupRow, err error) {
	err = r.scan(bucketGroups, nil, func(_, v []byte) (bool, error) {
		g, err := decodeGroup(v)
		rows = append(rows, g)
		return err == nil, err
	})
	return rows, err
}

func decodeGroup(v []byte) (g GroupRow, err error) {
	if err := json.Unmarshal(v, &g); err != nil {
		return g, fmt.Errorf("%w: group: %w", ErrCorrupt, err)
	}
	return g, nil
}

// PutGroup writes a row.
func (b *Batch) PutGroup(g GroupRow) error {
	v, err := json.Marshal(g)
	if err != nil {
		return err
	}
	b.changes.Groups = true
	return b.put(bucketGroups, appendClass(g.Number), v)
}

// DropGroup removes a row.
func (b *Batch) DropGroup(number uint32) error {
	b.changes.Groups = true
	return b.drop(bucketGroups, appendClass(number))
}

func (c *checker) groups() error {
	return c.scan(bucketGroups, nil, func(k, v []byte) (bool, error) {
		g, err := decodeGroup(v)
		if err != nil || len(k) != 4 || g.Number != parseU32(k) || g.Version > c.count.Index ||
			g.Wrong(&GroupRow{}) != "" {
			c.bad("the row of group %x makes no sense", k)
		}
		return true, nil
	})
}
