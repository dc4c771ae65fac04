package fsm

import (
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/store"
)

// Scrub changes nothing. It names a range of the state, of which every replica makes a hash as the state is at exactly
// this entry, and says what came of an earlier range. Its outcome has the entry in the place of a fence. See package
// scrub of the node.
type Scrub struct {
	Head   `codec:"h"`
	Bucket string `codec:"b,omitempty"` // where the range begins; Bytes 0: there is none
	Key    []byte `codec:"k,omitempty"`
	Bytes  int    `codec:"n,omitempty"` // where it ends

	At    uint64 `codec:"a,omitempty"` // the entry that named the earlier range; 0: there is none
	Sum   uint64 `codec:"s,omitempty"` // the hash that a majority has
	Split bool   `codec:"p,omitempty"` // no hash has a majority
}

func (*Scrub) apply(a *applier) error {
	a.outcome(Outcome{Code: CodeOK, Fence: a.b.C.Index})
	return nil
}

// Scrubbed is a Scrub that was applied, and the state right after it.
type Scrubbed struct {
	*Scrub
	Index uint64
	Data  *store.Frozen // nil if it names no range; whoever is told closes it
}

// scrubs is where a batch of entries must end, so that the state can be looked at: behind the first entry that names a
// range, or at its end.
func (f *FSM) scrubs(logs []*raft.Log) (until int, scrub *Scrub) {
	if f.o.Scrub == nil {
		return len(logs), nil
	}
	applied := f.st.Counters().Index
	for i, l := range logs {
		if l.Index > applied && l.Type == raft.LogCommand && len(l.Data) > 0 && l.Data[0] == numberOfScrub {
			cmd, err := Decode(l.Data)
			if c, ok := cmd.(*Scrub); ok && err == nil && c.Term == l.Term {
				return i + 1, c
			}
		}
	}
	return len(logs), nil
}

// scrub tells of a Scrub that is in the state. What replicas make of it is not a part of the state.
func (f *FSM) scrub(index uint64, c *Scrub) {
	s := Scrubbed{Scrub: c, Index: index}
	if c.Bytes > 0 {
		var err error
		if s.Data, err = f.st.Freeze(); err != nil {
			f.o.Logger.Warn("state not scrubbed", "error", err)
			return
		}
	}
	f.o.Scrub(s)
}
