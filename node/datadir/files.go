package datadir

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/node/raftlog"
	"github.com/carillon-scheduler/carillon/store"
)

// Files are the files of a Raft group, opened: its log, its state and its snapshots.
type Files struct {
	Log       *raftlog.Log
	State     *store.Store
	FSM       *fsm.FSM
	Snapshots *fsm.Snapshots
}

// FileOptions say how files are opened.
type FileOptions struct {
	State   store.Options // the log gets NoSync and LockTimeout from it
	Level   int           // the feature level to support
	Applied func(entries int, took time.Duration)
	Logger  *slog.Logger
	Fatal   func(error) // ends the process after a storage error, or at an entry that cannot be applied

	BeforeLogWrite func() error // as store.Options.BeforeCommit
	Trusting       bool         // files that do not fit together are opened, so that tests can show what that leads to
}

// OpenFiles opens the files and holds them against each other.
func (d *Dir) OpenFiles(o FileOptions) (_ *Files, err error) {
	f := &Files{}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := d.checkLogLost(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.File(GroupDir), 0o700); err != nil {
		return nil, dirError(d.File(GroupDir), err)
	}
	if err := store.VerifyPages(d.File(LogFile)); err != nil { // of the state file the store does it
		return nil, err
	}
	f.Log, err = raftlog.Open(d.File(LogFile), raftlog.Options{
		NoSync: o.State.NoSync, LockTimeout: o.State.LockTimeout, Fatal: o.Fatal, BeforeWrite: o.BeforeLogWrite,
	})
	if err != nil {
		return nil, err
	}
	if f.State, err = store.Open(d.File(StateFile), o.State); err != nil {
		return nil, err
	}
	if err := fsm.CheckLevel(f.State.Info().Level, o.Level); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", d.Path, err)
	}
	f.FSM = fsm.New(f.State, fsm.Options{
		Logger: o.Logger, Fatal: d.withSkipRemedy(o.Fatal), Applied: o.Applied, Level: o.Level,
		Skip: d.announceSkips(o.Logger, f.State),
	})
	if f.Snapshots, err = fsm.NewSnapshots(d.File(SnapshotsDir), f.State); err != nil {
		return nil, err
	}
	if err := f.restorePending(o.Logger); err != nil {
		return nil, err
	}
	// The names of new files are safe only once their directory is: a power loss could otherwise take files whose
	// contents were synced, and everything acknowledged with them.
	for _, dir := range []string{d.File(GroupDir), d.Path} {
		if err := store.SyncDir(dir); err != nil {
			return nil, err
		}
	}
	if o.Trusting {
		return f, nil
	}
	return f, f.checkReach()
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
