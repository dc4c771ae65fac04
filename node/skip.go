package node

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// differs says how a member is not like this node in what must be the same everywhere: the entries that both have got to and only one
// passed over. One that joined after the other was told got the state as a whole, without the entry.
func (m *members) differs(o *sighting, its, own store.Node) string {
	got := min(m.g.store.Counters().Index, o.Applied)
	lacks := func(told, other []datadir.SkippedEntry, joined int64) (uint64, bool) {
		for _, s := range told {
			if s.Index <= got && joined <= int64(s.At) && !slices.ContainsFunc(other, func(x datadir.SkippedEntry) bool { return x.Index == s.Index }) {
				return s.Index, true
			}
		}
		return 0, false
	}
	if i, yes := lacks(m.n.dir.Skips, o.Skips, its.JoinedAt); yes {
		return fmt.Sprintf("it was not told to pass over entry %d as this node was, and its state differs: empty its data directory and let it join again", i)
	}
	if i, yes := lacks(o.Skips, m.n.dir.Skips, own.JoinedAt); yes {
		return fmt.Sprintf("it passed over entry %d and this node did not, so their states differ: empty the data directory of one and let it join again", i)
	}
	return ""
}

// skipped is what status shows of the entries that a node passes over.
func skipped(entries []datadir.SkippedEntry) (out []client.SkippedEntry) {
	for _, e := range entries {
		out = append(out, client.SkippedEntry(e))
	}
	return out
}
