package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// A pull worker says nothing about the time. What it reports while the leader holds, because its clock jumped, is not
// recorded by that clock.
func TestPullResultDuringAHold(t *testing.T) {
	for _, jump := range []time.Duration{2 * time.Minute, 26 * time.Hour, -2 * time.Minute, -26 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				id := w.queueJob(nil)
				w.trigger(id)
				r, _ := w.pullOne(job.PullPoll{})
				time.Sleep(3 * time.Second)
				w.clock.jump(jump)
				time.Sleep(2 * time.Second)
				wantAnswer(t, w.finish(r), job.PullOK, "")
				rec := w.history(id)[0]
				if took := rec.EndedAt - rec.ClaimedAt; rec.Status != job.RunSucceeded || took < 0 || took > 5000 || rec.StartedAt < rec.ClaimedAt || rec.StartedAt > rec.EndedAt {
					t.Errorf("claimed %d, started %d, ended %d: %s", rec.ClaimedAt, rec.StartedAt, rec.EndedAt, rec.Status)
				}
			})
		})
	}
}

// A worker that stops a run at its timeout has reached it, whichever part of a millisecond anybody's clock was in when
// its leader changed.
func TestPullTimeoutUnderTheNextLeader(t *testing.T) {
	for i := range 4 {
		for j := range 4 {
			t.Run(fmt.Sprint(i, j), func(t *testing.T) {
				run(t, func(t *testing.T, w *world) {
					const timeout = 20 * time.Second
					w.log.latency = 0
					w.lead()
					id := w.queueJob(func(s *job.Spec) { s.Timeout = job.Duration(timeout) })
					w.trigger(id)
					time.Sleep(time.Duration(i) * 250 * time.Microsecond)
					r, _ := w.pullOne(job.PullPoll{})
					end := time.Now().Add(timeout)
					time.Sleep(time.Second + time.Duration(j)*250*time.Microsecond)
					w.lead()
					time.Sleep(time.Until(end))
					w.fail(r, nil)
					if got := w.summary(id)[0]; got != "failed(timeout)" {
						t.Error(got)
					}
				})
			})
		}
	}
}
