package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/fsm/snapshots"
	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/node/raftlog"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// CheckResult is what a look at a data directory found.
type CheckResult struct {
	NodeID, Instance string
	Stats            store.Stats // of group 0
	Index, Term      uint64      // the last entry in its state
	Chain            uint64      // the hash over all entries up to it
	Problems         []string
	Ends             []End // how far each group is
}

// End is the last entry in a state, and what the state is of.
type End struct {
	Group   uint32
	Cluster lineage.Cluster
	Index   uint64
	Chain   uint64
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
		if err := d.again((*Dir).Whole); err != nil {
			return res, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return res, err
	}
	if _, err := d.leftovers(); err != nil {
		res.Problems = append(res.Problems, err.Error())
		return res, nil
	}
	for _, group := range d.groups() {
		one, err := d.checkGroup(group)
		if err != nil {
			return res, inGroup(group, err)
		}
		if group == 0 {
			res.Stats, res.Index, res.Term, res.Chain = one.Stats, one.Index, one.Term, one.Chain
		}
		res.Ends = append(res.Ends, End{group, one.Stats.Info.Cluster(), one.Index, one.Chain})
		for _, p := range one.Problems {
			res.Problems = append(res.Problems, inGroup(group, errors.New(p)).Error())
		}
	}
	if len(res.Problems) == 0 {
		res.Problems, err = d.checkNames(d.groups())
	}
	for _, s := range d.Stopped { // what other nodes found wrong with a state, its own files need not show
		if s.Reason == StoppedDamaged || s.Reason == StoppedDiffers {
			res.Problems = append(res.Problems, s.Text+": "+s.Remedy)
		}
	}
	return res, err
}

// checkGroup looks at the files of one group.
func (d *Dir) checkGroup(group uint32) (res CheckResult, err error) {
	for _, name := range []string{logName, stateName} {
		path := d.groupFile(group, name)
		if fi, err := os.Stat(path); err != nil {
			return res, d.noFile(group, name)
		} else if fi.Size() == 0 { // it is made whole under another name
			res.Problems = append(res.Problems, store.Damaged(path, "it is empty").Error())
			continue
		}
		verify := store.VerifyPages
		if name == logName {
			verify = verifyLog
		}
		if err := verify(path); err != nil {
			res.Problems = append(res.Problems, err.Error())
		}
	}
	if len(res.Problems) > 0 {
		return res, nil // there is nothing to look into
	}
	problems, stats, err := store.CheckFile(d.groupFile(group, stateName))
	if err != nil {
		return res, err
	}
	res.Problems, res.Stats = append(res.Problems, problems...), stats
	return res, d.checkReach(group, &res)
}

// checkReach holds the state against the log and the newest snapshot, and if all fits so far, the jobs against their
// schedules.
func (d *Dir) checkReach(group uint32, res *CheckResult) error {
	log, err := raftlog.Open(d.groupFile(group, logName), raftlog.Options{LockTimeout: time.Second, ReadOnly: true})
	if err != nil {
		return err
	}
	defer log.Close()
	st, err := store.Open(d.groupFile(group, stateName), store.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer st.Close()
	if level := st.Info().Level; level > fsm.Level {
		// What was found, or not found, says nothing: this binary does not know what that level added.
		return fmt.Errorf("data directory %s is at feature level %d and this binary knows levels up to %d: "+
			"check it with the newer carillon that wrote it", d.Path, level, fsm.Level)
	}
	snap, err := d.snapshotMeta(group)
	if err != nil {
		return err
	}
	if err := log.Verify(); err != nil {
		res.Problems = append(res.Problems, err.Error())
		return nil
	}
	c := st.Counters()
	res.Index, res.Term, res.Chain = c.Index, c.Term, c.Chain
	if snap.State > c.Index { // the next start takes a snapshot over that was received and not restored
		h, err := d.pending(group, snap.ID)
		switch {
		case err == nil:
			res.Index, res.Term, res.Chain = h.Index, h.Term, h.Chain
		case !errors.Is(err, fs.ErrNotExist):
			res.Problems = append(res.Problems, store.Damaged(d.received(group, snap.ID), err).Error())
			return nil
		}
	}
	if err := reach(log, snap.snapshot, res.Index, res.Term); err != nil {
		res.Problems = append(res.Problems, err.Error())
	}
	if len(res.Problems) > 0 {
		return nil
	}
	count, first, err := scheduler.FindUnscheduled(st, maxUnscheduled)
	for _, u := range first {
		res.Problems = append(res.Problems, u.String())
	}
	if more := count - len(first); more > 0 {
		res.Problems = append(res.Problems, fmt.Sprintf("%d more jobs have no next occurrence, or two", more))
	}
	return err
}

// maxUnscheduled keeps the report readable.
const maxUnscheduled = 200

// namedSnapshot is a snapshot and how its file is called if it was received.
type namedSnapshot struct {
	ID string
	snapshot
}

// received is the file of a snapshot that was received.
func (d *Dir) received(group uint32, id string) string {
	return d.groupFile(group, snapshotsName+"/"+id+".snap")
}

// pending reads a snapshot that was received, and verifies it.
func (d *Dir) pending(group uint32, id string) (fsm.Header, error) {
	f, err := os.Open(d.received(group, id))
	if err != nil {
		return fsm.Header{}, err
	}
	defer f.Close()
	return fsm.CopyStream(io.Discard, f)
}

// snapshotMeta is the newest snapshot's metadata. Opening the snapshot store would tidy it up, and a check changes
// nothing.
func (d *Dir) snapshotMeta(group uint32) (s namedSnapshot, err error) {
	path := d.groupFile(group, snapshotsName+"/snapshot.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		if err = errors.Join(snapshots.Verify(data), json.Unmarshal(data, &s)); err != nil {
			err = store.Damaged(path, err)
		}
	}
	return s, err
}
