package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestDeletedBeforeItsJitterWasOver: a delete records what was due. What would have started only after it is nobody's business, and what would
// have started before it is.
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
