package stamp

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// handClock is moved by hand.
type handClock struct {
	wall time.Time
	mono time.Duration
}

func (c *handClock) Now() time.Time      { return c.wall }
func (c *handClock) Mono() time.Duration { return c.mono }
func (c *handClock) pass(d time.Duration) {
	c.wall = c.wall.Add(d)
	c.mono += d
}

// stopping is a clock whose process is stopped each time it has read the wall clock, some times.
type stopping struct {
	handClock
	times int
}

func (c *stopping) Now() time.Time {
	now := c.wall
	if c.times > 0 {
		c.times--
		c.pass(3 * time.Second)
	}
	return now
}

// A process that is stopped between its looks at the wall clock and at the monotonic one sees no jump. It held for ten
// seconds before.
func TestStoppedWhileLooking(t *testing.T) {
	h := &stopping{handClock: handClock{wall: time.UnixMilli(1_000_000_000)}, times: 2}
	c := New(h, 10*time.Second, func() int64 { return 1_000_000_000 }, nil)
	if now, ok := c.Resume(); !ok || !c.Resumed() || now != 1_000_006_000 {
		t.Fatalf("takes over at %d: %v", now, ok)
	}
	for range 3 {
		h.times = 1
		if now, err := c.Now(); err != nil || now != h.wall.UnixMilli() {
			t.Errorf("%d, %v at %d", now, err, h.wall.UnixMilli())
		}
	}
	h.times = 1 << 30 // a clock that never stands still is looked at all the same
	if _, err := c.Now(); err == nil {
		t.Error("a stamp of a clock that cannot be read")
	}
}

func TestStamper(t *testing.T) {
	t0 := time.UnixMilli(1_000_000_000)
	mark := t0.UnixMilli()
	var skew time.Duration
	alone := false
	begin := func() (*handClock, *Stamper) {
		skew = 0
		mark = t0.UnixMilli()
		h := &handClock{wall: t0}
		c := New(h, 10*time.Second, func() int64 { return mark }, func() (time.Duration, bool) { return skew, !alone })
		if _, err := c.Now(); err == nil {
			t.Fatal("a stamp before the takeover")
		}
		if now, ok := c.Resume(); !ok || now != mark || !c.Resumed() {
			t.Fatal("no takeover")
		}
		return h, c
	}
	wantHold := func(t *testing.T, c *Stamper, text string) {
		t.Helper()
		c.Resume() // the loop does that in every turn
		if _, err := c.Now(); job.CodeOf(err) != job.CodeNotReady || !strings.Contains(err.Error(), text) {
			t.Fatalf("error %v, want %q", err, text)
		}
		if _, ok := c.Resume(); ok {
			t.Fatal("resumes")
		}
	}
	t.Run("stamps never decrease", func(t *testing.T) {
		h, c := begin()
		h.pass(5 * time.Second)
		a, _ := c.Now()
		h.wall = h.wall.Add(-900 * time.Millisecond) // within what slewing and leap seconds do
		b, err := c.Now()
		if err != nil || b != a {
			t.Errorf("%d after %d (%v)", b, a, err)
		}
		h.wall = h.wall.Add(-900 * time.Millisecond) // but not for ever
		wantHold(t, c, "behind the committed mark")
	})
	t.Run("a jump forward holds until the clock is steady, then takes over anew", func(t *testing.T) {
		h, c := begin()
		h.wall = h.wall.Add(2 * time.Hour)
		wantHold(t, c, "jumped by +2h0m0s")
		h.pass(9 * time.Second)
		wantHold(t, c, "jumped by +2h0m0s")
		if got, after, trusted := c.ForReport(); got != mark || after != mark+9000 || trusted {
			t.Errorf("a result is stamped %d, not with the last stamp", got)
		}
		h.pass(2 * time.Second)
		if now, ok := c.Resume(); !ok || now != h.wall.UnixMilli() {
			t.Fatal("does not resume")
		}
		if _, err := c.Now(); err == nil {
			t.Error("stamps before the takeover is committed")
		}
		if !c.Resumed() {
			t.Fatal("not resumed")
		}
		if _, err := c.Now(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a jump that is taken back in time changes nothing", func(t *testing.T) {
		h, c := begin()
		h.wall = h.wall.Add(2 * time.Hour)
		wantHold(t, c, "jumped")
		h.pass(5 * time.Second)
		c.Holding()
		h.wall = h.wall.Add(-2 * time.Hour)
		wantHold(t, c, "jumped by +0s")
		h.pass(11 * time.Second)
		if now, ok := c.Resume(); !ok || now != mark+16_000 {
			t.Errorf("resumes at %d", now-mark)
		}
	})
	t.Run("a jump back holds until the mark is reached", func(t *testing.T) {
		h, c := begin()
		h.wall = h.wall.Add(-time.Hour)
		wantHold(t, c, "jumped by -1h0m0s")
		h.pass(time.Minute)
		wantHold(t, c, "59m0s behind the committed mark")
		if got, after, trusted := c.ForReport(); got != h.wall.UnixMilli() || after != mark+60_000 || trusted {
			t.Errorf("a result is stamped %d", got-mark)
		}
		h.pass(59 * time.Minute)
		if now, ok := c.Resume(); !ok || now != mark {
			t.Error("does not resume at the mark")
		}
	})
	t.Run("clock-reset lowers the mark", func(t *testing.T) {
		h, c := begin()
		h.wall = h.wall.Add(-time.Hour)
		wantHold(t, c, "jumped")
		h.pass(time.Minute)
		wantHold(t, c, "behind")
		mark = h.wall.UnixMilli()
		c.Reset(mark)
		if now, ok := c.Resume(); !ok || now != mark {
			t.Error("does not resume after a reset")
		}
	})
	t.Run("a clock that differs from the majority holds", func(t *testing.T) {
		h, c := begin()
		skew = -6 * time.Second
		wantHold(t, c, "differs by -6s")
		h.pass(time.Minute)
		wantHold(t, c, "differs by -6s")
		skew = time.Second
		if _, ok := c.Resume(); !ok {
			t.Error("does not resume")
		}
	})
	t.Run("no leader begins to stamp before a majority's clocks are known", func(t *testing.T) {
		h, c := begin()
		alone = true
		defer func() { alone = false }()
		if _, err := c.Now(); err != nil {
			t.Errorf("one that was right a moment ago stops: %v", err)
		}
		c = New(h, 10*time.Second, func() int64 { return mark }, func() (time.Duration, bool) { return skew, !alone })
		h.pass(time.Hour)
		wantHold(t, c, "what time a majority")
		alone, skew = false, 2*time.Minute // it was two minutes ahead all the time
		wantHold(t, c, "differs by 2m0s")
		skew = time.Second
		if _, ok := c.Resume(); !ok {
			t.Error("does not resume")
		}
	})
	t.Run("a jump while resuming", func(t *testing.T) {
		h, c := begin()
		h.wall = h.wall.Add(2 * time.Hour)
		c.Holding()
		h.pass(10 * time.Second)
		if _, ok := c.Resume(); !ok {
			t.Fatal()
		}
		h.wall = h.wall.Add(time.Hour)
		if c.Resumed() {
			t.Error("resumed in spite of a jump")
		}
		wantHold(t, c, "jumped")
	})
}

// A clock that drifts by a millisecond a second never jumps; what stops its leader is the distance from the others.
func TestClockDrifts(t *testing.T) {
	h := &handClock{wall: time.UnixMilli(1_000_000_000)}
	mark := h.wall.UnixMilli()
	var skew time.Duration
	c := New(h, 10*time.Second, func() int64 { return mark }, func() (time.Duration, bool) { return skew, true })
	if _, ok := c.Resume(); !ok || !c.Resumed() {
		t.Fatal("no takeover")
	}
	for i := range 6000 {
		h.pass(time.Second)
		h.wall = h.wall.Add(time.Millisecond)
		skew += time.Millisecond
		_, err := c.Now()
		if i < 5000 && err != nil {
			t.Fatalf("%s off: %v", skew, err)
		}
		if i >= 5000 && (err == nil || c.state != skewed) {
			t.Fatalf("%s off: %v", skew, err)
		}
	}
}
