package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/node/raftlog"
	"github.com/carillon-scheduler/carillon/store"
)

// CheckResult is what a look at a data directory found.
type CheckResult struct {
	NodeID, Instance string
	Stats            store.Stats
	Index, Term      uint64 // the last entry in the state
	Problems         []string
}

// Check verifies a data directory without changing it: the invariants of the state, and that log, snapshot and state
// fit together. It refuses one that is in use.
func Check(dir string) (CheckResult, error) {
	var res CheckResult
	if fi, err := os.Stat(dir); err != nil {
		return res, dirError(dir, err)
	} else if !fi.IsDir() {
		return res, fmt.Errorf("%s is not a directory: give the --data-dir of a node", dir)
	}
	d, err := readDir(dir)
	if err == nil {
		err = d.Whole()
	}
	if err != nil {
		return res, err
	}
	res.NodeID, res.Instance = d.NodeID, d.Instance
	lock, err := d.lockOffline(dirlock.Options{})
	if err == nil {
		defer lock.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return res, err
	}
	for _, name := range []string{LogFile, StateFile} {
		if fi, err := os.Stat(d.File(name)); err != nil {
			return res, fmt.Errorf("%s holds no %s: it was never started, or the file was lost", dir, name)
		} else if fi.Size() == 0 { // it is made whole under another name
			res.Problems = append(res.Problems, store.Damaged(d.File(name), "it is empty").Error())
			continue
		}
		if err := store.VerifyPages(d.File(name)); err != nil {
			res.Problems = append(res.Problems, err.Error())
		}
	}
	if len(res.Problems) > 0 {
		return res, nil // there is nothing to look into
	}
	problems, stats, err := store.CheckFile(d.File(StateFile))
	if err != nil {
		return res, err
	}
	res.Problems, res.Stats = append(res.Problems, problems...), stats
	return res, d.checkReach(&res)
}

// checkReach holds the state against the log and the newest snapshot.
func (d *Dir) checkReach(res *CheckResult) error {
	log, err := raftlog.Open(d.File(LogFile), raftlog.Options{LockTimeout: time.Second, ReadOnly: true})
	if err != nil {
		return err
	}
	defer log.Close()
	st, err := store.Open(d.File(StateFile), store.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer st.Close()
	if level := st.Info().Level; level > fsm.Level {
		// What was found, or not found, says nothing: this binary does not know what that level added.
		return fmt.Errorf("data directory %s is at feature level %d and this binary knows levels up to %d: "+
			"check it with the newer carillon that wrote it", d.Path, level, fsm.Level)
	}
	snap, err := d.snapshotMeta()
	if err != nil {
		return err
	}
	c := st.Counters()
	res.Index, res.Term = c.Index, c.Term
	if snap.State > c.Index { // the next start takes a snapshot over that was received and not restored
		h, err := d.pending(snap.ID)
		switch {
		case err == nil:
			res.Index, res.Term = h.Index, h.Term
		case !errors.Is(err, fs.ErrNotExist):
			res.Problems = append(res.Problems, store.Damaged(filepath.Join(d.File(SnapshotsDir), snap.ID+".snap"),
				err).Error())
			return nil
		}
	}
	if err := reach(log, snap.snapshot, res.Index, res.Term); err != nil {
		res.Problems = append(res.Problems, err.Error())
	}
	return nil
}

// namedSnapshot is a snapshot and how its file is called if it was received.
type namedSnapshot struct {
	ID string
	snapshot
}

// pending reads a snapshot that was received, and verifies it.
func (d *Dir) pending(id string) (fsm.Header, error) {
	f, err := os.Open(filepath.Join(d.File(SnapshotsDir), id+".snap"))
	if err != nil {
		return fsm.Header{}, err
	}
	defer f.Close()
	return fsm.CopyStream(io.Discard, f)
}

// snapshotMeta is the newest snapshot's metadata. Opening the snapshot store would tidy it up, and a check changes
// nothing.
func (d *Dir) snapshotMeta() (s namedSnapshot, err error) {
	path := filepath.Join(d.File(SnapshotsDir), "snapshot.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		if err = json.Unmarshal(data, &s); err != nil {
			err = store.Damaged(path, err)
		}
	}
	return s, err
}
