package datadir

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/fsm/snapshots"
	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/raftlog"
	"github.com/carillon-scheduler/carillon/store"
)

// RestoreConfig says what is restored where.
type RestoreConfig struct {
	Backup    io.Reader
	Name      string // of the backup, for messages
	DataDir   string // must not exist or be empty
	NodeID    string
	Advertise string // where others will reach the node
	Epoch     uint64 // at least this one; 0: the one after the backup's
	Version   string
	Now       time.Time
	// KeepTokens leaves the API tokens of the backup as they are. Otherwise they are suspended: one that was revoked
	// since the backup was made would let its holder in again.
	KeepTokens bool
	// Passphrase opens the keys of a secure cluster that the backup has; nil: they are left out, and the new cluster is
	// plain until it gets keys.
	Passphrase []byte

	Step faultpoint.Step
}

// Restored says what a restore made.
type Restored struct {
	DataDir     string      `json:"data_dir"`
	NodeID      string      `json:"node_id"`
	ClusterID   string      `json:"cluster_id"`
	FromCluster string      `json:"from_cluster"`
	Epoch       uint64      `json:"epoch"`
	Index       uint64      `json:"index"`
	Jobs        uint64      `json:"jobs"`
	OpenRuns    int         `json:"open_runs"`
	At          job.Instant `json:"at"`                  // of what time the backup is
	Suspended   int         `json:"suspended,omitempty"` // tokens that are no longer valid
	Secrets     int         `json:"secrets,omitempty"`   // how many there are
	// Keys says what became of the keys of a secure cluster: KeysRestored, KeysLeftOut, or KeysNone if it has none.
	Keys string `json:"keys"`
	CA   string `json:"ca,omitempty"` // the hash of the new CA

	Groups  uint32    `json:"groups,omitempty"`  // how many groups of jobs a cluster with several has
	Renamed []Renamed `json:"renamed,omitempty"` // jobs whose name another one has
}

// What becomes of the keys of a backup.
const (
	KeysNone     = "none"
	KeysLeftOut  = "left_out"
	KeysRestored = "restored"
)

// Restore makes the data directory of a new cluster of one node out of a backup.
//
// The state becomes a raft snapshot with an empty log behind it, so that every joiner must take it as a whole. The
// cluster is a new one in every respect that others look at: another cluster id, another instance id, no member but
// this node. And it gives out nothing that the old one may have given out since the backup: the epoch is in the high
// bits of fences and job numbers. It is on hold.
//
// node.json is written first and says that a restore is under way, and last without that: whatever is cut off between
// does not open.
func Restore(c RestoreConfig) (r Restored, err error) {
	if err := CheckNodeID(c.NodeID); err != nil {
		return r, err
	}
	if err := CheckAddress(c.Advertise); err != nil {
		return r, job.Invalid("--advertise", "use host:port at which others will reach it, such as n1:7400", "%v",
			err)
	}
	// Whatever can be refused is refused before the directory is touched.
	in := bufio.NewReaderSize(c.Backup, 1<<20)
	held, had, err := c.unlock(in)
	if err != nil {
		return r, err
	}
	parts := backupParts{in: in, name: c.Name, read: c.readHeader}
	h, err := parts.header()
	if err != nil {
		return r, err
	}
	if held != nil && held.Current.Cluster() != h.ClusterID {
		return r, fmt.Errorf("%s contains the keys of cluster %s and the state of cluster %s: take another backup",
			c.Name, held.Current.Cluster(), h.ClusterID)
	}
	d, made, err := emptyDir(c.DataDir)
	if err != nil {
		return r, err
	}
	lock, err := d.lockOffline(dirlock.Options{Create: true})
	if err != nil {
		return r, err
	}
	defer lock.Close()
	defer func() {
		if err != nil && !errors.Is(err, faultpoint.ErrCutOff) {
			err = errors.Join(err, d.wipe(made))
		}
	}()
	if err := d.wipe(false); err != nil { // of a restore that was cut off
		return r, err
	}
	d.Identity = newIdentity(c.NodeID, c.Version)
	d.Restoring = true
	if err := d.Save(); err != nil {
		return r, err
	}
	if err := c.Step.At("begun"); err != nil {
		return r, err
	}
	states := []*restoredState{{h: h}}
	for {
		if err := d.writeState(&c, h, parts.body(h)); err != nil {
			return r, err
		}
		if !parts.more() {
			break
		}
		if h, err = parts.header(); err != nil {
			return r, err
		}
		states = append(states, &restoredState{h: h})
	}
	if err := c.Step.At("state written"); err != nil {
		return r, err
	}
	if err := d.refound(&c, states, held, &r); err != nil {
		return r, err
	}
	if held == nil {
		r.Keys = had
	}
	d.ClusterIdentity, d.Restoring = ClusterIdentity{ClusterID: r.ClusterID, Epoch: r.Epoch, CA: r.CA}, false
	dirs := []string{d.Path, filepath.Dir(d.Path)} // the directory itself may be new
	for _, s := range states {
		dirs = append(dirs, d.File(GroupDir(s.h.Group)))
	}
	for _, dir := range dirs {
		if err := store.SyncDir(dir); err != nil {
			return r, err
		}
	}
	return r, d.Save()
}

// withRoom says what to do about an error of a disk that has no room.
func withRoom(err error) error {
	for _, no := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, no) {
			return fmt.Errorf("%w: make room on that disk; nothing was changed", err)
		}
	}
	return err
}

// writeState writes the state file of a group.
func (d *Dir) writeState(c *RestoreConfig, h fsm.Header, body io.Reader) error {
	dir, file := d.File(GroupDir(h.Group)), d.groupFile(h.Group, stateName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dirError(dir, err)
	}
	err := h.WriteState(file, body)
	var disk *fs.PathError
	switch {
	case errors.As(err, &disk) && disk.Path == file:
		return withRoom(err)
	case err != nil:
		return fmt.Errorf("%s: %w; get another copy of the backup, or take another backup", c.Name,
			inGroup(h.Group, err))
	}
	return nil
}

func (c *RestoreConfig) readHeader(in io.Reader) (fsm.Header, error) {
	h, err := fsm.ReadHeader(in)
	name := c.Name
	switch {
	case err == nil:
		err = fsm.CheckLevel(h.Level, 0)
		if err != nil {
			err = fmt.Errorf("%s was taken from a cluster at feature level %d, and this binary supports levels up "+
				"to %d: restore it with the carillon that took it, or a newer one", name, h.Level, fsm.Level)
		}
	case h.Format > store.Format:
		err = fmt.Errorf("%s has format %d, and this binary reads format %d: restore it with the carillon that took "+
			"it, or a newer one",
			name, h.Format, store.Format)
	default:
		err = fmt.Errorf("%s is not a backup, or its beginning is damaged (%w): "+
			"give a file that `carillon backup` wrote", name, err)
	}
	return h, err
}

// emptyDir makes sure that a directory is there and holds nothing, or only what a restore left that was cut off. made
// says that it was not there.
func emptyDir(path string) (d *Dir, made bool, err error) {
	if path == "" {
		return nil, false, job.Invalid("--data-dir", "name a directory that does not exist or is empty", "which data "+
			"directory?")
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, false, err
	}
	d = &Dir{Path: path}
	if data, err := os.ReadFile(d.File(NodeFile)); err == nil && json.Unmarshal(data, &d.Identity) == nil &&
		d.Restoring {
		return d, false, nil
	}
	names, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		made = true
	case err != nil:
		return nil, false, dirError(path, err)
	}
	for _, n := range names {
		if n.Name() != LockFile && n.Name() != "lost+found" {
			return nil, false, fmt.Errorf("data directory %s is not empty (%s), and a backup is restored into a new "+
				"one: choose another --data-dir, or move this one away", path, n.Name())
		}
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, false, dirError(path, err)
	}
	return d, made, nil
}

// wipe removes what a restore wrote, node.json last, and the directory itself if that was not there before.
func (d *Dir) wipe(dir bool) error {
	var errs []error
	for group := range uint32(job.MaxGroups + 1) {
		errs = append(errs, os.RemoveAll(d.File(GroupDir(group))))
	}
	for _, name := range []string{keys.Dir, NodeFile + ".tmp", NodeFile} {
		errs = append(errs, os.RemoveAll(d.File(name)))
	}
	if dir {
		errs = append(errs, os.RemoveAll(d.File(LockFile)), os.Remove(d.Path))
	}
	return errors.Join(errs...)
}

// refound makes the states those of a new cluster, and the logs and the snapshots that go with them.
func (d *Dir) refound(c *RestoreConfig, states []*restoredState, held *keys.Authorities, r *Restored) (err error) {
	defer func() {
		for _, s := range states {
			err = errors.Join(err, s.close())
		}
	}()
	for _, s := range states {
		if err := s.open(d, c.Name); err != nil {
			return err
		}
	}
	if err := fitTogether(states, c.Name); err != nil {
		return err
	}
	control := states[0]
	*r = Restored{
		DataDir: c.DataDir, NodeID: c.NodeID, ClusterID: strings.ToLower(rand.Text()), FromCluster: control.h.ClusterID,
		Index: control.h.Index, Groups: control.h.Groups,
	}
	for _, s := range states {
		count := s.st.Counters()
		r.Jobs, r.OpenRuns = r.Jobs+count.Jobs, r.OpenRuns+s.st.OpenRunCount()
		r.At = earlier(r.At, job.Instant(count.Mark), s.h.Group <= 1) // with several, group 0 has no jobs
	}
	control.st.EachSecret(func(store.SecretKey, *store.Secret) { r.Secrets++ })
	var sec store.Security // the keys of the old cluster are not in its backup
	if held != nil {
		if sec, err = d.refoundKeys(*held, control.st.Info().Security, c.Now, r); err != nil {
			return err
		}
		if err := c.Step.At("keys written"); err != nil {
			return err
		}
	}
	if err := c.changeStates(d, states, sec, r); err != nil {
		return err
	}
	if err := c.Step.At("state changed"); err != nil {
		return err
	}
	for _, s := range states {
		if err := d.beginLog(c, s); err != nil {
			return err
		}
	}
	return nil
}

// beginLog makes an empty log behind a state, and the snapshot that the state is.
func (d *Dir) beginLog(c *RestoreConfig, s *restoredState) error {
	count := s.st.Counters()
	// Raft must not begin below the term of what was applied: it would vote in terms that are over.
	log, err := raftlog.Open(d.groupFile(s.h.Group, logName), raftlog.Options{LockTimeout: time.Second})
	if err != nil {
		return err
	}
	err = raftlog.SetTerm(log, count.Term)
	err = cmp.Or(err, log.Close())
	if err == nil {
		err = c.Step.At("log made")
	}
	if err != nil {
		return err
	}
	snaps, err := snapshots.New(d.groupFile(s.h.Group, snapshotsName), s.st)
	if err != nil {
		return err
	}
	conf := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: replica.ID(c.NodeID, s.number),
		Address: raft.ServerAddress(c.Advertise)}}}
	sink, err := snaps.Create(1, count.Index, count.Term, conf, count.Index, nil)
	if err != nil {
		return err
	}
	if err := sink.Close(); err != nil {
		return err
	}
	return c.Step.At("snapshot made")
}

// changeStates is everything that a restore changes in the states. In that of each group it is one transaction; names
// over several groups come after it.
func (c *RestoreConfig) changeStates(d *Dir, states []*restoredState, sec store.Security, r *Restored) error {
	var err error
	if r.Renamed, err = renameTwins(states); err != nil {
		return err
	}
	d.Replicas = nil
	for _, s := range states[1:] {
		d.Replicas = append(d.Replicas, Replica{Group: s.h.Group, GroupID: s.row.ID, Number: s.number})
	}
	least := c.Epoch // one for all: a replica that has no state yet goes by that of group 0
	for _, s := range states {
		least = max(least, s.st.Info().Epoch+1)
	}
	for _, s := range states {
		err := s.change(func(b *store.Batch) error { return c.change(b, d, states, sec, least, r) })
		if err != nil {
			return inGroup(s.h.Group, err)
		}
	}
	return keepNames(states)
}

func (c *RestoreConfig) change(b *store.Batch, d *Dir, states []*restoredState, sec store.Security, epoch uint64,
	r *Restored) error {
	info := b.Info()
	info.Recovery = "" // it is another cluster
	err := nextEpoch(b, &info, epoch)
	if err == nil {
		err = b.DropNodes()
	}
	if err == nil && info.Group == 0 {
		err = placeAlone(b, states, d)
		if err == nil && !c.KeepTokens {
			r.Suspended, err = b.SuspendTokens("")
		}
		info.Security, r.Epoch = sec, info.Epoch
	}
	info.Hold = store.Hold{On: true, Since: c.Now.UnixMilli(), Cluster: info.ClusterID, Index: b.C.Index}
	info.ClusterID = r.ClusterID
	// What was growing is as it was before: its new groups are not in the backup.
	groups := states[0].h.Groups
	info.Groups, info.Listed, info.Known, info.Want = groups, groups, groups, 0
	b.SetInfo(info)
	return err
}
