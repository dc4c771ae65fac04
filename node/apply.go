package node

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
)

const (
	// applyDelay is how long a follower may hold committed entries back before it applies them, so that they share a
	// transaction and its fsyncs. They are in its log already.
	applyDelay = 50 * time.Millisecond
	// heldEntries and heldBytes bound what is held back.
	heldEntries = 256
	heldBytes   = 256 << 10
)

// errHeld answers an entry that is applied later. No proposal of this node waits for one: those are applied at once.
var errHeld = errors.New("the entry is applied later")

// applier stands between raft and the state machine. What this node proposed is applied at once, because its proposer
// waits for the reply. What came from another leader is held back for a moment: at a hundred entries a second a
// follower spent half its time on transactions of one entry each. What is held is committed and in the log, so a
// process that ends loses nothing: raft hands it over again.
type applier struct {
	*fsm.FSM
	flight *flight

	// turn guards the rest. It is a channel and not a mutex because the disk may hang with it taken, and in simulated
	// time a goroutine that waits for a mutex keeps the clock from going on.
	turn   chan struct{}
	held   []*raft.Log
	bytes  int
	timer  *time.Timer
	closed bool
}

var _ raft.BatchingFSM = (*applier)(nil)

func newApplier(f *fsm.FSM, flight *flight) *applier {
	return &applier{FSM: f, flight: flight, turn: make(chan struct{}, 1)}
}

func (a *applier) lock()   { a.turn <- struct{}{} }
func (a *applier) unlock() { <-a.turn }

// Apply applies one entry.
func (a *applier) Apply(l *raft.Log) any { return a.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies entries, or holds them back.
func (a *applier) ApplyBatch(logs []*raft.Log) []any {
	a.lock()
	defer a.unlock()
	n := len(a.held)
	a.held = append(a.held, logs...)
	for _, l := range logs {
		a.bytes += len(l.Data)
	}
	if a.flight.busy() || len(a.held) >= heldEntries || a.bytes >= heldBytes {
		return a.flushLocked()[n:]
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(applyDelay, a.flush)
	} else if n == 0 {
		a.timer.Reset(applyDelay)
	}
	out := make([]any, len(logs))
	for i := range out {
		out[i] = errHeld
	}
	return out
}

// flush applies what is held back. After it the state has everything that raft has handed over.
func (a *applier) flush() {
	a.lock()
	defer a.unlock()
	a.flushLocked()
}

func (a *applier) flushLocked() []any {
	if len(a.held) == 0 || a.closed {
		return nil
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	out := a.FSM.ApplyBatch(a.held)
	clear(a.held)
	a.held, a.bytes = a.held[:0], 0
	return out
}

// Snapshot includes what is held back: raft compacts its log by what it has handed over.
func (a *applier) Snapshot() (raft.FSMSnapshot, error) {
	a.flush()
	return a.FSM.Snapshot()
}

// Restore replaces the state.
func (a *applier) Restore(rc io.ReadCloser) error {
	a.flush()
	return a.FSM.Restore(rc)
}

// close ends it before the files are closed. What is held back is applied, unless the node is to end as a killed
// process does.
func (a *applier) close(apply bool) {
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
