package datadir

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/fsm/chain"
	"github.com/carillon-scheduler/carillon/fsm/snapshots"
	"github.com/carillon-scheduler/carillon/internal/boltpages"
	"github.com/carillon-scheduler/carillon/node/raftlog"
	"github.com/carillon-scheduler/carillon/store"
)

// Files are the files of a Raft group, opened: its log, its state and its snapshots.
type Files struct {
	Log       *raftlog.Log
	State     *store.Store
	FSM       *fsm.FSM
	Snapshots *snapshots.Store
}

// FileOptions say how files are opened.
type FileOptions struct {
	State   store.Options // the log gets NoSync and LockTimeout from it
	Level   int           // the feature level to support
	Applied func(logs []*raft.Log, replies []any, took time.Duration)
	Differs func(chain.Difference) // see fsm.Options
	Scrub   func(fsm.Scrubbed)     // see fsm.Options
	Damaged func(error)            // is told that something in the files is not what was written; nil: that is an error
	Logger  *slog.Logger
	Fatal   func(error) // ends the process after a storage error, or at an entry that cannot be applied

	BeforeLogWrite func() error // as store.Options.BeforeCommit
	Trusting       bool         // files that do not fit together are opened, so that tests can show what that leads to
}

// OpenFiles opens the files of a group that this node has a replica of, and holds them against each other.
func (d *Dir) OpenFiles(group uint32, o FileOptions) (_ *Files, err error) {
	f := &Files{}
	defer func() {
		if err != nil {
			f.Close()
			err = inGroup(group, err)
		}
	}()
	if _, ok := replicaOf(d.Replicas, group); !ok && group != 0 {
		return nil, fmt.Errorf("node %s has no replica of it", d.NodeID)
	}
	if err := d.checkLogLost(group); err != nil {
		return nil, err
	}
	dir, logFile := d.File(GroupDir(group)), d.groupFile(group, logName)
	if group == 0 { // the others are made with their entries in node.json
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, dirError(dir, err)
		}
	}
	if err := verifyLog(logFile); err != nil { // of the state file the store does it
		return nil, err
	}
	f.Log, err = raftlog.Open(logFile, raftlog.Options{
		NoSync: o.State.NoSync, LockTimeout: o.State.LockTimeout, Fatal: o.Fatal, BeforeWrite: o.BeforeLogWrite,
	})
	if err != nil {
		return nil, err
	}
	if f.State, err = store.Open(d.groupFile(group, stateName), o.State); err != nil {
		return nil, err
	}
	if err := fsm.CheckLevel(f.State.Info().Level, o.Level); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", d.Path, err)
	}
	f.FSM = fsm.New(f.State, fsm.Options{
		Logger: o.Logger, Fatal: d.withSkipRemedy(group, o.Fatal), Applied: o.Applied, Level: o.Level,
		Differs: o.Differs, Damaged: o.Damaged, Scrub: o.Scrub,
		Restored: func() { // its file is as large as the state, and would stay until the next snapshot
			if f.Snapshots == nil {
				return
			}
			if err := f.Snapshots.Restored(); err != nil {
				o.Logger.Warn("the file of a snapshot that was restored cannot be removed", "error", err)
			}
		},
		Skip: d.announceSkips(group, o.Logger, f.State),
	})
	if f.Snapshots, err = snapshots.New(d.groupFile(group, snapshotsName), f.State); err != nil {
		return nil, err
	}
	if err := f.restorePending(o.Logger); err != nil {
		return nil, err
	}
	// The names of new files are safe only once their directory is: a power loss could otherwise take files whose
	// contents were synced, and everything acknowledged with them.
	for _, path := range []string{dir, d.Path} {
		if err := store.SyncDir(path); err != nil {
			return nil, err
		}
	}
	if o.Trusting {
		return f, nil
	}
	err = f.checkReach()
	if d := new(raftlog.Damage); errors.As(err, &d) && o.Damaged != nil {
		o.Damaged(d)
		err = nil
	}
	return f, err
}

// verifyLog looks at the pages of a log. Of a state an older header is as good: what is missing comes from the log.
func verifyLog(path string) error {
	if fi, err := os.Stat(path); err != nil || fi.Size() == 0 {
		return nil // it is made whole under another name
	}
	if err := boltpages.VerifyHeaders(path); err != nil {
		return err
	}
	return store.VerifyPages(path)
}

// restorePending takes over a snapshot that was received whole when the process ended, but not restored.
func (f *Files) restorePending(log *slog.Logger) error {
	rc, err := f.Snapshots.Pending()
	if err != nil || rc == nil {
		return err
	}
	log.Info("restoring a snapshot that was received before the last stop")
	return f.FSM.Restore(rc)
}

func (f *Files) checkReach() error {
	meta, err := f.newestSnapshot()
	if err != nil {
		return err
	}
	var snap snapshot
	if meta != nil {
		snap.Index, snap.Term = meta.Index, meta.Term
		if snap.State, snap.StateTerm, err = f.Snapshots.State(); err != nil {
			return err
		}
	}
	index, term := f.FSM.Applied()
	return reach(f.Log, snap, index, term)
}

// newestSnapshot is nil if there is none.
func (f *Files) newestSnapshot() (*raft.SnapshotMeta, error) {
	list, err := f.Snapshots.List()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// InCluster says whether the group is part of a cluster already.
func (f *Files) InCluster() (bool, error) {
	last, err := f.Log.LastIndex()
	if err != nil {
		return false, err
	}
	snap, err := f.newestSnapshot()
	return last > 0 || snap != nil, err
}

// Close closes the files. It works on files that were opened in part.
func (f *Files) Close() error {
	var errs []error
	if f.State != nil {
		errs = append(errs, f.State.Close())
	}
	if f.Log != nil {
		errs = append(errs, f.Log.Close())
	}
	return errors.Join(errs...)
}

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
		return fmt.Errorf("the data directory is inconsistent: "+format+
			"; a file was lost, or replaced by an older or newer copy. Restore the whole directory from one backup, "+
			"or remove it and let the node rejoin", args...)
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
