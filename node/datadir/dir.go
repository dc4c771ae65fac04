// Package datadir is a node's data directory: whose it is, its lock, its files, and what is done to one while no node
// runs on it (check, compact, recover, restore).
package datadir

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// format is the layout of the data directory. A higher one was written by a newer binary and is refused.
const format = 1

// The files of a data directory. Those of a Raft group are in a directory of its own (GroupDir); the ones that have a
// name here are of group 0, which every node has.
const (
	NodeFile     = "node.json"
	LockFile     = "lock"
	ProcsDir     = "procs" // process groups of shell attempts
	LogFile      = groupPrefix + "0/" + logName
	StateFile    = groupPrefix + "0/" + stateName
	SnapshotsDir = groupPrefix + "0/" + snapshotsName

	logName       = "raft.db"
	stateName     = "state.db"
	snapshotsName = "snapshots"
)

// Identity is node.json: which node this directory belongs to. The instance is random, so that a wiped directory
// is not taken for the one that voted before. A copied one has the same instance: its node id and address give it away.
type Identity struct {
	Format   int    `json:"format"`
	NodeID   string `json:"node_id"`
	Instance string `json:"instance"`
	Created  string `json:"created"` // by which version
	ClusterIdentity

	// Replicas are those of groups other than 0, and Removed the last of each group that was removed: what a number
	// voted must stay known, so none is used again.
	Replicas []Replica `json:"replicas,omitempty"`
	Removed  []Replica `json:"removed_replicas,omitempty"`

	// Stopped is why replicas take no part in their groups any more.
	Stopped []Stopped `json:"stopped,omitempty"`

	// Skips are entries of the log that `carillon cluster recover --skip` said to pass over. They stay here as a record
	// of it.
	Skips []SkippedEntry `json:"skipped_entries,omitempty"`
	// Recovering says that a recovery was begun and not finished: log, state and snapshot may not belong together.
	Recovering bool `json:"recovering,omitempty"`
	// Restoring says the same of a restore.
	Restoring bool `json:"restoring,omitempty"`
	// Rebuilding says that a rebuild was begun and not finished: a part of the files is gone.
	Rebuilding bool `json:"rebuilding,omitempty"`
	// Rejoin is how a node that was rebuilt joins.
	Rejoin *Rejoin `json:"rejoin,omitempty"`
}

// ClusterIdentity is what node.json says about the cluster. A joiner writes it before it takes part in any handshake,
// because its state learns the cluster's id only from the entries that come after that.
type ClusterIdentity struct {
	ClusterID string `json:"cluster_id,omitempty"`
	Epoch     uint64 `json:"epoch,omitempty"`
	Recovery  string `json:"recovery,omitempty"`     // that began the epoch
	Index     uint64 `json:"joined_index,omitempty"` // the log entry with its row
	CA        string `json:"ca,omitempty"`           // hash of the cluster's CA; empty: it is plain

	// Peers are addresses that `carillon cluster recover` was given. They hold against rows up to entry PeersAt.
	Peers   map[string]string `json:"peers,omitempty"`
	PeersAt uint64            `json:"peers_at,omitempty"`

	// Formation is how the nodes of --cluster begin it; nil: it was begun otherwise.
	Formation *Formation `json:"formation,omitempty"`
}

// Cluster is the history that the directory belongs to, before it has a state that says so.
func (c *ClusterIdentity) Cluster() lineage.Cluster {
	return lineage.Cluster{ID: c.ClusterID, Epoch: c.Epoch, Recovery: c.Recovery}
}

// Dir is an opened data directory.
type Dir struct {
	Path string
	Identity
	Fresh bool // nothing was in it

	mu      sync.Mutex       // one at a time writes node.json
	cluster *ClusterIdentity // what SaveCluster wrote; nil: nothing
}

// File is the path of one of the directory's files.
func (d *Dir) File(name string) string { return filepath.Join(d.Path, name) }

// Open makes sure that the directory is there, can be written, and belongs to this node. It says what to do if not.
func Open(path, nodeID, version string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, dirError(path, err)
	}
	d := &Dir{Path: path}
	data, err := os.ReadFile(d.File(NodeFile))
	switch {
	case err == nil:
		return d, d.adopt(data, nodeID)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, dirError(path, err)
	}
	for _, name := range []string{LogFile, StateFile} {
		if _, err := os.Stat(d.File(name)); err == nil {
			return nil, fmt.Errorf("data directory %s contains %s but no %s, so it is not known which node it "+
				"belongs to: restore that file from a copy of the "+
				"directory, or use another --data-dir", path, name, NodeFile)
		}
	}
	d.Fresh = true
	d.Identity = newIdentity(nodeID, version)
	return d, nil
}

func newIdentity(nodeID, version string) Identity {
	return Identity{Format: format, NodeID: nodeID, Instance: strings.ToLower(rand.Text()), Created: version}
}

// readDir reads the identity of a directory that a node was started on before.
func readDir(path string) (*Dir, error) {
	d := &Dir{Path: path}
	data, err := os.ReadFile(d.File(NodeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no %s: give the --data-dir of a node", path, NodeFile)
	}
	if err == nil {
		err = d.adopt(data, "")
	}
	return d, err
}

// Claim writes node.json. It comes after everything that may refuse, so that a refused start leaves an empty directory
// empty.
func (d *Dir) Claim() error {
	if !d.Fresh {
		return nil
	}
	if err := d.Save(); err != nil {
		return err
	}
	d.Fresh = false
	return nil
}

// again reads node.json once more, with the lock in hand: the process that had the directory before may have changed it
// after it was read. fit refuses what cannot be worked with.
func (d *Dir) again(fit func(*Dir) error) error {
	data, err := os.ReadFile(d.File(NodeFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.Fresh:
		return nil
	case err != nil:
		return dirError(d.Path, err)
	}
	id := d.NodeID
	d.Identity, d.Fresh = Identity{}, false
	if err := d.adopt(data, id); err != nil {
		return err
	}
	return fit(d)
}

// Save writes node.json.
func (d *Dir) Save() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.write(d.Identity)
}

// SaveCluster replaces what node.json says about the cluster. What was read at open stays as it is in memory.
func (d *Dir) SaveCluster(c ClusterIdentity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := d.Identity
	id.ClusterIdentity = c
	if err := d.write(id); err != nil {
		return err
	}
	d.cluster = &c
	return nil
}

func (d *Dir) write(id Identity) error {
	data, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(d.File(NodeFile), append(data, '\n')); err != nil {
		return dirError(d.Path, err)
	}
	return nil
}

func (d *Dir) adopt(data []byte, nodeID string) error {
	damaged := func(why any) error {
		return fmt.Errorf("%s is damaged (%v): restore it from a copy of the directory, or remove the data directory "+
			"and let the node rejoin",
			d.File(NodeFile), why)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&d.Identity); err != nil {
		return damaged(err)
	}
	if d.Format > format {
		return fmt.Errorf("data directory %s has format %d, and this binary knows formats up to %d: start it with "+
			"the newer carillon that wrote it",
			d.Path, d.Format, format)
	}
	if d.Format < 1 || d.NodeID == "" || d.Instance == "" {
		return damaged("fields are missing")
	}
	if nodeID != "" && d.NodeID != nodeID {
		return fmt.Errorf("data directory %s belongs to node %q, not to %q: start with --node-id %s, or use another "+
			"--data-dir",
			d.Path, d.NodeID, nodeID, d.NodeID)
	}
	return nil
}

// Whole refuses a directory in which a recovery or a restore was cut off.
func (d *Dir) Whole() error {
	switch {
	case d.Recovering:
		return fmt.Errorf("a recovery of data directory %s was interrupted: run `carillon cluster recover` again",
			d.Path)
	case d.Restoring:
		return fmt.Errorf("a restore into data directory %s was interrupted: run the same `carillon restore` again",
			d.Path)
	case d.Rebuilding:
		return fmt.Errorf("a rebuild of data directory %s was interrupted: run `carillon node rebuild` again", d.Path)
	}
	return nil
}

// checkLogLost refuses a state without a log before an empty log is put beside it. The log is made first, so that no
// crash leaves this behind: the file was removed.
func (d *Dir) checkLogLost(group uint32) error {
	if _, err := os.Stat(d.groupFile(group, logName)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(d.groupFile(group, stateName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("data directory %s has lost its %s: put the file back, restore a backup, or remove the "+
		"directory and let the node rejoin",
		d.Path, logName)
}

// dirError explains why a directory cannot be used.
func dirError(path string, err error) error {
	if fi, serr := os.Stat(path); serr == nil && !fi.IsDir() {
		return fmt.Errorf("%s is not a directory: choose another --data-dir", path)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("no permission to use data directory %s (%w): give it to the user that runs carillon, or "+
			"choose another --data-dir", path, err)
	}
	return fmt.Errorf("data directory %s: %w", path, err)
}

// writeFile puts a small file in place whole or not at all.
func writeFile(path string, data []byte) (err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = cmp.Or(err, f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return err
	}
	return store.SyncDir(filepath.Dir(path))
}

// CheckNodeID refuses what cannot be a node's id.
func CheckNodeID(id string) error {
	if id == "" {
		return job.Invalid("--node-id", "give the node a name, such as n1", "a node needs an id")
	}
	bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/\"'`, r) }
	if len(id) > 64 || strings.ContainsFunc(id, bad) {
		return job.Invalid("--node-id", "use at most 64 letters, digits, dots and dashes", "%q cannot be a node id", id)
	}
	return nil
}

// CheckAddress refuses an address that other nodes could not dial.
func CheckAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() || port == "" || port == "0" {
		return errors.New(addr + " is not an address that others can dial")
	}
	return nil
}

// CheckFileSystem refuses a data directory on which the lock may be granted twice: two processes that write to the same
// log vote twice and lose what was acknowledged. It comes before the directory is made.
func CheckFileSystem(path string, of dirlock.FileSystem, allowShared bool) error {
	switch kind, name, err := of(path); {
	case err != nil:
		return dirError(path, err)
	case kind == dirlock.Shared && !allowShared:
		return dirlock.Refuse("data directory", path, name, "--data-dir")
	}
	return nil
}

// LockOptions say how a node takes the lock of its directory.
type LockOptions struct {
	FileSystem dirlock.FileSystem
	Wait       time.Duration // for a holder that is about to end
	Beat       time.Duration // between two changes of the record in the lock file
	// Fatal is called if the directory is taken by another process. It ends this one: as after a failing write, what is
	// in memory is no longer what is on the disk.
	Fatal func(error)
}

// Lock takes the lock of a node's directory.
func (d *Dir) Lock(o LockOptions) (*dirlock.Lock, error) {
	lock, err := d.lock(o.FileSystem, dirlock.Options{Wait: o.Wait, Create: true, Every: o.Beat,
		Taken: func(e *dirlock.HeldError) {
			o.Fatal(fmt.Errorf("another process took data directory %s while this one did not write to its lock "+
				"file: it is %w",
				d.Path, e))
		}})
	if err != nil {
		return nil, err
	}
	if err := d.again((*Dir).Whole); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

func (d *Dir) lock(of dirlock.FileSystem, o dirlock.Options) (lock *dirlock.Lock, err error) {
	if o.Kind, _, err = of(d.Path); err != nil {
		return nil, dirError(d.Path, err)
	}
	lock, err = dirlock.Open(d.File(LockFile), o)
	switch held := new(dirlock.HeldError); {
	case errors.As(err, &held):
		return nil, fmt.Errorf("data directory %s is %w: stop that one, or choose another --data-dir", d.Path, held)
	case errors.Is(err, fs.ErrPermission):
		return nil, dirError(d.Path, err)
	}
	return lock, err
}

// lockOffline takes the lock for a command that works without a node, on any file system. It comes before the first
// look at the files: those of a living process change while they are read.
func (d *Dir) lockOffline(o dirlock.Options) (*dirlock.Lock, error) {
	return d.lock(dirlock.Inspect, o)
}
