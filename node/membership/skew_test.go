package membership

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
		if got, known := nearMajority(slices.Clone(tc.offsets), tc.voters); got != tc.want || known != tc.known {
			t.Errorf("%v of %d: %v %v", tc.offsets, tc.voters, got, known)
		}
	}
}

func TestMedianOf(t *testing.T) {
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
		if got, known := medianOf(append([]time.Duration(nil), tc.offsets...), tc.voters); got != tc.want ||
			known != tc.known {
			t.Errorf("%v of %d: %v %v", tc.offsets, tc.voters, got, known)
		}
	}
}

// setClock is a clock that can be set.
type setClock struct {
	wall time.Time
	mono time.Duration
}

func (c *setClock) Now() time.Time      { return c.wall }
func (c *setClock) Mono() time.Duration { return c.mono }

func (c *setClock) pass(d time.Duration) { c.wall, c.mono = c.wall.Add(d), c.mono+d }

// What was measured before this node's clock was set still says how far it is off now. Compared with the clock as it
// was, a leader whose clock jumped by a day and stayed steady for the time of its hold went on, if the others had not
// been asked again since.
func TestMeasurementOutlivesAJumpOfOurClock(t *testing.T) {
	c := &setClock{wall: time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC), mono: time.Hour}
	s := probeReply{clock: c.wall.Add(3 * time.Second), mono: c.mono}
	c.pass(5 * time.Second)
	if d := s.offset(c); d != 3*time.Second {
		t.Errorf("%s after a while", d)
	}
	c.wall = c.wall.Add(26 * time.Hour)
	c.pass(5 * time.Second)
	if d := s.offset(c); d != 3*time.Second-26*time.Hour {
		t.Errorf("%s after a jump", d)
	}
}
