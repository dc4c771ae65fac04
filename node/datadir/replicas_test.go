package datadir

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/store"
)

var quiet = slog.New(slog.DiscardHandler)

// newDir is a directory that a node was started on.
func newDir(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(t.TempDir(), "n1", "v")
	if err == nil {
		err = d.Claim()
	}
	if err != nil {
		t.Fatal(err)
	}
	begin(t, d, 0)
	return d
}

// begin makes the files of a group, as its first start does.
func begin(t *testing.T, d *Dir, group uint32) {
	t.Helper()
	f, err := d.OpenFiles(group, FileOptions{State: store.Options{NoSync: true}, Logger: quiet,
		Fatal: func(err error) { t.Error(err) }})
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// restart opens a directory as the next start of its node does.
func restart(t *testing.T, d *Dir) *Dir {
	t.Helper()
	next, err := Open(d.Path, "n1", "v")
	if err == nil {
		err = next.Tidy()
	}
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func add(t *testing.T, d *Dir, group uint32, number uint64) {
	t.Helper()
	if err := d.AddReplica(Replica{group, "g", number}, nil); err != nil {
		t.Fatal(err)
	}
}

// dirs are the directories of groups.
func dirs(t *testing.T, d *Dir) string {
	t.Helper()
	all, err := filepath.Glob(d.File(groupPrefix + "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i] = filepath.Base(all[i])
	}
	return strings.Join(all, " ")
}

func cutOffAt(at string) faultpoint.Step {
	return func(name string) error {
		if name == at {
			return faultpoint.ErrCutOff
		}
		return nil
	}
}

func wants(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v: want something about %q", err, w)
		}
	}
}

func TestAddReplicaCutOff(t *testing.T) {
	d := newDir(t)
	add(t, d, 1, 1)
	r := Replica{3, "g3", 7}
	if err := d.AddReplica(r, cutOffAt("directory made")); !errors.Is(err, faultpoint.ErrCutOff) {
		t.Fatal(err)
	}
	if got := dirs(t, d); got != "group-0 group-1 group-3" || len(d.Replicas) != 1 {
		t.Fatalf("%s, %v", got, d.Replicas)
	}
	next := restart(t, d)
	if got := dirs(t, next); got != "group-0 group-1" || len(next.Replicas) != 1 {
		t.Errorf("after a start: %s, %v", got, next.Replicas)
	}
	if err := next.AddReplica(r, cutOffAt("directory made")); !errors.Is(err, faultpoint.ErrCutOff) {
		t.Fatal(err)
	}
	if err := next.AddReplica(r, nil); err != nil { // after a try that failed
		t.Fatal(err)
	}
	if next = restart(t, next); !slices.Equal(next.Replicas, []Replica{{1, "g", 1}, r}) || len(next.Removed) > 0 {
		t.Errorf("%+v", next.Identity)
	}
	begin(t, next, 3)
}

func TestRemoveReplicaCutOff(t *testing.T) {
	for at, left := range map[string]string{
		"entry removed": "group-0 group-1 group-3", "renamed": "group-0 group-1 group-3.removed-7", "": "group-0 group-1",
	} {
		t.Run(at, func(t *testing.T) {
			d := newDir(t)
			for _, group := range []uint32{1, 3} {
				add(t, d, group, 7)
				begin(t, d, group)
			}
			if err := d.RemoveReplica(3, cutOffAt(at)); (err != nil) != (at != "") {
				t.Fatal(err)
			}
			if got := dirs(t, d); got != left {
				t.Fatal(got)
			}
			if _, err := Check(d.Path); err != nil {
				t.Error(err)
			}
			next := restart(t, d)
			if got := dirs(t, next); got != "group-0 group-1" || len(next.Replicas) != 1 || len(next.groups()) != 2 {
				t.Errorf("after a start: %s, %v", got, next.Replicas)
			}
			wants(t, next.RemoveReplica(3, nil), "no replica of group 3")
			wants(t, next.AddReplica(Replica{3, "g", 7}, nil), "replica 7", "group 3", "higher")
			add(t, next, 3, 8)
			begin(t, next, 3)
			if next = restart(t, next); dirs(t, next) != "group-0 group-1 group-3" || len(next.groups()) != 3 {
				t.Errorf("the one that followed: %s", dirs(t, next))
			}
		})
	}
}

func TestReplicaNumbersAreNotUsedAgain(t *testing.T) {
	d := newDir(t)
	add(t, d, 3, 7)
	for _, r := range []Replica{{3, "g", 6}, {3, "g", 7}} {
		wants(t, d.AddReplica(r, nil), "had replica 7 of group 3", "vote twice")
	}
	wants(t, d.AddReplica(Replica{3, "g", 8}, nil), "has replica 7 of group 3", "remove it first")
	add(t, d, 4, 7) // numbers are of a group
	for _, number := range []uint64{7, 9} {
		if number == 9 {
			add(t, d, 3, number)
		}
		if err := d.RemoveReplica(3, nil); err != nil {
			t.Fatal(err)
		}
		d = restart(t, d)
		wants(t, d.AddReplica(Replica{3, "g", number}, nil), "vote twice")
	}
	if want := []Replica{{3, "g", 9}}; !slices.Equal(d.Removed, want) {
		t.Errorf("removed %v", d.Removed)
	}
	for _, r := range []Replica{{0, "g", 2}, {5, "g", 0}, {5, "", 1}} {
		wants(t, d.AddReplica(r, nil), "cannot be added")
	}
	if got := dirs(t, d); got != "group-0 group-4" {
		t.Errorf("refusals left %s", got)
	}
}

// A replica whose files are gone has forgotten its votes.
func TestReplicaDirectoryLost(t *testing.T) {
	d := newDir(t)
	for _, group := range []uint32{1, 3} {
		add(t, d, group, 7)
		begin(t, d, group)
	}
	if err := os.Mkdir(d.File("group-5"), 0o700); err != nil { // a leftover
		t.Fatal(err)
	}
	if err := os.RemoveAll(d.File("group-3")); err != nil {
		t.Fatal(err)
	}
	words := []string{"lost group-3", "replica 7", "put it back", "carillon cluster remove n1", "--join"}
	wants(t, d.Tidy(), words...)
	if got := dirs(t, d); got != "group-0 group-1 group-5" {
		t.Errorf("the refusal left %s", got)
	}
	_, err := Compact(d.Path, nil)
	wants(t, err, words...)
	if res, err := Check(d.Path); err != nil || len(res.Problems) != 1 {
		t.Errorf("%+v, %v", res, err)
	} else {
		wants(t, errors.New(res.Problems[0]), words...)
	}
	_, err = d.OpenFiles(3, FileOptions{Logger: quiet})
	if err == nil {
		t.Error("files without a directory were opened")
	}
}

// node.json was put back from before the replica was added: its votes are in the directory.
func TestUnknownReplicaDirectory(t *testing.T) {
	d := newDir(t)
	old, err := os.ReadFile(d.File(NodeFile))
	if err != nil {
		t.Fatal(err)
	}
	add(t, d, 3, 7)
	begin(t, d, 3)
	if err := os.WriteFile(d.File(NodeFile), old, 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := Open(d.Path, "n1", "v")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"group-3", "node.json does not know", "restore the whole directory"}
	wants(t, next.Tidy(), words...)
	if res, err := Check(d.Path); err != nil || len(res.Problems) != 1 {
		t.Errorf("%+v, %v", res, err)
	} else {
		wants(t, errors.New(res.Problems[0]), words...)
	}
	if err := next.AddReplica(Replica{3, "g", 8}, nil); err == nil {
		t.Error("a replica was added over the files of another")
	}
	if _, err := os.Stat(d.groupFile(3, logName)); err != nil {
		t.Error(err)
	}
}

// A process that waits for the directory has read node.json before the one that leaves it wrote it last.
func TestReplicaAddedWhileAnotherWaits(t *testing.T) {
	d := newDir(t)
	o := LockOptions{FileSystem: dirlock.Inspect, Fatal: func(err error) { t.Error(err) }}
	lock, err := d.Lock(o)
	if err != nil {
		t.Fatal(err)
	}
	next, err := Open(d.Path, "n1", "v")
	if err != nil {
		t.Fatal(err)
	}
	add(t, d, 3, 7)
	begin(t, d, 3)
	lock.Close()
	if lock, err = next.Lock(o); err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := next.Tidy(); err != nil || len(next.Replicas) != 1 {
		t.Errorf("%v, %v", next.Replicas, err)
	}
	begin(t, next, 3)
}

// The cluster is learned of, and replicas come and go, while the node runs. Neither undoes the other.
func TestReplicasAndClusterInNodeFile(t *testing.T) {
	d := newDir(t)
	if data, err := os.ReadFile(d.File(NodeFile)); err != nil || strings.Contains(string(data), "replica") {
		t.Errorf("a node with one group has %s, %v", data, err)
	}
	if err := d.SaveCluster(ClusterIdentity{ClusterID: "c1", Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	add(t, d, 3, 7)
	if got := restart(t, d); got.ClusterID != "c1" || got.Epoch != 2 {
		t.Errorf("a replica came: %+v", got.Identity)
	}
	if err := d.SaveCluster(ClusterIdentity{ClusterID: "c1", Epoch: 3}); err != nil {
		t.Fatal(err)
	}
	if got := restart(t, d); len(got.Replicas) != 1 || got.Epoch != 3 {
		t.Errorf("the cluster changed: %+v", got.Identity)
	}
	if err := d.RemoveReplica(3, nil); err != nil {
		t.Fatal(err)
	}
	if got := restart(t, d); len(got.Replicas) != 0 || len(got.Removed) != 1 || got.Epoch != 3 {
		t.Errorf("a replica went: %+v", got.Identity)
	}
}

func TestFilesOfSeveralGroups(t *testing.T) {
	d := newDir(t)
	if _, err := d.OpenFiles(3, FileOptions{Logger: quiet}); err == nil || dirs(t, d) != "group-0" {
		t.Errorf("%v, and there is %s", err, dirs(t, d))
	}
	add(t, d, 3, 7)
	add(t, d, 4, 1) // not started yet
	begin(t, d, 3)
	compact := func() (names []string) {
		t.Helper()
		c, err := Compact(d.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range c.Files {
			names = append(names, f.Name)
		}
		return names
	}
	if got := compact(); !slices.Equal(got, []string{"state.db", "raft.db", "group-3/state.db", "group-3/raft.db"}) {
		t.Errorf("compacted %q", got)
	}
	left := d.groupFile(3, stateName) + CompactExt
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	restart(t, d)
	if _, err := os.Stat(left); err == nil {
		t.Error("what a compaction left is still there")
	}
	if res, err := Check(d.Path); err != nil || len(res.Problems) > 0 {
		t.Errorf("%v, %v", res.Problems, err)
	}
	_, err := Skip(d.Path, 9, quiet)
	wants(t, err, "replicas of 3 groups", "cluster recover", "backup")
	if err := os.Truncate(d.groupFile(3, stateName), 5000); err != nil {
		t.Fatal(err)
	}
	if res, err := Check(d.Path); err != nil || len(res.Problems) != 1 {
		t.Errorf("%v, %v", res.Problems, err)
	} else {
		wants(t, errors.New(res.Problems[0]), "group 3: ", "state.db is damaged")
	}
	if err := os.Remove(d.groupFile(3, logName)); err != nil {
		t.Fatal(err)
	}
	_, err = d.OpenFiles(3, FileOptions{Logger: quiet})
	wants(t, err, "group 3: ", "has lost its raft.db")
	_, err = Check(d.Path)
	wants(t, err, "holds no group-3/raft.db")
}
