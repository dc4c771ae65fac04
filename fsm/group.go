package fsm

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Init names a new cluster and the group that the log belongs to. Admin, if it has an id, is the first token: without
// one no other could be made.
type Init struct {
	Head      `codec:"h"`
	ClusterID string      `codec:"c"`
	Group     uint32      `codec:"g"`
	Admin     store.Token `codec:"a,omitempty"`
	GroupID   string      `codec:"i,omitempty"` // random; empty for group 0
	Homes     uint32      `codec:"o,omitempty"` // with how many groups of jobs the cluster begins; 1: all is in group 0
	Groups    uint32      `codec:"n,omitempty"` // how many take new jobs
	Epoch     uint64      `codec:"e,omitempty"` // that of the cluster, which was recovered or restored before
	Recovery  string      `codec:"r,omitempty"` // that of the cluster
}

func (c *Init) apply(a *applier) error {
	info := a.b.Info()
	if info.ClusterID != "" {
		a.outcome(Outcome{Code: CodeRefused, Text: "the cluster has an id already"})
		return nil
	}
	if max(c.Group, c.Homes, c.Groups) > job.MaxGroups {
		a.outcome(Outcome{Code: CodeRefused, Text: fmt.Sprintf("there are at most %d groups", job.MaxGroups)})
		return nil
	}
	if a.b.C.Jobs > 0 && (c.Group > 0 || c.Homes > 1) { // they would be where their names and queues are not
		a.outcome(Outcome{Code: CodeRefused, Text: "there are jobs already, in one group"})
		return nil
	}
	if c.Admin.ID != "" {
		if o, err := a.createToken(c.Admin); err != nil || o.Code != CodeOK {
			a.outcome(o)
			return err
		}
	}
	info.ClusterID, info.Group, info.GroupID = c.ClusterID, c.Group, c.GroupID
	info.Homes, info.Groups, info.Recovery = c.Homes, c.Groups, c.Recovery
	err := a.b.RaiseEpoch(&info, c.Epoch) // and job numbers to those of the group
	a.b.SetInfo(info)
	a.outcome(Outcome{Code: CodeOK})
	return err
}

// PutGroup writes a row of the table of groups. Version is that of the row it was made from; 0: there is none. In
// another group than 0 it keeps a copy of the group's row.
type PutGroup struct {
	Head    `codec:"h"`
	Row     store.GroupRow `codec:"r"`
	Version uint64         `codec:"v"`
}

func (c *PutGroup) apply(a *applier) error {
	if a.b.Group() != 0 {
		return c.follow(a)
	}
	rows, err := a.b.Groups()
	if err != nil {
		return err
	}
	old, twice := store.GroupRow{}, false
	for _, r := range rows {
		if r.Number == c.Row.Number {
			old = r
		} else if r.ID == c.Row.ID {
			twice = true
		}
	}
	row := c.Row
	row.Last = max(row.Last, old.Last)
	for _, r := range row.Replicas {
		row.Last = max(row.Last, r.Number)
	}
	switch why := row.Wrong(&old); {
	case old.Version != c.Version:
		a.outcome(Outcome{Code: CodeConflict, Version: old.Version})
	case twice:
		a.outcome(Outcome{Code: CodeRefused, Text: "another group has that id"})
	case why != "":
		a.outcome(Outcome{Code: CodeRefused, Text: why})
	default:
		row.Version = a.b.C.Index
		a.outcome(Outcome{Code: CodeOK, Version: row.Version})
		return a.b.PutGroup(row)
	}
	return nil
}

// follow keeps a copy of the group's row. Its leaders change Raft's configuration by that and nothing else: the table
// that one of them reads may be older than what another has acted on, and an older row never replaces a newer one here.
func (c *PutGroup) follow(a *applier) error {
	switch info := a.b.Info(); {
	case c.Row.Number != info.Group || c.Row.ID != info.GroupID:
		a.outcome(Outcome{Code: CodeRefused, Text: "the row is that of another group"})
	case !c.Row.Newer(&info.Row):
		a.outcome(Outcome{Code: CodeConflict, Version: info.Row.Version})
	default:
		info.Row = c.Row
		a.b.SetInfo(info)
		a.outcome(Outcome{Code: CodeOK, Version: c.Row.Version})
	}
	return nil
}

// GrowGroups says, in group 0, how many groups of jobs there are to be. It is done when Info.Known is as many.
type GrowGroups struct {
	Head   `codec:"h"`
	Groups uint32 `codec:"g"`
}

func (c *GrowGroups) apply(a *applier) error {
	info := a.b.Info()
	switch have := max(info.Homes, info.Groups, 1); {
	case a.b.Group() != 0 || c.Groups < have || c.Groups > job.MaxGroups:
		a.outcome(Outcome{Code: CodeRefused, Count: int(have)})
	case info.Want > have && info.Want != c.Groups:
		a.outcome(Outcome{Code: CodeConflict, Count: int(info.Want)})
	default:
		info.Want = c.Groups
		a.b.SetInfo(info)
		a.outcome(Outcome{Code: CodeOK})
	}
	return nil
}

// ActivateGroups has new jobs put into groups 1 to Groups. Before that, with List, it has lists ask these; after it,
// with Known, it says that all nodes have heard of it. The numbers only rise. Group 0 takes the command once all of the
// groups are active, and its last parts when the others have taken it: see node/DESIGN.md.
type ActivateGroups struct {
	Head   `codec:"h"`
	Groups uint32 `codec:"g"`
	List   bool   `codec:"l,omitempty"`
	Known  bool   `codec:"k,omitempty"`
}

func (c *ActivateGroups) apply(a *applier) error {
	rows, err := a.b.Groups()
	if err != nil {
		return err
	}
	active := uint32(0)
	for _, r := range rows {
		if r.Number == active+1 && r.State == store.GroupActive {
			active++
		}
	}
	switch info := a.b.Info(); {
	case c.Groups < info.Groups || c.Groups < 2 || c.Groups > job.MaxGroups:
		a.outcome(Outcome{Code: CodeRefused, Text: fmt.Sprintf("%d groups take new jobs already", info.Groups)})
	case a.b.Group() == 0 && active < c.Groups:
		a.outcome(Outcome{Code: CodeRefused, Text: fmt.Sprintf("group %d is not active", active+1)})
	case c.Known && c.Groups > info.Groups:
		a.outcome(Outcome{Code: CodeRefused, Text: fmt.Sprintf("only %d groups take new jobs", info.Groups)})
	default:
		switch {
		case c.Known:
			info.Known = c.Groups
		case !c.List:
			info.Groups = c.Groups
		}
		info.Listed = max(info.Listed, c.Groups)
		a.b.SetInfo(info)
		a.outcome(Outcome{Code: CodeOK})
	}
	return nil
}
