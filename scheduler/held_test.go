package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// What passes while the leader holds is judged by the missed rule first. Only what was younger than the grace at the
// end of the hold is late, and has the overlap policy apply to it: as overlap where a run was open at its time, as
// waiting where an earlier occurrence was due and not started.
func TestOccurrencesOfAHold(t *testing.T) {
	grace := func(d time.Duration) func(*job.Spec) {
		return func(s *job.Spec) { s.Missed.Grace = job.Duration(d) }
	}
	with := func(policy string) func(*job.Spec) {
		return func(s *job.Spec) { s.Missed = job.Missed{Policy: policy, Window: "1h"} }
	}
	const even, each = "*/2 * * * *", "* * * * *"
	// The first occurrence is at 01:02. Just before 01:03 the clock is set ahead by six minutes, and the hold ends ten
	// seconds past 01:09.
	for _, tt := range []struct {
		name, sched string
		edit        func(*job.Spec)
		takes       time.Duration // the first run
		late        bool          // the worker comes after the hold, so that 01:02 still waits
		want        string        // up to 01:09:40
	}{
		{"a run is open over the hold, run_once", even, nil, time.Hour, false, "missed(outage)x3"},
		{"a run is open over the hold, skip", even, with(job.MissedSkip), time.Hour, false, "missed(outage)x3"},
		{"a run is open until after the hold", even, nil, 80 * time.Second, false, "succeeded missed(outage)x3"},
		{"a run ends in the hold", even, nil, 65 * time.Second, false, "succeeded missed(outage)x2 succeeded"},
		{"a run is open, within the grace", even, grace(time.Hour), time.Hour, false, "skipped(overlap)x3"},
		{"a run ends in the hold, within the grace", even, grace(time.Hour), 65 * time.Second, false, "succeeded succeeded skipped(waiting)x2"},
		{"a run is open and the latest is within the grace", each, nil, time.Hour, false, "missed(outage)x6 skipped(overlap)x1"},
		{"one waits over the hold", even, nil, time.Hour, true, "missed(outage)x3"},
		{"one waits over the hold, within the grace", even, grace(time.Hour), time.Hour, true, "skipped(waiting)x3"},
		{"one waits over the hold and the latest is within the grace", each, nil, time.Hour, true, "missed(outage)x6 skipped(waiting)x1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				runs := 0
				f := w.worker("w1", 4, func(f *fakeWorker) {
					f.handle = func(ctx context.Context, a job.Assignment) job.Result {
						f.mu.Lock()
						runs++
						first := runs == 1
						f.mu.Unlock()
						if first {
							return takes(tt.takes)(ctx, a)
						}
						return takes(time.Second)(ctx, a)
					}
				})
				if !tt.late {
					f.mustJoin()
				}
				w.minute()
				id := w.create(tt.sched, tt.edit)
				time.Sleep(118 * time.Second)
				w.clock.jump(6 * time.Minute)
				time.Sleep(12 * time.Second)
				if err := w.s.Ready(); err != nil {
					t.Fatal(err)
				}
				if tt.late {
					f.mustJoin()
				}
				time.Sleep(30 * time.Second)
				if got := strings.Join(w.summary(id), " "); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		})
	}
}

// Closing the runs of a backup takes a while. What becomes due meanwhile came after the release, and runs when the hold
// is over: the run that was in its way was one of another cluster.
func TestReleaseThatTakesLong(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 4, func(f *fakeWorker) { f.handle = takes(24 * time.Hour) }).mustJoin()
		from := w.minute()
		id := w.create("* * * * *", nil)
		time.Sleep(90 * time.Second)
		f.crash()
		w.stop()
		w.hold()
		w.lead()
		time.Sleep(from.Add(4*time.Minute - time.Second).Sub(w.clock.Now()))
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.CloseRestored); ok && w.clock.Now().Before(from.Add(4*time.Minute+5*time.Second)) {
				return notApplied(cmd)
			}
			return nil, false
		})
		w.release()
		g := w.worker("w2", 4, nil).mustJoin()
		time.Sleep(30 * time.Second)
		w.setFault(nil)
		if got := strings.Join(w.summary(id), " "); got != "lost(restored) missed(restored)x2 succeeded" {
			t.Error(got)
		}
		if n := len(g.ranOf(id)); n != 1 {
			t.Errorf("%d runs after the release", n)
		}
	})
}
