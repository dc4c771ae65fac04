package raftlog

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func testLog(t *testing.T, fatal func(error)) *Log {
	t.Helper()
	l, err := Open(filepath.Join(t.TempDir(), "raft.db"), Options{NoSync: true, LockTimeout: time.Second, Fatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
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

// Deleting under a cursor skips keys; what is deleted must be gone all the same.
func TestDeleteRangeLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
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

// brokenFile is a disk that takes no more writes.
type brokenFile struct {
	file
	err func() error
}

func (b *brokenFile) StoreLogs(l []*raft.Log) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.file.StoreLogs(l)
}

func (b *brokenFile) Set(k, v []byte) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.file.Set(k, v)
}

func (b *brokenFile) SetUint64(k []byte, v uint64) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.file.SetUint64(k, v)
}

func (b *brokenFile) DeleteRange(lo, hi uint64) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.file.DeleteRange(lo, hi)
}

func TestEveryFailingWriteIsFatal(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	for name, write := range map[string]func(*Log) error{
		"StoreLog":    func(d *Log) error { return d.StoreLog(&raft.Log{Index: 11}) },
		"StoreLogs":   func(d *Log) error { return d.StoreLogs([]*raft.Log{{Index: 11}}) },
		"Set":         func(d *Log) error { return d.Set([]byte("LastVoteCand"), []byte("n1")) },
		"SetUint64":   func(d *Log) error { return d.SetUint64([]byte("CurrentTerm"), 3) },
		"DeleteRange": func(d *Log) error { return d.DeleteRange(1, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			var got error
			d := testLog(t, func(err error) { got = err })
			fill(t, d, 1, 10, 1)
			d.file = &brokenFile{d.file, func() error { return full }}
			if err := write(d); !errors.Is(err, full) {
				t.Errorf("returned %v", err)
			}
			if !errors.Is(got, full) {
				t.Errorf("fatal was told %v", got)
			}
		})
	}
}

// What is in the state is not cut off, whatever raft says; the rest of the log goes as always.
func TestAppliedEntriesAreNotCutOff(t *testing.T) {
	t.Parallel()
	l := testLog(t, func(err error) { t.Error(err) })
	fill(t, l, 1, 100, 3)
	index, term := uint64(90), uint64(3)
	var told [][2]uint64
	l.Guard(func() (uint64, uint64) { return index, term }, func(first, applied uint64) {
		told = append(told, [2]uint64{first, applied})
	})
	for _, first := range []uint64{90, 50, 1} {
		if err := l.DeleteRange(first, 100); !errors.Is(err, ErrApplied) {
			t.Errorf("from %d: %v", first, err)
		}
		if got := told[len(told)-1]; got != [2]uint64{first, 90} {
			t.Errorf("told %v", got)
		}
	}
	if first, last := bounds(t, l); first != 1 || last != 100 {
		t.Errorf("the log has %d to %d", first, last)
	}
	told = nil
	if err := l.DeleteRange(91, 100); err != nil { // was never applied
		t.Error(err)
	}
	if err := l.DeleteRange(1, 80); err != nil { // a compaction
		t.Error(err)
	}
	// A state that was received is past the log, or past where the log is that of its leader.
	index, term = 300, 5
	if err := l.DeleteRange(88, 90); err != nil {
		t.Error(err)
	}
	index, term = 85, 5
	if err := l.DeleteRange(84, 87); err != nil {
		t.Error(err)
	}
	if first, last := bounds(t, l); first != 81 || last != 83 || len(told) > 0 {
		t.Errorf("the log has %d to %d, and %v was told", first, last, told)
	}
}
