package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestStampBehind: a leader whose clock is behind records a result with what its clock says. The record does not tell when
// that was, and the next one bounds it; without a wrong clock a stamp counts as it is.
func TestStampBehind(t *testing.T) {
	for name, tc := range map[string]struct {
		clock  bool
		newer  bool
		policy string
		want   Rule
	}{
		"held with a clock that was behind": {true, true, job.OverlapReplace, ""},
		"no clock was wrong":                {false, true, job.OverlapReplace, RuleOverlap},
		"nothing newer came before it":      {true, false, job.OverlapReplace, RuleOverlap},
		"the policy is another":             {true, true, job.OverlapQueue, RuleOverlap},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) { s.Overlap = tc.policy })
			s.run(1)
			took := int64(62_000)
			if !tc.newer {
				took = 10_000
			}
			s.attempt(sched(minute(2)), 1, worker, minute(2), took, Canceled, job.RunCanceled, job.ReasonReplaced)
			s.in.Final.Recorded[s.seq] = job.Instant(minute(2) + took - (26 * time.Hour).Milliseconds())
			if tc.clock {
				s.fault(FaultClock, "n2", minute(2)+took-2000, minute(2)+took+1000)
			}
			if !tc.newer { // another job's record comes next, before the time of the next occurrence
				s.seq++
				s.in.Final.Recorded[s.seq] = job.Instant(minute(2) + took + 2000)
			}
			s.runAt(sched(minute(3)), minute(3)+4000)
			check(t, s.end(3), tc.want)
		})
	}
}
