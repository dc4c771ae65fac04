package stamp

import (
	"cmp"
	"slices"
	"time"
)

// NearMajority is how far from our clock one has to look to find a majority of all voters' (ours is one of them). That
// is stricter than the distance from the median: of three clocks that all differ, one is the median, and no two agree.
func NearMajority(offsets []time.Duration, voters int) (time.Duration, bool) {
	if len(offsets) <= voters/2 {
		return 0, false
	}
	slices.SortFunc(offsets, func(a, b time.Duration) int { return cmp.Compare(a.Abs(), b.Abs()) })
	return offsets[voters/2], true
}

// Median is the middle of the offsets if they are a majority's. Of two in the middle the one that is farther from
// ours counts: with two clocks that disagree there is no majority on our side.
func Median(offsets []time.Duration, voters int) (time.Duration, bool) {
	if len(offsets) < 2 || len(offsets) <= voters/2 {
		return 0, false
	}
	slices.Sort(offsets)
	m := offsets[len(offsets)/2]
	if len(offsets)%2 == 0 {
		if other := offsets[len(offsets)/2-1]; other.Abs() > m.Abs() {
			m = other
		}
	}
	return m, true
}
