package datadir

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Recovered says what a recovery did.
type Recovered struct {
	NodeID string   `json:"node_id"`
	Alone  bool     `json:"alone"` // the node begins again without the others
	Lost   []string `json:"lost"`  // the members that are none any more
	Epoch  uint64   `json:"epoch"`
	Index  uint64   `json:"index"` // the last log entry in the state
	// Unsure is how many entries of the log were taken for committed without a proof that they were.
	Unsure uint64 `json:"unsure_entries"`
	// KeysLost says that the keys of a secure cluster are not in the directory: the cluster is plain, and may be made
	// secure again with new ones.
	KeysLost bool `json:"keys_lost,omitempty"`
	// NewKey says that the node's own key was not there, and that it has another one. The cluster's were.
	NewKey bool `json:"new_key,omitempty"`
	// Renamed are jobs whose name another one has: replicas of several groups end at different moments.
	Renamed []Renamed `json:"renamed,omitempty"`

	recovery string // see lineage.Cluster
}

// Recover mends a data directory that no node has open. peers are node ids and addresses.
//
// If they name all members, it only notes where those are: addresses are where raft dials, not who votes, so nothing
// can be lost by it. It is done on each node, which then finds the others, and the leader writes the new addresses into
// the log.
//
// If they name this node alone, the others are given up: their part in the log that this one does not have is lost, and
// what it has beyond what was committed becomes true. The epoch is raised, so that nodes that were not part of this are
// refused until their directories are empty: two halves of a cluster must not both go on. Several survivors are not
// supported on purpose. Their logs may end differently, and without the old quorum it cannot be told which end counts;
// take the one that is furthest and let the others join.
func Recover(dir string, peers map[string]string, log *slog.Logger) (r Recovered, err error) {
	d, lock, err := openStopped(dir, offlineWait, (*Dir).recoverable)
	if err != nil {
		return r, err
	}
	defer lock.Close()
	r.NodeID = d.NodeID
	for id, addr := range peers {
		if err := cmp.Or(CheckNodeID(id), CheckAddress(addr)); err != nil {
			return r, job.Invalid("--peers", "use ID=HOST:PORT of every remaining node", "%s=%s: %v", id, addr, err)
		}
	}
	if _, ok := peers[d.NodeID]; !ok {
		return r, job.Invalid("--peers", "name this node too, with the address that it will have",
			"node %s, whose data directory this is, is not among them", d.NodeID)
	}
	var failed error
	m := &mending{d: d, open: func(group uint32) (*Files, error) {
		return d.openOffline(group, log, func(err error) { failed = err })
	}}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := m.add(0, replica.First); err != nil {
		return r, err
	}
	f, conf, last := m.files[0], m.conf, m.states[0].last
	if last == 0 || len(conf.Servers) == 0 {
		return r, fmt.Errorf("%s is not part of a cluster: there is nothing to recover", dir)
	}
	var all []string
	for _, s := range conf.Servers {
		all = append(all, replica.Node(s.ID))
	}
	slices.Sort(all)
	given := slices.Sorted(maps.Keys(peers))
	switch {
	case slices.Equal(all, given) && len(all) > 1 && !d.Recovering:
		d.Peers, d.PeersAt = peers, last
		r.Index = f.State.Counters().Index
		log.Warn("this node looks for the members at the new addresses; the leader will write them into the log",
			"peers", peers)
		return r, d.Save()
	case len(given) > 1:
		return r, fmt.Errorf("--peers names %s, but the members are %s: name all of them, on each node, to record "+
			"their new addresses; or only node %s, to begin again without the others, which must then join with "+
			"empty data directories",
			strings.Join(given, ", "), strings.Join(all, ", "), d.NodeID)
	}
	r.Alone = true
	r.Lost = slices.DeleteFunc(all, func(id string) bool { return id == d.NodeID })
	log.Warn("recovery: this node begins again without the others; what only they had is lost, and they must rejoin "+
		"with empty data directories",
		"node", d.NodeID, "lost", r.Lost)
	err = m.beginAgain(peers[d.NodeID], &r)
	if failed != nil {
		err = failed
	}
	return r, err
}

// offlineWait is how long a command waits for a process that is about to end.
const offlineWait = time.Second

// openOffline opens the files for a command that works without a node.
func (d *Dir) openOffline(group uint32, log *slog.Logger, fatal func(error)) (*Files, error) {
	return d.OpenFiles(group, FileOptions{State: store.Options{LockTimeout: offlineWait}, Logger: log, Fatal: fatal,
		Trusting: d.Recovering}) // a recovery that was cut off leaves files that do not fit together
}

// openStopped takes the data directory of a node that is not running, and keeps others out of it, waiting for a while
// for one that ends. fit refuses a directory that is not what the caller can work with.
func openStopped(dir string, wait time.Duration, fit func(*Dir) error) (*Dir, *dirlock.Lock, error) {
	d, err := readDir(dir)
	if err == nil {
		err = fit(d)
	}
	if err != nil {
		return nil, nil, err
	}
	lock, err := d.lockOffline(dirlock.Options{Wait: wait, Create: true})
	if err != nil {
		return nil, nil, err
	}
	if err = d.again(fit); err == nil {
		err = d.checkThere()
	}
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	return d, lock, nil
}

// checkThere refuses a directory that lacks a replica, or one of its files.
func (d *Dir) checkThere() error {
	if _, err := d.leftovers(); err != nil {
		return err
	}
	for _, group := range d.groups() {
		for _, name := range []string{logName, stateName} {
			if _, err := os.Stat(d.groupFile(group, name)); err != nil {
				return d.noFile(group, name)
			}
		}
	}
	return nil
}

func (d *Dir) noFile(group uint32, name string) error {
	return fmt.Errorf("%s holds no %s/%s: it was never started, or the file was lost", d.Path, GroupDir(group), name)
}

// mendable is fit for what changes the log or the members.
func (d *Dir) mendable() error { return cmp.Or(d.oneGroup(), d.recoverable()) }

// recoverable is fit for a recovery: one that was cut off is gone on with.
func (d *Dir) recoverable() error {
	if !d.Restoring {
		return nil
	}
	return d.Whole()
}

// end is the newest configuration that this node has heard of, and the end of its log.
func (f *Files) end() (conf raft.Configuration, last, term uint64, err error) {
	snap, err := f.newestSnapshot()
	if err != nil {
		return conf, 0, 0, err
	}
	if snap != nil {
		conf, last, term = snap.Configuration, snap.Index, snap.Term
	}
	first, err := f.Log.FirstIndex()
	if err != nil {
		return conf, 0, 0, err
	}
	end, err := f.Log.LastIndex()
	if err != nil {
		return conf, 0, 0, err
	}
	for i := max(first, last+1); i <= end && i > 0; i++ {
		var l raft.Log
		if err := f.Log.GetLog(i, &l); err != nil {
			return conf, 0, 0, fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Type == raft.LogConfiguration {
			conf = raft.DecodeConfiguration(l.Data)
		}
		last, term = l.Index, l.Term
	}
	// A state that was received may be further on than the log that came with it. Entries that are numbered anew from
	// the end of the log would be taken for ones that are in it.
	if i, t, err := f.Snapshots.State(); err != nil || t != 0 && i > last {
		return conf, i, t, err
	}
	return conf, last, term, nil
}

// mending is a directory that begins again without the other nodes: with each of its groups, group 0 first.
type mending struct {
	d      *Dir
	open   func(group uint32) (*Files, error)
	conf   raft.Configuration // the newest of group 0 that this node has heard of
	files  []*Files
	states []*restoredState
}

func (m *mending) close() (err error) {
	for _, f := range m.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// add opens the files of a group.
func (m *mending) add(group uint32, number uint64) error {
	f, err := m.open(group)
	if err != nil {
		return err
	}
	m.files = append(m.files, f)
	conf, last, term, err := f.end()
	if err != nil {
		return inGroup(group, err)
	}
	if group == 0 {
		m.conf = conf
	}
	m.states = append(m.states, &restoredState{h: fsm.Header{Group: group}, st: f.State, number: number, last: last,
		term: term})
	return nil
}

// addGroups opens the files of all groups of jobs. One that this node has no state of cannot go on here, and the names
// of the others' jobs would not be whole without it.
func (m *mending) addGroups() error {
	var rows []store.GroupRow
	err := m.files[0].State.View(func(v *store.View) (err error) {
		rows, err = v.Groups()
		return err
	})
	var lost []string
	for _, row := range rows {
		if row.State != store.GroupActive {
			break // it has no jobs yet, and is made anew
		}
		has, _ := replicaOf(m.d.Replicas, row.Number)
		i := slices.IndexFunc(row.Replicas, func(r store.GroupReplica) bool {
			return r.Node == m.d.NodeID && r.Number == has.Number
		})
		if i < 0 || !slices.Contains(m.d.groups(), row.Number) {
			lost = append(lost, strconv.FormatUint(uint64(row.Number), 10))
			continue
		}
		if err := m.add(row.Number, has.Number); err != nil {
			return err
		}
		s := m.states[len(m.states)-1]
		if s.row = row; s.st.Info().ClusterID == "" {
			lost = append(lost, strconv.FormatUint(uint64(row.Number), 10))
		}
	}
	if len(lost) > 0 {
		return fmt.Errorf("data directory %s has no state of group %s: recover a node that has the state of every "+
			"group, or restore a backup", m.d.Path, strings.Join(lost, ", "))
	}
	return err
}

// beginAgain makes a cluster of one out of what this node has. It is what raft.RecoverCluster does, with the state file
// in the place of a snapshot (that would read the state into a second state machine and leave it unusable). A run that
// is cut off anywhere is repeated: until it is complete no node opens the directory.
func (m *mending) beginAgain(addr string, r *Recovered) error {
	if err := m.addGroups(); err != nil {
		return err
	}
	d := m.d
	d.Peers, d.PeersAt, d.Recovering = nil, 0, true
	if err := d.Save(); err != nil {
		return err
	}
	r.recovery = strings.ToLower(rand.Text())
	least := uint64(0) // one epoch for all: a replica that has no state yet goes by that of group 0
	for i, f := range m.files {
		s := m.states[i]
		unsure, err := f.applyRest(s.last)
		if err != nil {
			return inGroup(s.h.Group, err)
		}
		r.Unsure += unsure
		least = max(least, s.st.Info().Epoch+1)
	}
	for _, s := range d.Stopped { // this side is the right one, says who does this
		least = max(least, s.Epoch+1)
	}
	if err := m.files[0].forgetKeys(d, r); err != nil {
		return err
	}
	var err error
	if r.Renamed, err = renameTwins(m.states); err != nil {
		return err
	}
	for i, f := range m.files {
		if err := f.raiseEpoch(d, m.states, least, r); err != nil {
			return inGroup(m.states[i].h.Group, err)
		}
	}
	if err := keepNames(m.states); err != nil {
		return err
	}
	for i, f := range m.files {
		if err := f.cutLog(d.NodeID, addr, m.states[i]); err != nil {
			return inGroup(m.states[i].h.Group, err)
		}
	}
	d.Recovering, d.Stopped, d.Formation = false, nil, nil
	return d.Save()
}

const recoverBatch = 256

// applyRest applies what the log has and the state has not, and says how many entries that are.
func (f *Files) applyRest(last uint64) (unsure uint64, err error) {
	applied, _ := f.FSM.Applied()
	if applied < last {
		unsure = last - applied
	}
	var batch []*raft.Log
	flush := func() error {
		if len(batch) > 0 {
			for _, a := range f.FSM.ApplyBatch(batch) {
				if err, ok := a.(error); ok {
					return fmt.Errorf("an entry of the log cannot be applied: %w", err)
				}
			}
		}
		batch = nil
		return nil
	}
	for i := applied + 1; i <= last; i++ {
		l := new(raft.Log)
		if err := f.Log.GetLog(i, l); errors.Is(err, raft.ErrLogNotFound) {
			// the newest snapshot has it, and the state has what that has: only barriers and no-ops are missing
			continue
		} else if err != nil {
			return unsure, fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Type == raft.LogCommand || l.Type == raft.LogConfiguration {
			batch = append(batch, l)
		}
		if len(batch) == recoverBatch {
			if err := flush(); err != nil {
				return unsure, err
			}
		}
	}
	return unsure, flush()
}

// cutLog makes the state as it is now the newest snapshot, under a configuration of this node alone, and empties the
// log: what was changed in the state is in no entry of it, and every joiner must take the state as a whole.
func (f *Files) cutLog(self, addr string, s *restoredState) error {
	conf := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: replica.ID(self, s.number),
		Address: raft.ServerAddress(addr)}}}
	last, term := s.end()
	sink, err := f.Snapshots.Create(1, last, term, conf, last, nil)
	if err != nil {
		return err
	}
	if err := sink.Close(); err != nil {
		return err
	}
	first, err := f.Log.FirstIndex()
	if err != nil {
		return err
	}
	if end, err := f.Log.LastIndex(); err != nil {
		return err
	} else if first > 0 && end >= first {
		return f.Log.DeleteRange(first, end)
	}
	return nil
}

// forgetKeys makes a cluster plain whose keys are not there: without the key of its CA no node could ever join it. It
// is never done behind the operator's back: a node is then refused that is started as one of a secure cluster.
func (f *Files) forgetKeys(d *Dir, r *Recovered) error {
	if f.State.Info().Security.CA == "" && d.CA == "" {
		return nil
	}
	missing := func(name string) (bool, error) {
		_, err := os.Stat(filepath.Join(d.File(keys.Dir), name))
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return false, err
	}
	if lost, err := missing(keys.ClusterFile); err != nil || !lost {
		if err == nil {
			r.NewKey, err = missing(keys.NodeFile)
		}
		if err != nil || !r.NewKey {
			return err
		}
		return d.newKey()
	}
	r.KeysLost = true
	d.CA = ""
	return os.RemoveAll(d.File(keys.Dir)) // a certificate that none vouches for
}

// EpochShift is where the epoch is in fences and job numbers, behind the group: what is given out after a recovery is
// above everything that the lost members may have given out.
const EpochShift = job.EpochShift

// maxEpoch keeps fences below 2^53: many readers of JSON lose digits of a larger number.
const maxEpoch = 1<<(fsm.FenceBits-EpochShift) - 1

// nextEpoch raises the epoch, at least to the one given. What was given out before it stays below everything that is
// given out after it.
func nextEpoch(b *store.Batch, info *store.Info, least uint64) error {
	info.Row = store.GroupRow{} // it names replicas that are no more
	next := max(info.Epoch+1, least)
	if next > maxEpoch {
		return fmt.Errorf("epoch %d is above the highest possible one, %d", next, maxEpoch)
	}
	return b.RaiseEpoch(info, next)
}

// raiseEpoch makes the state that of a cluster of one.
func (f *Files) raiseEpoch(d *Dir, states []*restoredState, least uint64, r *Recovered) error {
	b, err := f.State.Begin()
	if err != nil {
		return err
	}
	info := b.Info()
	if err := nextEpoch(b, &info, least); err != nil {
		b.Rollback()
		return err
	}
	if r.KeysLost {
		info.Security = store.Security{}
	}
	info.Recovery = r.recovery
	b.SetInfo(info)
	if info.Group != 0 {
		return b.Commit()
	}
	var changed []store.Node
	err = b.EachNode(func(n store.Node) {
		switch {
		case n.ID != d.NodeID && !n.Removed:
			n.Removed, n.GivenUp, n.Leaving, n.Index = true, true, false, b.C.Index
		case (r.KeysLost || r.NewKey) && n.ID == d.NodeID && n.Key != "":
			n.Key, n.Leaving = "", false // it gets another one
		case n.ID == d.NodeID && n.Leaving:
			n.Leaving = false // there is no other one to go on
		default:
			return
		}
		changed = append(changed, n)
	})
	for _, n := range changed {
		if err == nil {
			err = b.PutNode(n)
		}
	}
	if err == nil {
		err = placeAlone(b, states, d)
	}
	if err != nil {
		b.Rollback()
		return err
	}
	r.Epoch, r.Index = info.Epoch, b.C.Index
	return b.Commit()
}
