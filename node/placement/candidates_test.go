package placement

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
		list  []Candidate
		why   string
		own   time.Duration
		flaps bool
		want  string
	}{
		"half the tolerance": {list: []Candidate{{ID: "a", Off: FitSkew}}, why: UnfitClock, own: time.Minute,
			want: "a"},
		"more than half": {list: []Candidate{{ID: "a", Off: -FitSkew - 1}}, why: UnfitClock,
			own: time.Minute},
		"nearer than itself": {list: []Candidate{{ID: "a", Off: 2 * time.Second}}, why: UnfitClock,
			own: -2 * time.Second},
		"a clock that keeps jumping": {list: []Candidate{{ID: "a", Off: 2 * time.Second}}, why: UnfitClock, flaps: true,
			want: "a"},
		"the one with more log": {list: []Candidate{{ID: "a", Applied: 5},
			{ID: "b", Off: time.Second, Applied: 6}}, why: UnfitClock, own: time.Minute, want: "b"},
		"the one with room": {list: []Candidate{{ID: "a", Applied: 6, Disk: low},
			{ID: "b", Applied: 5, Disk: room}}, why: UnfitClock, own: time.Minute, want: "b"},
		"a low disk, if need be": {list: []Candidate{{ID: "a", Disk: low}}, why: UnfitClock, own: time.Minute,
			want: "a"},
		"one that did not fail": {list: []Candidate{{ID: "a", Failed: true}, {ID: "b"}}, why: UnfitClock,
			own: time.Minute, want: "b"},
		"room": {list: []Candidate{{ID: "a", Disk: tight}, {ID: "b", Disk: low},
			{ID: "c", Disk: room}}, why: UnfitDisk, want: "c"},
		"room and a wrong clock": {list: []Candidate{{ID: "c", Disk: room, Off: time.Minute}}, why: UnfitDisk},
		"room that is not known": {list: []Candidate{{ID: "c"}}, why: UnfitDisk},
	} {
		fit, rest := FitToLead(tc.list, tc.why, tc.own, tc.flaps)
		got := ""
		if len(fit) > 0 {
			got = slices.MinFunc(fit, ByFitness).ID
		}
		if got != tc.want || len(fit)+len(rest) != len(tc.list) {
			t.Errorf("%s: %q, not for %q", name, got, rest)
		}
	}
}
