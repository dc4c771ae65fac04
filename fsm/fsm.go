package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm/chain"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// Options are what an FSM needs beside its store.
type Options struct {
	Logger *slog.Logger
	// Fatal is called with an error after which the process must end: the state could not be written, or an entry could
	// not be read. It does not return in production.
	Fatal func(error)
	// Applied, if set, is told of each batch what its entries were answered with, and how long it took.
	Applied func(logs []*raft.Log, replies []any, took time.Duration)
	// Skip are entries to pass over, with their terms (`carillon cluster recover --skip`): for one that cannot be
	// applied. Every node must be given the same ones.
	Skip map[uint64]uint64
	// Differs, if set, is told that this replica's state is another one than the leader's.
	Differs func(chain.Difference)
	// Damaged, if set, is told before Fatal that what the state file has is not what was written to it.
	Damaged func(error)
	// Scrub, if set, is told of each Scrub once it is in the state, by the goroutine that applies.
	Scrub func(Scrubbed)
	// Restored, if set, is called when the state was made of a snapshot.
	Restored func()
	// Level is the feature level that this process supports; 0: that of the binary.
	Level int
}

// FSM applies committed entries to the store: one bbolt transaction a batch, with the applied index inside it.
type FSM struct {
	st     *store.Store
	o      Options
	broken atomic.Pointer[error]
	Recent chain.Recent // which entries it applied
}

var (
	_ raft.FSM         = (*FSM)(nil)
	_ raft.BatchingFSM = (*FSM)(nil)
)

// New makes the state machine of a store.
func New(st *store.Store, o Options) *FSM {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { panic(err) }
	}
	o.Level = cmp.Or(o.Level, Level)
	os.Remove(restoreFile(st.Path())) // of a restore that did not get to its end
	f := &FSM{st: st, o: o}
	f.Recent.Reset(st.Counters())
	return f
}

// Applied is the last entry that is in the state. Barriers and no-ops never get here, so raft's own index may be
// higher.
func (f *FSM) Applied() (index, term uint64) {
	c := f.st.Counters()
	return c.Index, c.Term
}

// errReplayed answers an entry that the state already contains. Nothing waits for it: it comes from the log at start.
var errReplayed = errors.New("fsm: already applied")

// errSkipped answers an entry that was passed over.
var errSkipped = errors.New("fsm: passed over by order")

// Apply applies one entry.
func (f *FSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies entries in one transaction. Each response is a *Reply, or an error.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	started := time.Now() // how long it took, for the metrics; nothing that is applied depends on it
	out := make([]any, len(logs))
	if p := f.broken.Load(); p != nil {
		return fill(out, *p)
	}
	if err := f.applyInParts(logs, out); err != nil {
		if d := f.damage(err); d != nil && f.o.Damaged != nil {
			f.o.Damaged(d)
			err = d
		}
		return fill(out, f.fail(err))
	}
	f.Recent.Tell(f.o.Differs)
	if f.o.Applied != nil {
		f.o.Applied(logs, out, time.Since(started))
	}
	return out
}

// fail ends the process. Where it does not (tests), nothing is applied any more.
func (f *FSM) fail(err error) error {
	f.broken.Store(&err)
	f.o.Logger.Error("state not changed; this process ends so that log, state and memory cannot diverge", "error", err)
	f.o.Fatal(err)
	return err
}

// damage is what is wrong with the state file, if that is why entries could not be applied. A panic may be about an
// entry, and then every node has it; or bbolt came upon a page that makes no sense. The file tells them apart: nobody
// writes to it now.
func (f *FSM) damage(err error) error {
	if errors.Is(err, store.ErrCorrupt) {
		return fmt.Errorf("%s: %w", f.st.Path(), err)
	}
	if errors.Is(err, errPanic) {
		return store.VerifyPages(f.st.Path())
	}
	return nil
}

var errPanic = errors.New("panic")

// EntryError says that an entry of the log cannot be applied. Every node that gets to it stops there, and starting it
// again does not help.
type EntryError struct {
	Index, Term uint64
	Err         error
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("entry %d of the log (term %d) cannot be applied: %v", e.Index, e.Term, e.Err)
}

func (e *EntryError) Unwrap() error { return e.Err }

// applyOne applies one command. An error of the store is about the disk, any other and a panic about the entry.
func (f *FSM) applyOne(b *store.Batch, l *raft.Log) (reply any, err error) {
	defer func() {
		if r := recover(); r != nil {
			f.o.Logger.Error("panic in apply", "index", l.Index, "panic", r, "stack", string(debug.Stack()))
			err = &EntryError{l.Index, l.Term, fmt.Errorf("%w: %v", errPanic, r)}
		}
	}()
	cmd, err := Decode(l.Data)
	if err != nil {
		return nil, &EntryError{l.Index, l.Term, err}
	}
	if reply, err = apply(b, cmd, l.Term); err == nil {
		err = CheckLevel(b.Info().Level, f.o.Level)
	}
	if s, ok := cmd.(*Stamp); ok && s.Term == l.Term {
		f.Recent.Hear(chain.Point{Index: s.Index, Chain: s.Chain})
	}
	return reply, err
}

func fill(out []any, err error) []any {
	for i := range out {
		out[i] = err
	}
	return out
}

// applyInParts applies entries in one transaction, or in one up to each entry at which the state is to be looked at.
func (f *FSM) applyInParts(logs []*raft.Log, out []any) error {
	for len(logs) > 0 {
		n, scrub := f.scrubs(logs)
		if err := f.applyAll(logs[:n], out[:n]); err != nil {
			return err
		}
		if scrub != nil {
			f.scrub(logs[n-1].Index, scrub)
		}
		logs, out = logs[n:], out[n:]
	}
	return nil
}

func (f *FSM) applyAll(logs []*raft.Log, out []any) (err error) {
	// A damaged page number leads behind the end of the file, which would otherwise end the process without a word.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, r, debug.Stack())
		}
	}()
	b, err := f.st.Begin()
	if err != nil {
		return err
	}
	changed := false
	for i, l := range logs {
		if l.Index <= b.C.Index {
			out[i] = errReplayed
			continue
		}
		changed = true
		b.C.Index, b.C.Term = l.Index, l.Term
		b.C.Chain = f.Recent.Add(b.C.Chain, l, f.o.Skip[l.Index] == l.Term)
		if l.Type != raft.LogCommand {
			continue // configuration entries come along in a batch; only their index matters here
		}
		if term, ok := f.o.Skip[l.Index]; ok && term == l.Term {
			f.o.Logger.Error("log entry skipped because this node was told to", "index", l.Index, "term", l.Term)
			out[i] = errSkipped
			continue
		}
		if out[i], err = f.applyOne(b, l); err != nil {
			b.Rollback()
			return err
		}
	}
	if !changed {
		b.Rollback()
		return nil
	}
	return b.Commit()
}

// applier is one command being applied. Its methods return an error only if the store failed, which ends the process;
// whatever is wrong with an item is in the item's outcome.
type applier struct {
	b     *store.Batch
	now   int64  // the stamp
	mark  int64  // the highest stamp before this one
	term  uint64 // of the log entry
	reply *Reply

	// For the audit record: what was created, and the request that asked for it.
	made    made
	request string

	// What an item that ends an attempt works on; the next item overwrites it. On the heap they would be three
	// allocations an item.
	scratch struct {
		row    store.Row
		state  store.State
		record store.Record
	}
}

// apply changes the state by one command. term is that of the log entry.
func apply(b *store.Batch, cmd Command, term uint64) (*Reply, error) {
	h, n := cmd.head(), cmd.items()
	a := &applier{b: b, now: h.Now, mark: b.C.Mark, term: term, reply: &Reply{Items: make([]Outcome, 0, n)}}
	if h.Term != term && !mutant.On(mutant.ForgetTerm) {
		// The proposer led in another term than the one in which the entry was written: what it computed may be about
		// another leader's state.
		return a.all(n, Outcome{Code: CodeStale}), nil
	}
	if h.Now < 0 || h.Now > maxTime {
		return a.all(n, Outcome{Code: CodeRefused, Text: "the stamp is out of range"}), nil
	}
	b.C.Mark = max(b.C.Mark, h.Now)
	if b.Info().Hold.On && cmd.stopsOnHold() {
		return a.all(n, Outcome{Code: CodeStale}), nil
	}
	if c, ok := cmd.(recorded); ok && h.By != nil {
		return a.reply, a.applyRecorded(c, h.By)
	}
	return a.reply, cmd.apply(a)
}

// latest is by when what a run was in the way of had come: the stamp, and not less than the mark. A leader whose clock
// was set back records results by that clock while it holds. What may be claimed from now on has the stamp itself: if
// the mark was set too high by a clock, it would otherwise wait for that after a reset.
func (a *applier) latest() int64 {
	if mutant.On(mutant.EndsBeforeMark) {
		return a.now
	}
	return max(a.now, a.b.C.Mark)
}

// all answers every item alike.
func (a *applier) all(n int, o Outcome) *Reply {
	for range n {
		a.outcome(o)
	}
	return a.reply
}

func (a *applier) outcome(o Outcome) { a.reply.Items = append(a.reply.Items, o) }
