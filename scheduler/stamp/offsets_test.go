package stamp

import (
	"slices"
	"testing"
	"time"
)

// A leader may stamp only if a majority of all voters, itself included, has about its time. Of three clocks that all
// differ the one in the middle is no node's time either: it once stamped two minutes ahead because one clock was right
// and the other a day ahead.
func TestNearMajority(t *testing.T) {
	for _, tc := range []struct {
		offsets []time.Duration
		voters  int
		want    time.Duration
		known   bool
	}{
		{[]time.Duration{0}, 1, 0, true},
		{[]time.Duration{0}, 2, 0, false},
		{[]time.Duration{0}, 3, 0, false},
		{[]time.Duration{0, 9}, 3, 9, true},
		{[]time.Duration{0, -9}, 2, -9, true},
		{[]time.Duration{0, 1, 900}, 3, 1, true},
		{[]time.Duration{0, -120, 90_000}, 3, -120, true},
		{[]time.Duration{0, -900, -901}, 3, -900, true},
		{[]time.Duration{0, 5}, 5, 0, false},
		{[]time.Duration{0, 5, 6}, 5, 6, true},
		{[]time.Duration{0, 5, 6, -1}, 5, 5, true},
		{[]time.Duration{0, 1, 2, 900}, 4, 2, true},
	} {
		if got, known := NearMajority(slices.Clone(tc.offsets), tc.voters); got != tc.want || known != tc.known {
			t.Errorf("%v of %d: %v %v", tc.offsets, tc.voters, got, known)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		offsets []time.Duration
		voters  int
		want    time.Duration
		known   bool
	}{
		{[]time.Duration{0}, 1, 0, false},
		{[]time.Duration{0}, 3, 0, false},
		{[]time.Duration{0, 9}, 3, 9, true},
		{[]time.Duration{0, -9}, 2, -9, true},
		{[]time.Duration{0, 1, 900}, 3, 1, true},
		{[]time.Duration{0, -900, -901}, 3, -900, true},
		{[]time.Duration{0, 5}, 5, 0, false},
		{[]time.Duration{0, 5, 6}, 5, 5, true},
		{[]time.Duration{0, 5, 6, -1}, 5, 5, true},
	} {
		if got, known := Median(append([]time.Duration(nil), tc.offsets...), tc.voters); got != tc.want ||
			known != tc.known {
			t.Errorf("%v of %d: %v %v", tc.offsets, tc.voters, got, known)
		}
	}
}
