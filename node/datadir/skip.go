package datadir

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// SkippedEntry is an entry of the log that a node was told to pass over, because it cannot be applied.
//
// Such an entry stops every node that gets to it: a bug, or damage that raft did not see. All nodes must pass over it,
// or their states differ from there on. So it is an order that is given by hand to each data directory, names the entry
// as that directory has it, is kept there with its time, is logged at every start, and shows in status; and the leader
// compares what the members were told.
type SkippedEntry = wire.SkippedEntry

// withSkipRemedy adds the way out to the error of an entry that cannot be applied.
func (d *Dir) withSkipRemedy(group uint32, fatal func(error)) func(error) {
	return func(err error) {
		var entry *fsm.EntryError
		if !errors.As(err, &entry) {
			fatal(err)
			return
		}
		var unknown *fsm.UnknownCommandError
		way := "start this node with a newer carillon if there is one: it may be able to apply the entry"
		if errors.As(err, &unknown) {
			way = "a newer carillon wrote the entry: start this node with that version"
		}
		if group != 0 {
			fatal(inGroup(group, fmt.Errorf("%w; %s", err, way)))
			return
		}
		fatal(fmt.Errorf("%w; %s. If nothing else helps, stop all nodes and skip the entry on every one of them, or "+
			"their states will differ: carillon cluster recover "+
			"--data-dir %s --skip %d", err, way, d.Path, entry.Index))
	}
}

// announceSkips returns the entries to pass over, and their terms. It logs them at every start: a state that lacks an
// entry is not what the log says. They are entries of group 0.
func (d *Dir) announceSkips(group uint32, log *slog.Logger, st *store.Store) map[uint64]uint64 {
	out := map[uint64]uint64{}
	if group != 0 {
		return out
	}
	applied := st.Counters().Index
	for _, s := range d.Skips {
		out[s.Index] = s.Term
		log.Error("node skips a log entry, as it was told to; every node of the cluster must do the same",
			"index", s.Index, "term", s.Term,
			"told_at", s.At.String(), "done", applied >= s.Index)
	}
	return out
}

// Skipped says what Skip did.
type Skipped struct {
	NodeID string `json:"node_id"`
	SkippedEntry
	What string `json:"entry"` // as far as it can be read
}

// Skip has a node that is not running pass over an entry of its log from its next start on.
func Skip(dir string, index uint64, log *slog.Logger) (r Skipped, err error) {
	d, lock, err := openStopped(dir, offlineWait, (*Dir).mendable)
	if err != nil {
		return r, err
	}
	defer lock.Close()
	r.NodeID = d.NodeID
	var failed error
	f, err := d.openOffline(0, log, func(err error) { failed = err })
	if err != nil {
		return r, errors.Join(err, failed)
	}
	defer func() { err = errors.Join(err, failed, f.Close()) }()
	if slices.ContainsFunc(d.Skips, func(s SkippedEntry) bool { return s.Index == index }) {
		return r, fmt.Errorf("node %s is already told to skip entry %d; start it", d.NodeID, index)
	}
	applied, _ := f.FSM.Applied()
	if index <= applied {
		return r, fmt.Errorf("the state of node %[2]s is at entry %[3]d and already contains entry %[1]d: it can no "+
			"longer be skipped; if other nodes skip it, empty this data "+
			"directory and let the node rejoin", index, d.NodeID, applied)
	}
	var l raft.Log
	switch err := f.Log.GetLog(index, &l); {
	case errors.Is(err, raft.ErrLogNotFound):
		return r, fmt.Errorf("the log of node %s has no entry %d yet: start the node with the others; if it stops "+
			"at that entry, run this again",
			d.NodeID, index)
	case err != nil:
		return r, fmt.Errorf("entry %d: %w", index, err)
	case l.Type != raft.LogCommand:
		return r, fmt.Errorf("entry %d is not a command (%s) and changes no state: there is nothing to skip",
			index, l.Type)
	}
	if cmd, err := fsm.Decode(l.Data); err == nil {
		r.What = fmt.Sprintf("%T", cmd)
	} else {
		r.What = err.Error()
	}
	r.SkippedEntry = SkippedEntry{Index: index, Term: l.Term, At: job.At(time.Now())}
	d.Skips = append(d.Skips, r.SkippedEntry)
	if err := d.Save(); err != nil {
		return r, err
	}
	log.Error("log entry will be skipped; do the same on every other node before it is started", "node",
		d.NodeID, "index", index,
		"term", l.Term, "entry", r.What)
	return r, nil
}
