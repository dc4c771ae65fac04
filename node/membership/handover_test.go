package membership

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
)

func TestSift(t *testing.T) {
	room := wire.DiskSpace{Free: 10 << 30, Total: 100 << 30, Limit: 1 << 30}
	tight := wire.DiskSpace{Free: 1<<30 + 1, Total: 100 << 30, Limit: 1 << 30}
	low := wire.DiskSpace{Free: 1 << 20, Total: 100 << 30, Limit: 1 << 30, Low: true}
	for name, tc := range map[string]struct {
		list  []candidate
		why   string
		own   time.Duration
		flaps bool
		want  string
	}{
		"half the tolerance": {list: []candidate{{id: "a", off: FitSkew}}, why: UnfitClock, own: time.Minute,
			want: "a"},
		"more than half": {list: []candidate{{id: "a", off: -FitSkew - 1}}, why: UnfitClock,
			own: time.Minute},
		"nearer than itself": {list: []candidate{{id: "a", off: 2 * time.Second}}, why: UnfitClock,
			own: -2 * time.Second},
		"a clock that keeps jumping": {list: []candidate{{id: "a", off: 2 * time.Second}}, why: UnfitClock, flaps: true,
			want: "a"},
		"the one with more log": {list: []candidate{{id: "a", applied: 5},
			{id: "b", off: time.Second, applied: 6}}, why: UnfitClock, own: time.Minute, want: "b"},
		"the one with room": {list: []candidate{{id: "a", applied: 6, disk: low},
			{id: "b", applied: 5, disk: room}}, why: UnfitClock, own: time.Minute, want: "b"},
		"a low disk, if need be": {list: []candidate{{id: "a", disk: low}}, why: UnfitClock, own: time.Minute,
			want: "a"},
		"one that did not fail": {list: []candidate{{id: "a", failed: true}, {id: "b"}}, why: UnfitClock,
			own: time.Minute, want: "b"},
		"room": {list: []candidate{{id: "a", disk: tight}, {id: "b", disk: low},
			{id: "c", disk: room}}, why: UnfitDisk, want: "c"},
		"room and a wrong clock": {list: []candidate{{id: "c", disk: room, off: time.Minute}}, why: UnfitDisk},
		"room that is not known": {list: []candidate{{id: "c"}}, why: UnfitDisk},
	} {
		fit, rest := fitToLead(tc.list, tc.why, tc.own, tc.flaps)
		got := ""
		if len(fit) > 0 {
			got = slices.MinFunc(fit, byFitness).id
		}
		if got != tc.want || len(fit)+len(rest) != len(tc.list) {
			t.Errorf("%s: %q, not for %q", name, got, rest)
		}
	}
}
