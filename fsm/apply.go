package fsm

import (
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// applier is one command being applied. Its methods return an error only if the store failed, which ends the process;
// whatever is wrong with an item is in the item's outcome.
type applier struct {
	b     *store.Batch
	now   int64  // the stamp
	mark  int64  // the highest stamp before this one
	term  uint64 // of the log entry
	reply *Reply

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
	return a.reply, cmd.apply(a)
}

// all answers every item alike.
func (a *applier) all(n int, o Outcome) *Reply {
	for range n {
		a.outcome(o)
	}
	return a.reply
}

func (a *applier) outcome(o Outcome) { a.reply.Items = append(a.reply.Items, o) }
