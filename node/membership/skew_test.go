package membership

import (
	"testing"
	"time"
)

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
