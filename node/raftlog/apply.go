package raftlog

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
)

const (
	// ApplyDelay is how long a follower may hold committed entries back before it applies them, so that they share a
	// transaction and its fsyncs. They are in its log already.
	ApplyDelay = 50 * time.Millisecond
	// heldEntries and heldBytes bound what is held back.
	heldEntries = 256
	heldBytes   = 256 << 10
)

// DelayOf is how long a replica of a group may hold entries back. Where jobs are spread over several groups, each of
// them has a part of the entries, and a node would make as many times more transactions of them; so they wait longer.
// The control group does not: nodes and tokens are in it.
func DelayOf(group uint32) time.Duration {
	if group == 0 {
		return ApplyDelay
	}
	return 4 * ApplyDelay
}

// errHeld answers an entry that is applied later. No proposal of this node waits for one: those are applied at once.
var errHeld = errors.New("the entry is applied later")

// Applier stands between raft and the state machine. What this node proposed is applied at once, because its proposer
// waits for the reply. What came from another leader is held back for a moment: at a hundred entries a second a
// follower spent half its time on transactions of one entry each. What is held is committed and in the log, so a
// process that ends loses nothing: raft hands it over again.
type Applier struct {
	raft.BatchingFSM
	delay time.Duration
	busy  func() bool

	// turn guards the rest. It is a channel and not a mutex because the disk may hang with it taken, and in simulated
	// time a goroutine that waits for a mutex keeps the clock from going on.
	turn   chan struct{}
	held   []*raft.Log
	bytes  int
	timer  *time.Timer
	closed bool

	seen        sync.Mutex // guards the rest, for a moment only
	index, term uint64     // the last entry that raft has handed over, or that is in the state
}

// stateMachine says besides what raft asks how far it is.
type stateMachine interface {
	raft.BatchingFSM
	Applied() (index, term uint64)
}

var _ raft.BatchingFSM = (*Applier)(nil)

// NewApplier stands before a state machine. What other leaders propose is held back for at most delay; busy says that a
// proposal of this node is under way.
func NewApplier(f stateMachine, delay time.Duration, busy func() bool) *Applier {
	a := &Applier{BatchingFSM: f, delay: delay, busy: busy, turn: make(chan struct{}, 1)}
	a.index, a.term = f.Applied()
	return a
}

// Applied is the last entry that raft has handed over: it is in the state, or held back. It waits for no disk.
func (a *Applier) Applied() (index, term uint64) {
	a.seen.Lock()
	defer a.seen.Unlock()
	return a.index, a.term
}

// handedOver notes the last entry. Those that come again after a start are in the state already.
func (a *Applier) handedOver(l *raft.Log) {
	a.seen.Lock()
	defer a.seen.Unlock()
	if l.Index > a.index {
		a.index, a.term = l.Index, l.Term
	}
}

func (a *Applier) lock()   { a.turn <- struct{}{} }
func (a *Applier) unlock() { <-a.turn }

// Apply applies one entry.
func (a *Applier) Apply(l *raft.Log) any { return a.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies entries, or holds them back.
func (a *Applier) ApplyBatch(logs []*raft.Log) []any {
	a.handedOver(logs[len(logs)-1])
	a.lock()
	defer a.unlock()
	n := len(a.held)
	a.held = append(a.held, logs...)
	for _, l := range logs {
		a.bytes += len(l.Data)
	}
	if a.busy() || len(a.held) >= heldEntries || a.bytes >= heldBytes {
		return a.flushLocked()[n:]
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(a.delay, a.Flush)
	} else if n == 0 {
		a.timer.Reset(a.delay)
	}
	out := make([]any, len(logs))
	for i := range out {
		out[i] = errHeld
	}
	return out
}

// Flush applies what is held back. After it the state has everything that raft has handed over.
func (a *Applier) Flush() {
	a.lock()
	defer a.unlock()
	a.flushLocked()
}

func (a *Applier) flushLocked() []any {
	if len(a.held) == 0 || a.closed {
		return nil
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	out := a.BatchingFSM.ApplyBatch(a.held)
	clear(a.held)
	a.held, a.bytes = a.held[:0], 0
	return out
}

// Snapshot includes what is held back: raft compacts its log by what it has handed over.
func (a *Applier) Snapshot() (raft.FSMSnapshot, error) {
	if !mutant.On(mutant.HeldSnapshot) {
		a.Flush()
	}
	return a.BatchingFSM.Snapshot()
}

// Restore replaces the state.
func (a *Applier) Restore(rc io.ReadCloser) error {
	a.Flush()
	err := a.BatchingFSM.Restore(rc)
	if f, ok := a.BatchingFSM.(stateMachine); ok && err == nil {
		a.seen.Lock()
		a.index, a.term = f.Applied()
		a.seen.Unlock()
	}
	return err
}

// Close ends it before the files are closed. What is held back is applied, unless the node is to end as a killed
// process does.
func (a *Applier) Close(apply bool) {
	a.lock()
	defer a.unlock()
	if apply {
		a.flushLocked()
	}
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
