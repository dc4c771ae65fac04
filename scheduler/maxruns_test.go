package scheduler

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// A pause, an edit or a delete that comes right after the claim of the last run finds a job that has nothing before it:
// there is no occurrence that it could record.
func TestPauseAfterTheLastRunRecordsNothing(t *testing.T) {
	for _, overlap := range []string{job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace} {
		t.Run(overlap, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				w.worker("w1", 8, nil).mustJoin()
				const n = 150
				jobs := map[job.ID]bool{}
				for range n {
					jobs[w.create("* * * * *", func(s *job.Spec) { s.MaxRuns, s.Overlap = 1, overlap })] = true
				}
				paused := map[job.ID]bool{}
				w.log.mu.Lock()
				w.log.after = func(cmd fsm.Command) {
					c, ok := cmd.(*fsm.Claim)
					if !ok {
						return
					}
					for _, id := range c.Jobs {
						if !paused[job.ID(id)] {
							paused[job.ID(id)] = true
							w.log.Propose(&fsm.Pause{Head: c.Head, Job: id})
						}
					}
				}
				w.log.mu.Unlock()
				time.Sleep(3 * time.Minute)
				for id := range jobs {
					s, p := w.state(id)
					if !paused[id] || !s.Paused || !p.Parked || s.ParkedAt != 0 || s.Runs != 1 {
						t.Fatalf("%s: %+v %+v", id, s, p)
					}
					w.do(&fsm.Delete{Head: w.head(), Job: uint64(id)})
					w.wantHistory(id, "succeeded")
				}
			})
		})
	}
}

// One that is skipped for a run by hand does not count, so the job goes on; also if nothing but the claim knows.
func TestSkippedLastRunIsFollowedByAnother(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.worker("w1", 8, func(f *fakeWorker) { f.handle = takes(90 * time.Second) }).mustJoin()
		id := w.create("* * * * *", func(s *job.Spec) { s.MaxRuns = 1 })
		time.Sleep(30 * time.Second)
		w.trigger(id)
		time.Sleep(5 * time.Minute)
		w.wantHistory(id, "succeeded", "skipped(overlap)x2", "succeeded")
		if s, p := w.state(id); !p.Parked || s.Runs != 1 {
			t.Errorf("%+v %+v", s, p)
		}
	})
}
