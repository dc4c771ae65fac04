package raftlog

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/store"
)

// applierTest is an applier over a store, with entries to put into it.
type applierTest struct {
	*Applier
	proposing atomic.Bool
	t         *testing.T
	st        *store.Store
	last      uint64
}

func newApplierTest(t *testing.T, edit ...func(*store.Options)) *applierTest {
	o := store.Options{NoSync: true, MmapSize: 1 << 28}
	for _, e := range edit {
		e(&o)
	}
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	h := &applierTest{t: t, st: st}
	h.Applier = NewApplier(fsm.New(st, fsm.Options{}), ApplyDelay, h.proposing.Load)
	t.Cleanup(func() {
		h.Close(false)
		st.Close()
	})
	return h
}

// entry is the next one of the log: a stamp.
func (h *applierTest) entry() *raft.Log {
	h.last++
	data, err := fsm.Encode(&fsm.Stamp{Head: fsm.Head{Now: int64(h.last), Term: 1}})
	if err != nil {
		h.t.Fatal(err)
	}
	return &raft.Log{Index: h.last, Term: 1, Type: raft.LogCommand, Data: data}
}

// give hands over entries as raft does, and says whether they were answered.
func (h *applierTest) give(n int) bool {
	h.t.Helper()
	var logs []*raft.Log
	for range n {
		logs = append(logs, h.entry())
	}
	out := h.ApplyBatch(logs)
	if len(out) != n {
		h.t.Fatalf("%d answers to %d entries", len(out), n)
	}
	for _, o := range out {
		if err, ok := o.(error); ok && !errors.Is(err, errHeld) {
			h.t.Fatal(err)
		}
	}
	_, answered := out[n-1].(*fsm.Reply)
	return answered
}

func (h *applierTest) want(index uint64) {
	h.t.Helper()
	if got := h.st.Counters().Index; got != index {
		h.t.Errorf("the state is at %d, want %d", got, index)
	}
}

// What a leader elsewhere committed may wait for more; the first one says for how long.
func TestFollowerAppliesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newApplierTest(t)
		applied := 0
		h.Applier.BatchingFSM = fsm.New(h.st, fsm.Options{Applied: func([]*raft.Log, []any, time.Duration) { applied++ }})
		for range 5 {
			if h.give(1) {
				t.Error("answered at once")
			}
			time.Sleep(ApplyDelay / 10)
		}
		synctest.Wait()
		h.want(0)
		time.Sleep(ApplyDelay / 2)
		synctest.Wait()
		h.want(5)
		if applied != 1 {
			t.Errorf("%d transactions", applied)
		}
		h.give(1)
		time.Sleep(ApplyDelay)
		synctest.Wait()
		h.want(6)
	})
}

// A proposal of this node waits for its reply: it is applied at once, after what was held back before it.
func TestProposalsAreAppliedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newApplierTest(t)
		h.give(3)
		h.proposing.Store(true)
		if !h.give(2) {
			t.Error("no reply for a proposal that is waited for")
		}
		h.want(5)
		h.proposing.Store(false)
		h.give(1)
		h.want(5)
	})
}

func TestHeldEntriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newApplierTest(t)
		h.give(heldEntries - 1)
		h.want(0)
		h.give(1)
		h.want(heldEntries)
	})
}

// What is held back counts as applied: it is committed.
func TestHeldEntriesCountAsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newApplierTest(t)
		h.give(3)
		h.want(0)
		if index, term := h.Applied(); index != 3 || term != 1 {
			t.Errorf("applied up to %d of term %d", index, term)
		}
		h.Flush()
		next := NewApplier(fsm.New(h.st, fsm.Options{}), ApplyDelay, h.proposing.Load)
		defer next.Close(false)
		h.last = 0
		next.ApplyBatch([]*raft.Log{h.entry()}) // comes again after a start
		if index, _ := next.Applied(); index != 3 {
			t.Errorf("applied up to %d", index)
		}
	})
}

// Raft compacts its log by what it handed over, so a snapshot has all of it.
func TestSnapshotHasWhatWasHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newApplierTest(t)
		h.give(3)
		snap, err := h.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		snap.Release()
		h.want(3)
	})
}

// A process that ends has lost nothing but time: raft hands the entries over again, from the log.
func TestHeldEntriesComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newApplierTest(t)
		h.give(2)
		h.Flush()
		h.give(2)
		h.Close(false)
		time.Sleep(2 * ApplyDelay)
		synctest.Wait()
		h.want(2)

		next := &applierTest{t: t, st: h.st}
		next.Applier = NewApplier(fsm.New(h.st, fsm.Options{}), ApplyDelay, next.proposing.Load)
		next.ApplyBatch([]*raft.Log{next.entry(), next.entry(), next.entry(), next.entry()})
		next.Close(true)
		next.want(4)
	})
}

// While the disk hangs entries go on coming, and simulated time goes on.
func TestEntriesComeWhileTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newApplierTest(t, func(o *store.Options) {
			o.BeforeCommit = func() error {
				time.Sleep(time.Second)
				return nil
			}
		})
		h.give(1)
		time.Sleep(2 * ApplyDelay)
		h.give(1) // waits for the disk
		time.Sleep(2 * time.Second)
		synctest.Wait()
		h.want(2)
	})
}
