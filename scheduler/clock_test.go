package scheduler

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
)

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
		if c := w.s.Clock(); c.Kind != stamp.HoldJumped || c.For < time.Second || c.For > 3*time.Second || c.Remedy == "" {
			t.Errorf("%+v", c)
		}
	})
}

// Every stamp says which state the leader has. One comes every ten seconds, also where other commands move the clock
// all the time.
func TestStampsSayWhichState(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead() // its first stamp is the first entry of all
		var mu sync.Mutex
		stamps := 0
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if s, ok := cmd.(*fsm.Stamp); ok {
				mu.Lock()
				defer mu.Unlock()
				if stamps++; s.Chain == 0 || s.Index == 0 {
					t.Errorf("a stamp without a state: %+v", s)
				}
			}
			return nil, false
		})
		end := w.clock.Now().Add(time.Minute)
		for w.clock.Now().Before(end) { // none of these is a stamp
			w.do(&fsm.Trim{Head: w.head(), Limit: 1})
			time.Sleep(time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		if stamps < 5 || stamps > 8 {
			t.Errorf("%d stamps in a minute", stamps)
		}
	})
}
