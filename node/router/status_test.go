package router

import (
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// Groups that have no leader for the same reason are one trouble.
func TestLeaderlessGroupsAreNamedTogether(t *testing.T) {
	lost := wire.Trouble{Code: wire.TroubleNoLeader, Text: "no node leads: n2 is missing", Remedy: "start it"}
	other := wire.Trouble{Code: wire.TroubleNoLeader, Text: "an election is under way"}
	low := wire.Trouble{Code: wire.TroubleHold, Text: "a clock is wrong"}
	to := wire.Status{Troubles: []wire.Trouble{low, lost}}
	nameLeaderless(&to, []uint32{1, 2, 3}, []wire.Status{
		{Troubles: []wire.Trouble{lost}}, {Troubles: []wire.Trouble{other, low}}, {Troubles: []wire.Trouble{lost}},
	})
	want := []string{"groups 0, 1, 3: no node leads: n2 is missing", "group 2: an election is under way",
		"a clock is wrong"}
	if len(to.Troubles) != len(want) {
		t.Fatalf("%+v", to.Troubles)
	}
	for i, text := range want {
		if to.Troubles[i].Text != text {
			t.Errorf("%q, want %q", to.Troubles[i].Text, text)
		}
	}
}
