package datadir

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/node/raftlog"
)

// snapshot is what the newest snapshot's metadata says. State is the last entry in the state that goes with it: lower
// than Index where only barriers and no-ops follow, which no state machine is shown. It is higher, and StateTerm is its
// term, where a leader sent a state that was further on: the entries in between are committed, and come after it.
type snapshot struct {
	Index, Term, State uint64
	StateTerm          uint64 `json:"state_term"`
}

// reach holds the state against the log and the newest snapshot: it must be a state that this log leads to, or
// everything built on it would differ from what the other nodes have. A file that was lost, replaced or rolled back
// shows here, before raft starts. index and term are the last entry in the state.
func reach(log interface {
	raft.LogStore
	raft.StableStore
}, snap snapshot, index, term uint64) error {
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	current, err := raftlog.Term(log)
	if err != nil {
		return err
	}
	end := max(last, snap.Index)
	if snap.StateTerm != 0 {
		end = max(end, snap.State)
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("the data directory does not fit together: "+format+"; a file was lost or put back from "+
			"another time. "+
			"Restore the whole directory from one backup, or remove it and let the node rejoin", args...)
	}
	switch {
	case index > end:
		return refuse("%s contains entry %d, but %s ends at %d", stateName, index, logName, end)
	case index < snap.State:
		return refuse("%s ends at entry %d, but the newest snapshot contains entry %d", stateName, index, snap.State)
	case last > snap.Index && first > snap.Index+1:
		return refuse("%s begins at entry %d and the newest snapshot ends at %d", logName, first, snap.Index)
	case current < max(term, snap.Term, snap.StateTerm):
		// It would forget in which terms it has voted, and help to elect two leaders.
		return refuse("%s is at term %d, but entries of term %d were applied", logName, current, max(term, snap.Term,
			snap.StateTerm))
	}
	if index == 0 {
		return nil
	}
	at := uint64(0)
	var l raft.Log
	switch err := log.GetLog(index, &l); {
	case err == nil:
		at = l.Term
	case !errors.Is(err, raft.ErrLogNotFound):
		return err
	case index == snap.Index:
		at = snap.Term
	case snap.StateTerm != 0 && index == snap.State:
		at = snap.StateTerm
	case index < snap.Index:
		return nil // compacted away, and the snapshot contains it
	default:
		return refuse("entry %d, the last one in %s, is neither in %s nor in the newest snapshot", index, stateName,
			logName)
	}
	if at != term {
		return refuse("entry %d has term %d in %s and term %d in the log", index, term, stateName, at)
	}
	return nil
}
