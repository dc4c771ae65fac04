package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestDeletedBeforeItsJitterWasOver: a delete records what was due. What would have started only after it does not
// count, and what would have started before it is.
func TestDeletedBeforeItsJitterWasOver(t *testing.T) {
	scene := func(after int64) *Input { // so many milliseconds after the third occurrence would have started
		s := newScene(func(s *job.Spec) { s.Jitter = job.Duration(20 * time.Second) })
		o, err := newOracle(&s.spec, jobA)
		if err != nil || o.delay == 0 {
			t.Fatalf("the delay is %d: %v", o.delay, err)
		}
		s.runAt(sched(minute(1)), minute(1)+o.delay)
		s.runAt(sched(minute(2)), minute(2)+o.delay)
		c := s.call(Call{Kind: CallDelete}, minute(3)+o.delay+after)
		c.At = job.Instant(minute(3) + o.delay + after)
		in := s.end(4)
		s.gone()
		return in
	}
	check(t, scene(-1), "")
	check(t, scene(1), RuleLost)
}

// TestTurnsOfWhatIsCaughtUp: a run of the schedule that waits its turn is overtaken by later ones only if it is caught
// up, and whether it is depends on when it was due with its jitter, not on its nominal time.
func TestTurnsOfWhatIsCaughtUp(t *testing.T) {
	in := func(outage func(s *scene, ready int64)) *Input {
		s := newScene(func(s *job.Spec) {
			s.Overlap, s.Jitter = job.OverlapQueue, job.Duration(19*time.Second)
			s.Missed = job.Missed{Policy: job.MissedRunAll, Max: 3, Grace: job.Duration(5 * time.Second)}
		})
		o, err := newOracle(&s.spec, jobA)
		if err != nil || o.delay < 1000 {
			t.Fatalf("the delay is %d: %v", o.delay, err)
		}
		s.attempt(sched(minute(1)), 1, worker, minute(1)+o.delay, 180_000, Succeeded, job.RunSucceeded, 0)
		outage(s, minute(2)+o.delay)
		for i, n := range []int{3, 4, 2} {
			s.runAt(sched(minute(n)), minute(4)+o.delay+1000+int64(i)*2000)
		}
		s.job().NextRunAt = job.Instant(minute(5) + o.delay)
		return s.end(4)
	}
	check(t, in(func(s *scene, ready int64) { s.outage(ready-500, ready+10_000) }), "")
	check(t, in(func(s *scene, ready int64) { s.outage(minute(2)-10_000, ready-500) }), RuleOrder)
	check(t, in(func(*scene, int64) {}), RuleOrder)
}
