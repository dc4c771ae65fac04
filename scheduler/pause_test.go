package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

func (w *world) pause(id job.ID) int64 {
	w.t.Helper()
	h := w.head()
	if o := w.do(&fsm.Pause{Head: h, Job: uint64(id)}).Items[0]; o.Code != fsm.CodeOK {
		w.t.Fatalf("pause: %+v", o)
	}
	return h.Now
}

// resume starts a job again whose next occurrence was due before the pause.
func (w *world) resume(id job.ID) int64 {
	w.t.Helper()
	s, p := w.state(id)
	h := w.head()
	if o := w.do(&fsm.Resume{Head: h, Job: uint64(id), Seen: fsm.Seen{Gen: s.Gen, Parked: p.Parked},
		Next: fsm.When{At: s.ParkedAt, Ready: s.ParkedReady}}).Items[0]; o.Code != fsm.CodeOK {
		w.t.Fatalf("resume: %+v", o)
	}
	return h.Now
}

// What was due before a pause runs after it, first and in order; what passed during the pause does not. A second pause,
// while there is still backlog from before the first, changes nothing of that.
func TestBacklogOutlivesAPause(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(5 * time.Second) }).mustJoin()
		id := w.create("@every 2s", func(s *job.Spec) { s.Overlap, s.EndAt = job.OverlapAllow, job.Instant(w.head().Now+40_000) })
		var pauses [][2]int64
		for range 2 {
			time.Sleep(14 * time.Second)
			from := w.pause(id)
			before := len(f.ran())
			time.Sleep(5 * time.Second)
			if n := len(f.ran()); n != before {
				t.Errorf("%d started during the pause", n-before)
			}
			pauses = append(pauses, [2]int64{from, w.resume(id)})
		}
		time.Sleep(2 * time.Minute)
		paused := func(at int64) bool {
			return slices.ContainsFunc(pauses, func(p [2]int64) bool { return p[0] < at && at <= p[1] })
		}
		ran, skipped, last := 0, int64(0), int64(0)
		for _, a := range f.ran() {
			if paused(a.Run.At) {
				t.Errorf("%s ran, and its job was paused then", a.Run)
			}
			if a.Run.At <= last {
				t.Errorf("%s ran after %d", a.Run, last)
			}
			last = a.Run.At
			ran++
		}
		for _, r := range w.history(id) {
			if r.Interval.Count == 0 {
				continue
			}
			if skipped += r.Interval.Count; r.Reason != job.ReasonPaused || !paused(r.Interval.First) || !paused(r.Interval.Last) {
				t.Errorf("recorded: %+v", r.Interval)
			}
		}
		// Forty seconds have 20 occurrences, and of each pause of five seconds two or three are in it.
		if all := ran + int(skipped); all != 20 || skipped < 4 || skipped > 6 {
			t.Errorf("%d ran, %d did not", ran, skipped)
		}
		if s, p := w.state(id); !p.Parked || s.Pauses != (store.Pauses{}) {
			t.Errorf("state %+v at %+v", s, p)
		}
	})
}
