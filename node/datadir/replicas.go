package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/store"
)

// Replica is a replica that the node has of a group other than 0. Of that one it has its first for ever.
type Replica struct {
	Group   uint32 `json:"group"`
	GroupID string `json:"group_id"` // drawn when the group was begun
	Number  uint64 `json:"replica"`  // of the node's replicas of the group; no other one ever has it
}

// GroupDir is the directory of a group's files.
func GroupDir(group uint32) string { return groupPrefix + strconv.FormatUint(uint64(group), 10) }

const (
	groupPrefix = "group-"
	removedMark = ".removed-" // follows the name of a directory that is about to be deleted
)

func (d *Dir) groupFile(group uint32, name string) string {
	return d.File(GroupDir(group) + "/" + name)
}

func replicaOf(list []Replica, group uint32) (Replica, bool) {
	i := slices.IndexFunc(list, func(r Replica) bool { return r.Group == group })
	if i < 0 {
		return Replica{}, false
	}
	return list[i], true
}

// AddReplica makes room for a replica: its directory, and then the entry in node.json without which nothing is written
// there. A crash between the two leaves an empty directory, which the next start removes.
func (d *Dir) AddReplica(r Replica, step faultpoint.Step) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Group == 0 || r.GroupID == "" || r.Number < replica.First {
		return fmt.Errorf("replica %d of group %d (%q) cannot be added to a data directory", r.Number, r.Group,
			r.GroupID)
	}
	for _, list := range [][]Replica{d.Replicas, d.Removed} {
		// One that votes again after it was emptied has forgotten its votes.
		if last, ok := replicaOf(list, r.Group); ok && r.Number <= last.Number && !mutant.On(mutant.ReusedReplica) {
			return fmt.Errorf("node %s already had replica %d of group %d: replica %d would vote twice; give it a "+
				"higher number", d.NodeID, last.Number, r.Group, r.Number)
		}
	}
	if has, ok := replicaOf(d.Replicas, r.Group); ok {
		return fmt.Errorf("node %s has replica %d of group %d: remove it first", d.NodeID, has.Number, r.Group)
	}
	dir := d.File(GroupDir(r.Group))
	os.Remove(dir) // of a try that failed; it is empty, or this fails
	if err := os.Mkdir(dir, 0o700); err != nil {
		return dirError(dir, err)
	}
	if err := store.SyncDir(d.Path); err != nil {
		return err
	}
	if err := step.At("directory made"); err != nil {
		return err
	}
	return d.saveReplicas(append(slices.Clone(d.Replicas), r), d.Removed)
}

// RemoveReplica gives a replica up whose files are closed. The entry goes first: a directory is deleted only if
// node.json says that its replica is no more. Its number stays there.
func (d *Dir) RemoveReplica(group uint32, step faultpoint.Step) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := replicaOf(d.Replicas, group)
	if !ok {
		return fmt.Errorf("node %s has no replica of group %d", d.NodeID, group)
	}
	others := func(list []Replica) []Replica {
		return slices.DeleteFunc(slices.Clone(list), func(r Replica) bool { return r.Group == group })
	}
	if err := d.saveReplicas(others(d.Replicas), append(others(d.Removed), r)); err != nil {
		return err
	}
	if err := step.At("entry removed"); err != nil {
		return err
	}
	// Under another name it stands in no one's way, however long that takes.
	old := d.File(GroupDir(group))
	gone := old + removedMark + strconv.FormatUint(r.Number, 10)
	if err := os.Rename(old, gone); err != nil {
		return dirError(old, err)
	}
	if err := step.At("renamed"); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// saveReplicas writes node.json as it is but for the replicas.
func (d *Dir) saveReplicas(replicas, removed []Replica) error {
	id := d.Identity
	if d.cluster != nil {
		id.ClusterIdentity = *d.cluster
	}
	id.Replicas, id.Removed = replicas, removed
	id.Stopped = slices.DeleteFunc(slices.Clone(d.Stopped), func(s Stopped) bool {
		_, has := replicaOf(replicas, s.Group)
		return s.Group != 0 && !has // with its replica that of a group goes
	})
	if err := d.write(id); err != nil {
		return err
	}
	d.Replicas, d.Removed, d.Stopped = replicas, removed, id.Stopped
	return nil
}

// Tidy removes what crashes left: directories of replicas that were being added or removed, and files of a compaction.
// It needs the lock. It refuses, with everything as it was, a directory that lacks a replica or has one too many.
func (d *Dir) Tidy() error {
	left, err := d.leftovers()
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := os.RemoveAll(d.File(name)); err != nil {
			return dirError(d.Path, err)
		}
	}
	for _, group := range d.groups() {
		for _, name := range []string{stateName, logName} {
			os.Remove(d.groupFile(group, name) + CompactExt)
		}
	}
	return nil
}

// leftovers are the directories that crashes left and that no start needs. What no crash leaves is an error.
func (d *Dir) leftovers() (names []string, err error) {
	for _, r := range d.Replicas {
		if _, err := os.Stat(d.File(GroupDir(r.Group))); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("data directory %s has lost %s with replica %d of group %d: put it back as it "+
				"was when the node stopped; if it is gone for good, run `carillon cluster remove %s`, empty the "+
				"data directory and start the node with --join", d.Path, GroupDir(r.Group), r.Number, r.Group, d.NodeID)
		}
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, dirError(d.Path, err)
	}
	for _, e := range entries {
		name, _, removed := strings.Cut(e.Name(), removedMark)
		n, err := strconv.ParseUint(strings.TrimPrefix(name, groupPrefix), 10, 32)
		group := uint32(n)
		if err != nil || GroupDir(group) != name {
			continue
		}
		if removed {
			names = append(names, e.Name())
			continue
		}
		_, has := replicaOf(d.Replicas, group)
		if group == 0 || has {
			continue
		}
		if _, had := replicaOf(d.Removed, group); !had {
			// Without an entry no file is ever made in it.
			if empty, err := isEmpty(d.File(name)); err != nil {
				return nil, dirError(d.Path, err)
			} else if !empty {
				return nil, fmt.Errorf("data directory %s contains files in %s of a replica that its %s does not "+
					"know: one of them was replaced by an older or newer copy; restore the whole directory as it "+
					"was when the node stopped", d.Path, name, NodeFile)
			}
		}
		names = append(names, e.Name())
	}
	return names, nil
}

func isEmpty(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return len(entries) == 0, err
}

// groups are those whose files are there. The directory of a replica that was never started is empty.
func (d *Dir) groups() []uint32 {
	all := []uint32{0}
	for _, r := range d.Replicas {
		if empty, err := isEmpty(d.File(GroupDir(r.Group))); err != nil || !empty {
			all = append(all, r.Group)
		}
	}
	return all
}

// oneGroup refuses a directory with replicas of several groups.
func (d *Dir) oneGroup() error {
	if len(d.Replicas) == 0 {
		return nil
	}
	return fmt.Errorf("data directory %s has replicas of %d groups, and `carillon cluster recover --skip` only "+
		"works with one: use a newer carillon if there is one, or restore a backup", d.Path, 1+len(d.Replicas))
}

// inGroup says which group an error is about, if there may be others.
func inGroup(group uint32, err error) error {
	if err == nil || group == 0 {
		return err
	}
	return fmt.Errorf("group %d: %w", group, err)
}
