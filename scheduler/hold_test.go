package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// hold does to the state what a restore does, while no node leads.
func (w *world) hold() {
	w.t.Helper()
	b, err := w.st.Begin()
	if err != nil {
		w.t.Fatal(err)
	}
	info := b.Info()
	info.Hold = store.Hold{On: true, Since: 1, Cluster: "old"}
	b.SetInfo(info)
	if err := b.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) release() int64 {
	w.t.Helper()
	w.do(&fsm.Release{Head: w.head()})
	return w.st.Info().Released
}

func once(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// Nothing runs on hold; what was due before the release never runs, whatever its job's rules are; what comes after it
// does.
func TestHoldAndRelease(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		start := time.Now()
		var before []job.ID
		for _, policy := range []string{job.MissedSkip, job.MissedRunOnce, job.MissedRunAll} {
			before = append(before, w.create("* * * * *", missedSpec(policy, "24h", 100)))
		}
		jittery := w.create("* * * * *", func(s *job.Spec) { s.Jitter = job.Duration(50 * time.Second) })
		past, later := w.create(once(start.Add(3*time.Minute)), nil), w.create(once(start.Add(45*time.Minute)), nil)
		// The last leadership of the old cluster caught up with an outage when the backup was made.
		w.stop()
		time.Sleep(10 * time.Minute)
		w.hold()
		w.lead()
		f := w.worker("w1", 50, nil).mustJoin()
		held := w.create(once(time.Now().Add(time.Minute)), nil)
		soon := w.create(once(time.Now().Add(20*time.Minute)), nil)
		time.Sleep(10 * time.Minute)
		if ran := f.ran(); len(ran) > 0 {
			t.Fatalf("on hold it ran %v", ran)
		}
		for _, cmd := range w.log.seen {
			switch cmd.(type) {
			case *fsm.Claim, *fsm.Advance, *fsm.Expire, *fsm.Trim:
				t.Errorf("on hold it proposed %+v", cmd)
			}
		}
		if n := w.s.Ready(); n != nil {
			t.Errorf("%v", n)
		}
		released := w.release()
		ahead := w.create(once(time.UnixMilli(released).Add(-time.Minute)), nil) // made after the release for a time before it: it was asked for here
		time.Sleep(30 * time.Minute)
		for _, s := range f.ran() {
			if s.Run.At <= released && s.Run.Job != ahead {
				t.Errorf("%s ran, and the release was at %d", s.Run, released)
			}
		}
		for _, id := range append(before, jittery) {
			h := w.summary(id)
			// The release is 20 minutes after the start; the other 30 run one by one.
			if len(h) < 25 || h[0] != "missed(restored)x20" || slices.ContainsFunc(h[1:], func(s string) bool { return s != "succeeded" }) {
				t.Errorf("%s: %v", id, h)
			}
		}
		w.wantHistory(past, "missed(restored)x1")
		w.wantHistory(held, "missed(restored)x1")
		w.wantHistory(soon, "succeeded")
		w.wantHistory(later, "succeeded")
		w.wantHistory(ahead, "succeeded")
		// By hand it runs.
		w.trigger(past)
		time.Sleep(time.Second)
		if n := len(f.ranOf(past)); n != 1 {
			t.Errorf("by hand it ran %d times", n)
		}
	})
}

// An edit after the release, before anybody got to the occurrence, does not bring it back.
func TestReleasedOccurrenceStaysMissed(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.create(once(time.Now().Add(time.Minute)), nil)
		w.stop()
		time.Sleep(time.Hour)
		w.hold()
		w.lead()
		w.release()
		def := w.definition(id)
		def.Spec.Tags, def.UpdatedAt = map[string]string{"a": "b"}, w.head().Now
		def.Version++
		if o := w.update(id, def); o.Code != fsm.CodeOK {
			t.Fatalf("%+v", o)
		}
		if _, p := w.state(id); p.Parked {
			t.Fatal("a definition was there before the edit")
		}
		f := w.worker("w1", 1, nil).mustJoin()
		time.Sleep(time.Minute)
		w.wantHistory(id, "missed(restored)x1")
		if len(f.ran()) > 0 {
			t.Error("it ran")
		}
	})
}

// A release is committed, so a leader that falls in the middle of it leaves it to the next one, and an answer that got
// lost does no harm.
func TestReleaseSurvivesItsLeader(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 10, func(f *fakeWorker) { f.handle = takes(24 * time.Hour) }).mustJoin()
		const each, runs = 1000, 3000 // three batches
		var ids []job.ID
		for range runs / each {
			id := w.create(job.ScheduleManual, nil)
			h := w.head()
			var at []int64
			for i := range int64(each) {
				at = append(at, h.Now-(each-i)*1000)
			}
			if o := w.do(&fsm.Backfill{Head: h, Job: uint64(id), At: at}).Items[0]; o.Count != each {
				t.Fatalf("%+v", o)
			}
			ids = append(ids, id)
		}
		time.Sleep(10 * time.Second)
		if n := len(f.ran()); n != len(ids) || w.st.OpenRunCount() != runs { // one of each is claimed, the others wait
			t.Fatalf("%d runs, %d open", n, w.st.OpenRunCount())
		}
		f.crash()
		w.stop()
		w.hold()
		w.lead()
		lost := 0
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.CloseRestored); ok {
				switch lost++; lost {
				case 1:
					return fmt.Errorf("%w: a full queue", ErrNotApplied), false
				case 2:
					return errAmbiguous, true
				case 3:
					return errAmbiguous, false
				case 5:
					return fmt.Errorf("%w: leadership is being transferred", ErrNotApplied), false
				}
			}
			return nil, false
		})
		w.release()
		for w.st.OpenRunCount() == runs {
			time.Sleep(10 * time.Millisecond)
		}
		if n := w.st.OpenRunCount(); n == 0 {
			t.Fatal("all at once")
		}
		w.stopFor(time.Second)
		time.Sleep(10 * time.Second)
		if info := w.st.Info(); info.Hold.On || w.st.OpenRunCount() != 0 {
			t.Fatalf("%d are open, %+v", w.st.OpenRunCount(), info.Hold)
		}
		for _, id := range ids {
			h := w.summary(id)
			if len(h) != each || slices.ContainsFunc(h, func(s string) bool { return s != "lost(restored)" }) {
				t.Errorf("%s: %d records, %v…", id, len(h), h[:min(3, len(h))])
			}
		}
		// The scheduler is free again, and so are the slots of workers.
		g := w.worker("w2", 1, nil).mustJoin()
		id := w.create("@every 1s", nil)
		time.Sleep(5 * time.Second)
		if len(g.ranOf(id)) == 0 {
			t.Error("nothing runs")
		}
	})
}

// A worker that comes over from the cluster which the backup was taken from may have had a run there and be done with
// it: that it does not hold it says nothing here, and it is not sent again.
func TestHoldSendsNothingAgain(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 2, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create(job.ScheduleManual, nil)
		w.trigger(id)
		time.Sleep(time.Second)
		f.leave()
		w.stop()
		f.mu.Lock()
		for _, h := range f.set { // the other cluster has its result
			h.stop()
		}
		f.set = map[uint64]*fakeHeld{}
		f.mu.Unlock()
		w.hold()
		w.lead()
		f.mustJoin()
		time.Sleep(5 * time.Minute)
		if n := len(f.ran()); n != 1 {
			t.Errorf("it was started %d times", n)
		}
		w.release()
		time.Sleep(time.Minute)
		w.wantHistory(id, "lost(restored)")
		if n := len(f.ran()); n != 1 {
			t.Errorf("it was started %d times", n)
		}
		w.trigger(id)
		time.Sleep(time.Second)
		if n := len(f.ran()); n != 2 {
			t.Errorf("after the release nothing runs on it: %d starts", n)
		}
	})
}
