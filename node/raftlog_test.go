package node

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func testLog(t *testing.T, fatal func(error)) *durableLog {
	t.Helper()
	s, err := openLog(filepath.Join(t.TempDir(), fileRaft), StoreConfig{NoSync: true, LockTimeout: time.Second}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &durableLog{logStore: s, fatal: fatal}
}

func fill(t *testing.T, l raft.LogStore, from, to, term uint64) {
	t.Helper()
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: term, Data: make([]byte, 100)})
	}
	if err := l.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
}

func bounds(t *testing.T, l raft.LogStore) (uint64, uint64) {
	t.Helper()
	first, err := l.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := l.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	return first, last
}

// Deleting under a cursor skips keys (pitfalls 13); what is deleted must be gone all the same.
func TestDeleteRangeLeavesNothing(t *testing.T) {
	t.Parallel()
	l := testLog(t, func(err error) { t.Error(err) })
	fill(t, l, 1, 20_000, 1)
	if err := l.DeleteRange(1, 15_000); err != nil {
		t.Fatal(err)
	}
	if first, last := bounds(t, l); first != 15_001 || last != 20_000 {
		t.Errorf("after a compaction: %d to %d", first, last)
	}
	for i := uint64(1); i <= 15_000; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); !errors.Is(err, raft.ErrLogNotFound) {
			t.Fatalf("entry %d is still there: %v", i, err)
		}
	}
	if err := l.DeleteRange(17_000, 20_000); err != nil {
		t.Fatal(err)
	}
	if first, last := bounds(t, l); first != 15_001 || last != 16_999 {
		t.Errorf("after a truncation: %d to %d", first, last)
	}
	if err := l.DeleteRange(15_001, 16_999); err != nil {
		t.Fatal(err)
	}
	if first, last := bounds(t, l); first != 0 || last != 0 {
		t.Errorf("after everything: %d to %d", first, last)
	}
}

// brokenLog is a disk that takes no more writes.
type brokenLog struct {
	logStore
	err func() error
}

func (b *brokenLog) StoreLogs(l []*raft.Log) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.logStore.StoreLogs(l)
}

func (b *brokenLog) Set(k, v []byte) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.logStore.Set(k, v)
}

func (b *brokenLog) SetUint64(k []byte, v uint64) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.logStore.SetUint64(k, v)
}

func (b *brokenLog) DeleteRange(lo, hi uint64) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.logStore.DeleteRange(lo, hi)
}

func TestEveryFailingWriteIsFatal(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	for name, write := range map[string]func(*durableLog) error{
		"StoreLog":    func(d *durableLog) error { return d.StoreLog(&raft.Log{Index: 11}) },
		"StoreLogs":   func(d *durableLog) error { return d.StoreLogs([]*raft.Log{{Index: 11}}) },
		"Set":         func(d *durableLog) error { return d.Set([]byte("LastVoteCand"), []byte("n1")) },
		"SetUint64":   func(d *durableLog) error { return d.SetUint64([]byte("CurrentTerm"), 3) },
		"DeleteRange": func(d *durableLog) error { return d.DeleteRange(1, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			var got error
			d := testLog(t, func(err error) { got = err })
			fill(t, d, 1, 10, 1)
			d.logStore = &brokenLog{d.logStore, func() error { return full }}
			if err := write(d); !errors.Is(err, full) {
				t.Errorf("returned %v", err)
			}
			if !errors.Is(got, full) {
				t.Errorf("fatal was told %v", got)
			}
		})
	}
}

func TestReach(t *testing.T) {
	for _, tc := range []struct {
		name        string
		first, last uint64 // of the log; entries have term index/10
		current     uint64 // raft's own term; 0: that of the last entry
		snap, state uint64 // state 0: the same as snap
		index, term uint64
		stateTerm   uint64 // of a state that was received and is past snap
		want        string // empty: accepted
	}{
		{name: "new"},
		{name: "everything applied", first: 1, last: 50, index: 50, term: 5},
		{name: "behind the log", first: 1, last: 50, index: 20, term: 2},
		{name: "nothing applied yet", first: 1, last: 50},
		{name: "compacted", first: 30, last: 50, snap: 40, index: 50, term: 5},
		{name: "at the snapshot, log empty", snap: 40, current: 4, index: 40, term: 4},
		{name: "barriers between the state and the snapshot", first: 30, last: 50, snap: 40, state: 38, index: 38, term: 3},
		{name: "compacted up to barriers", first: 39, last: 50, snap: 40, state: 38, index: 38, term: 3},
		{name: "a snapshot was installed", first: 1, last: 20, current: 6, snap: 60, state: 60, index: 60, term: 6},

		{name: "a state past its snapshot was received", first: 1, last: 20, current: 6, snap: 60, state: 65, stateTerm: 6, index: 65, term: 6},
		{name: "a state past its snapshot was received, and some entries", first: 61, last: 63, snap: 60, state: 65, stateTerm: 6, index: 65, term: 6},
		{name: "a state past its snapshot was received, and more entries", first: 61, last: 67, snap: 60, state: 65, stateTerm: 6, index: 66, term: 6},

		{name: "past the state that was received", first: 61, last: 63, snap: 60, state: 65, stateTerm: 6, index: 66, term: 6, want: "ends at 65"},
		{name: "another state than was received", first: 61, last: 63, snap: 60, state: 65, stateTerm: 6, index: 65, term: 5, want: "term 5"},
		{name: "the log was rolled back behind a state of its own", first: 61, last: 63, snap: 60, state: 65, index: 65, term: 6, want: "ends at 63"},
		{name: "the log was lost", index: 50, term: 5, want: "ends at 0"},
		{name: "the log was lost, the snapshot was not", snap: 50, index: 50, term: 5, want: "is at term 0"},
		{name: "the log was rolled back", first: 1, last: 40, index: 50, term: 5, want: "ends at 40"},
		{name: "the log was rolled back to before the snapshot", first: 1, last: 30, snap: 50, index: 50, term: 5, want: "is at term 3"},
		{name: "another log", first: 1, last: 60, index: 50, term: 4, want: "term 4"},
		{name: "another snapshot", snap: 40, current: 4, index: 40, term: 3, want: "term 3"},
		{name: "the state was rolled back", first: 30, last: 50, snap: 40, index: 35, term: 3, want: "ends at entry 35"},
		{name: "the state was lost", first: 30, last: 50, snap: 40, want: "ends at entry 0"},
		{name: "the snapshot was lost", first: 30, last: 50, index: 50, term: 5, want: "begins at entry 30"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := raft.NewInmemStore()
			for i := tc.first; i != 0 && i <= tc.last; i++ {
				if err := log.StoreLog(&raft.Log{Index: i, Term: i / 10}); err != nil {
					t.Fatal(err)
				}
			}
			if err := log.SetUint64(keyTerm, max(tc.current, tc.last/10)); err != nil {
				t.Fatal(err)
			}
			snap := snapshot{Index: tc.snap, Term: tc.snap / 10, State: tc.state, StateTerm: tc.stateTerm}
			if tc.state == 0 {
				snap.State = tc.snap
			}
			err := reach(log, snap, tc.index, tc.term)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "backup")):
				t.Errorf("got %v, want something about %q and the way out", err, tc.want)
			}
		})
	}
}
