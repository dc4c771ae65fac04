package datadir

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/node/raftlog"
)

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
		{name: "barriers between the state and the snapshot", first: 30, last: 50, snap: 40, state: 38, index: 38,
			term: 3},
		{name: "compacted up to barriers", first: 39, last: 50, snap: 40, state: 38, index: 38, term: 3},
		{name: "a snapshot was installed", first: 1, last: 20, current: 6, snap: 60, state: 60, index: 60, term: 6},

		{name: "a state past its snapshot was received", first: 1, last: 20, current: 6, snap: 60, state: 65,
			stateTerm: 6, index: 65, term: 6},
		{name: "a state past its snapshot was received, and some entries", first: 61, last: 63, snap: 60, state: 65,
			stateTerm: 6, index: 65, term: 6},
		{name: "a state past its snapshot was received, and more entries", first: 61, last: 67, snap: 60, state: 65,
			stateTerm: 6, index: 66, term: 6},

		{name: "past the state that was received", first: 61, last: 63, snap: 60, state: 65, stateTerm: 6, index: 66,
			term: 6, want: "ends at 65"},
		{name: "another state than was received", first: 61, last: 63, snap: 60, state: 65, stateTerm: 6, index: 65,
			term: 5, want: "term 5"},
		{name: "the log was rolled back behind a state of its own", first: 61, last: 63, snap: 60, state: 65, index: 65,
			term: 6, want: "ends at 63"},
		{name: "the log was lost", index: 50, term: 5, want: "ends at 0"},
		{name: "the log was lost, the snapshot was not", snap: 50, index: 50, term: 5, want: "is at term 0"},
		{name: "the log was rolled back", first: 1, last: 40, index: 50, term: 5, want: "ends at 40"},
		{name: "the log was rolled back to before the snapshot", first: 1, last: 30, snap: 50, index: 50, term: 5,
			want: "is at term 3"},
		{name: "another log", first: 1, last: 60, index: 50, term: 4, want: "term 4"},
		{name: "another snapshot", snap: 40, current: 4, index: 40, term: 3, want: "term 3"},
		{name: "the state was rolled back", first: 30, last: 50, snap: 40, index: 35, term: 3,
			want: "ends at entry 35"},
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
			if err := raftlog.SetTerm(log, max(tc.current, tc.last/10)); err != nil {
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
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) ||
				!strings.Contains(err.Error(), "backup")):
				t.Errorf("got %v, want something about %q and the way out", err, tc.want)
			}
		})
	}
}
