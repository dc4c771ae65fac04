package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/fsm/snapshots"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// received makes a directory in which a snapshot of another one was received, as a crash leaves it before the restore.
func received(t *testing.T, back uint64) (dir string, index uint64) {
	t.Helper()
	job := map[string]any{"type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}}
	home := t.TempDir()
	n := start(t, home)
	for range 20 {
		n.create(job)
	}
	n.stop()
	dir = t.TempDir()
	m := start(t, dir)
	term := m.group.raft.CurrentTerm()
	conf := m.group.raft.GetConfiguration().Configuration()
	m.stop()
	from, err := store.Open(filepath.Join(home, datadir.StateFile), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	h, _, rc, err := fsm.Stream(from, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	st, err := store.Open(filepath.Join(dir, datadir.StateFile), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	snaps, err := snapshots.New(filepath.Join(dir, datadir.SnapshotsDir), st)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := snaps.Create(1, h.Index-back, term, conf, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fsm.CopyStream(sink, rc); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, h.Index
}

// A snapshot that was received and not restored is in order: the next start restores it. And a state that is past the
// index of its snapshot, because the leader was by then, is so too.
func TestReceivedSnapshotIsInOrder(t *testing.T) {
	t.Parallel()
	for _, back := range []uint64{0, 5} {
		dir, index := received(t, back)
		look := func(when string) {
			t.Helper()
			if res, err := datadir.Check(dir); err != nil || len(res.Problems) > 0 || res.Index != index {
				t.Fatalf("%s, %d back: entry %d of %d, %q, %v", when, back, res.Index, index, res.Problems, err)
			}
		}
		look("before the restore")
		n, err := Open(testConfig(t, dir))
		if err != nil {
			t.Fatalf("%d back: %v", back, err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, datadir.SnapshotsDir, "*.snap")); err != nil || len(left) > 0 {
			t.Errorf("%d back: it was restored, and %q is still there: %v", back, left, err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		look("after the restore")
	}
}

func TestReceivedSnapshotThatIsDamaged(t *testing.T) {
	t.Parallel()
	dir, _ := received(t, 0)
	names, err := filepath.Glob(filepath.Join(dir, datadir.SnapshotsDir, "*.snap"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%q %v", names, err)
	}
	if err := os.Truncate(names[0], 9000); err != nil {
		t.Fatal(err)
	}
	res, err := datadir.Check(dir)
	if err != nil || !slices.ContainsFunc(res.Problems, func(p string) bool {
		return strings.Contains(p,
			".snap is damaged")
	}) {
		t.Errorf("%q %v", res.Problems, err)
	}
}

// Beginning again on a state that is past the log must not give its numbers out once more: such entries would be passed
// over.
func TestRecoverAloneOnAReceivedState(t *testing.T) {
	t.Parallel()
	dir, index := received(t, 15)
	cfg := testConfig(t, dir)
	r, err := datadir.Recover(dir, map[string]string{"n1": "127.0.0.1:7400"}, cfg.Logger)
	if err != nil {
		t.Fatal(err)
	}
	var snap struct{ Index uint64 }
	data, err := os.ReadFile(filepath.Join(dir, datadir.SnapshotsDir, "snapshot.json"))
	if err == nil {
		err = json.Unmarshal(data, &snap)
	}
	if err != nil || !r.Alone || snap.Index != index {
		t.Fatalf("%+v; its snapshot is at %d, and the state at %d (%v)", r, snap.Index, index, err)
	}
	n := start(t, dir)
	n.create(map[string]any{"type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}})
	if got := n.group.store.Counters(); got.Index <= index || got.Jobs != 21 {
		t.Errorf("entry %d after %d, %d jobs", got.Index, index, got.Jobs)
	}
}

// A crash while a file is made leaves nothing that a start stumbles over.
func TestFilesAreMadeWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, datadir.GroupDir(0)), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{datadir.LogFile, datadir.StateFile} {
		if err := os.WriteFile(filepath.Join(dir, name+".new"), make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start(t, dir).stop()
	names, err := filepath.Glob(filepath.Join(dir, "*.new"))
	if err != nil || len(names) > 0 {
		t.Errorf("%q %v", names, err)
	}
}
