package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
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

func TestStamper(t *testing.T) {
	t0 := time.UnixMilli(1_000_000_000)
	mark := t0.UnixMilli()
	var skew time.Duration
	alone := false
	begin := func() (*handClock, *stamper) {
		skew = 0
		mark = t0.UnixMilli()
		h := &handClock{wall: t0}
		c := newStamper(h, 10*time.Second, func() int64 { return mark }, func() (time.Duration, bool) { return skew, !alone })
		if _, err := c.now(); err == nil {
			t.Fatal("a stamp before the takeover")
		}
		if now, ok := c.resume(); !ok || now != mark || !c.resumed() {
			t.Fatal("no takeover")
		}
		return h, c
	}
	wantHold := func(t *testing.T, c *stamper, text string) {
		t.Helper()
		c.resume() // the loop does that in every turn
		if _, err := c.now(); job.CodeOf(err) != job.CodeNotReady || !strings.Contains(err.Error(), text) {
			t.Fatalf("error %v, want %q", err, text)
		}
		if _, ok := c.resume(); ok {
			t.Fatal("resumes")
		}
	}
	t.Run("stamps never decrease", func(t *testing.T) {
		h, c := begin()
		h.pass(5 * time.Second)
		a, _ := c.now()
		h.wall = h.wall.Add(-900 * time.Millisecond) // within what slewing and leap seconds do
		b, err := c.now()
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
		if got, after, trusted := c.forReport(); got != mark || after != mark+9000 || trusted {
			t.Errorf("a result is stamped %d, not with the last stamp", got)
		}
		h.pass(2 * time.Second)
		if now, ok := c.resume(); !ok || now != h.wall.UnixMilli() {
			t.Fatal("does not resume")
		}
		if _, err := c.now(); err == nil {
			t.Error("stamps before the takeover is committed")
		}
		if !c.resumed() {
			t.Fatal("not resumed")
		}
		if _, err := c.now(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a jump that is taken back in time changes nothing", func(t *testing.T) {
		h, c := begin()
		h.wall = h.wall.Add(2 * time.Hour)
		wantHold(t, c, "jumped")
		h.pass(5 * time.Second)
		c.holding()
		h.wall = h.wall.Add(-2 * time.Hour)
		wantHold(t, c, "jumped by +0s")
		h.pass(11 * time.Second)
		if now, ok := c.resume(); !ok || now != mark+16_000 {
			t.Errorf("resumes at %d", now-mark)
		}
	})
	t.Run("a jump back holds until the mark is reached", func(t *testing.T) {
		h, c := begin()
		h.wall = h.wall.Add(-time.Hour)
		wantHold(t, c, "jumped by -1h0m0s")
		h.pass(time.Minute)
		wantHold(t, c, "59m0s behind the committed mark")
		if got, after, trusted := c.forReport(); got != h.wall.UnixMilli() || after != mark+60_000 || trusted {
			t.Errorf("a result is stamped %d", got-mark)
		}
		h.pass(59 * time.Minute)
		if now, ok := c.resume(); !ok || now != mark {
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
		c.reset(mark)
		if now, ok := c.resume(); !ok || now != mark {
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
		if _, ok := c.resume(); !ok {
			t.Error("does not resume")
		}
	})
	t.Run("no leader begins to stamp before a majority's clocks are known", func(t *testing.T) {
		h, c := begin()
		alone = true
		defer func() { alone = false }()
		if _, err := c.now(); err != nil {
			t.Errorf("one that was right a moment ago stops: %v", err)
		}
		c = newStamper(h, 10*time.Second, func() int64 { return mark }, func() (time.Duration, bool) { return skew, !alone })
		h.pass(time.Hour)
		wantHold(t, c, "what time a majority")
		alone, skew = false, 2*time.Minute // it was two minutes ahead all the time
		wantHold(t, c, "differs by 2m0s")
		skew = time.Second
		if _, ok := c.resume(); !ok {
			t.Error("does not resume")
		}
	})
	t.Run("a jump while resuming", func(t *testing.T) {
		h, c := begin()
		h.wall = h.wall.Add(2 * time.Hour)
		c.holding()
		h.pass(10 * time.Second)
		if _, ok := c.resume(); !ok {
			t.Fatal()
		}
		h.wall = h.wall.Add(time.Hour)
		if c.resumed() {
			t.Error("resumed in spite of a jump")
		}
		wantHold(t, c, "jumped")
	})
}

func TestClockJumpForward(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 2, nil).mustJoin()
		hourly := w.create("30 * * * *", missedSpec(job.MissedRunOnce, "3h", 0))
		long := w.create("@manual", nil)
		f.handle = takes(5 * time.Second)
		w.trigger(long)
		time.Sleep(time.Second)
		w.clock.jump(2 * time.Hour) // the clock is set
		time.Sleep(2 * time.Second)
		if err := w.s.Ready(); job.CodeOf(err) != job.CodeNotReady || !strings.Contains(err.Error(), "jumped by +2h") {
			t.Errorf("ready: %v", err)
		}
		if _, err := w.s.Stamp(); job.CodeOf(err) != job.CodeNotReady {
			t.Errorf("stamp: %v", err)
		}
		if why := w.s.Clock(); !why.Holding {
			t.Errorf("%+v", why)
		}
		time.Sleep(4 * time.Second)
		w.wantHistory(long, "succeeded") // results are recorded during a hold
		if n := len(f.ranOf(hourly)); n != 0 {
			t.Errorf("%d claims during a hold", n)
		}
		time.Sleep(6 * time.Second)
		if err := w.s.Ready(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		// No node led from 01:00 to 03:00, as far as is known: 01:30 and 02:30 are missed, and the latest is run.
		w.wantHistory(hourly, "missed(outage)x1", "succeeded")
	})
}

func TestClockJumpBack(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 2, nil).mustJoin()
		id := w.create("* * * * *", nil)
		time.Sleep(150 * time.Second)
		before := len(f.ranOf(id))
		w.clock.jump(-time.Hour)
		time.Sleep(5 * time.Minute)
		if n := len(f.ranOf(id)); n != before {
			t.Errorf("%d runs while the clock is behind", n-before)
		}
		err := w.s.Ready()
		if err == nil || !strings.Contains(err.Error(), "clock-reset") {
			t.Fatalf("ready: %v", err)
		}
		h := w.s.head(w.s.ResetStamp())
		if _, err := w.s.Propose(context.Background(), &fsm.ClockReset{Head: h}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := w.s.Ready(); err != nil {
			t.Fatalf("after the reset: %v", err)
		}
		// The job's next occurrence is where it was; a new one fires by the new time, and not before it.
		other := w.create("* * * * *", nil)
		time.Sleep(150 * time.Second)
		if n := len(f.ranOf(other)); n < 2 || n > 3 {
			t.Errorf("%d runs in two and a half minutes", n)
		}
		for _, r := range f.ran() {
			if lag := r.at.Add(-time.Hour).Sub(time.UnixMilli(r.Run.At)); r.Run.Job == other && (lag < 0 || lag > 50*time.Millisecond) {
				t.Errorf("fired %s after its time", lag)
			}
		}
		times := f.ranOf(id)
		for i := 1; i < len(times); i++ {
			if times[i] <= times[i-1] {
				t.Errorf("an occurrence was repeated: %v", times)
			}
		}
	})
}

func TestTakeoverWaitsForTheMark(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		time.Sleep(30 * time.Second)
		w.stop()
		w.clock.jump(-5 * time.Minute) // the next leader is another machine
		w.start()
		time.Sleep(time.Minute)
		if err := w.s.Ready(); err == nil || !strings.Contains(err.Error(), "behind the committed mark") {
			t.Errorf("ready: %v", err)
		}
		wantCode(t, w.worker("w1", 1, nil).join(), job.CodeNotReady)
		time.Sleep(4*time.Minute + time.Second)
		if err := w.s.Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestIdleLeaderCommitsItsClock(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		for range 20 {
			time.Sleep(30 * time.Second)
			if behind := w.clock.Now().UnixMilli() - w.st.Counters().Mark; behind > 12_000 {
				t.Errorf("the mark is %d ms old", behind)
			}
		}
	})
}

// A result that comes while the leader holds is not recorded as ended before it was claimed.
func TestResultDuringAHold(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 2, nil).mustJoin()
		id := w.create("@manual", nil)
		f.handle = takes(5 * time.Second)
		w.trigger(id)
		time.Sleep(time.Second)
		w.clock.jump(-2 * time.Hour)
		time.Sleep(10 * time.Second)
		var rec store.Record
		if err := w.st.View(func(v *store.View) error {
			return v.EachRecord(0, func(_ uint64, r store.Record) bool { rec = r; return true })
		}); err != nil {
			t.Fatal(err)
		}
		if rec.Job != id || rec.Status != job.RunSucceeded || rec.StartedAt < rec.ClaimedAt || rec.EndedAt < rec.ClaimedAt {
			t.Errorf("%+v", rec)
		}
	})
}

// A planned transfer commits a stamp first: an idle leader stamps every ten seconds, and what it was idle for would be
// an outage to the next.
func TestCommitStamp(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			for w.clock.Now().UnixMilli()-w.st.Counters().Mark < 5_000 {
				time.Sleep(100 * time.Millisecond)
			}
			if sealed {
				if err := w.s.CommitStamp(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.stop()
			w.start()
			time.Sleep(time.Second)
			if err := w.s.Ready(); err != nil {
				t.Fatal(err)
			}
			if got := w.st.Info().Outages; (len(got) == 0) != sealed {
				t.Errorf("sealed %t: outages %v", sealed, got)
			}
		})
	}
	run(t, func(t *testing.T, w *world) {
		w.lead()
		time.Sleep(3 * time.Second)
		mark := w.st.Counters().Mark
		w.clock.jump(time.Hour)
		time.Sleep(2 * time.Second)
		wantCode(t, w.s.CommitStamp(t.Context()), job.CodeNotReady)
		if got := w.st.Counters().Mark; got != mark {
			t.Errorf("the mark was moved by %d ms", got-mark)
		}
		if c := w.s.Clock(); c.Kind != HoldJumped || c.For < time.Second || c.For > 3*time.Second || c.Remedy == "" {
			t.Errorf("%+v", c)
		}
	})
}

// A clock that drifts by a millisecond a second never jumps; what stops its leader is the distance from the others.
func TestClockDrifts(t *testing.T) {
	h := &handClock{wall: time.UnixMilli(1_000_000_000)}
	mark := h.wall.UnixMilli()
	var skew time.Duration
	c := newStamper(h, 10*time.Second, func() int64 { return mark }, func() (time.Duration, bool) { return skew, true })
	if _, ok := c.resume(); !ok || !c.resumed() {
		t.Fatal("no takeover")
	}
	for i := range 6000 {
		h.pass(time.Second)
		h.wall = h.wall.Add(time.Millisecond)
		skew += time.Millisecond
		_, err := c.now()
		if i < 5000 && err != nil {
			t.Fatalf("%s off: %v", skew, err)
		}
		if i >= 5000 && (err == nil || c.state != clockSkewed) {
			t.Fatalf("%s off: %v", skew, err)
		}
	}
}
