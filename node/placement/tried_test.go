package placement

import (
	"testing"

	"github.com/hashicorp/raft"
)

// Raft is asked for a transfer once for each server and term.
func TestTried(t *testing.T) {
	var tr Tried
	begin := func(id string, term uint64, want int) {
		t.Helper()
		if n := tr.Begin(raft.ServerID(id), term); n != want {
			t.Errorf("%s in term %d: %d tries before, not %d", id, term, n, want)
		}
	}
	begin("a", 4, 0)
	begin("a", 4, 1) // also while the first is under way
	begin("b", 4, 0)
	begin("a", 6, 0)
	begin("a", 5, 0) // late: nothing of the newer term is forgotten for it
	begin("a", 6, 1)
	begin("b", 6, 0)
	if n := tr.Times(raft.ServerID("a"), 6); n != 2 {
		t.Errorf("%d tries", n)
	}
	if n := tr.Times(raft.ServerID("a"), 7); n != 0 {
		t.Errorf("%d tries in a term that is new", n)
	}
}
