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

// TestRecordOfAHold: a leader that holds has no stamps, and dates what it records by its last one, whatever that is
// about. When such a record was committed is known from when it was seen; without a hold its stamp counts.
func TestRecordOfAHold(t *testing.T) {
	const last, ended = 39_000, 52_000 // after the claim: the last stamp, and the end of the attempt
	timeout := func(s *scene) {
		s.in.QueueWorkers = []string{"p1"}
		s.attempt(sched(minute(1)), 1, "p1", minute(1), ended, Canceled, job.RunDead, job.ReasonTimeout)
	}
	success := func(s *scene) {
		s.attempt(sched(minute(1)), 1, worker, minute(1), ended, Succeeded, job.RunSucceeded, job.ReasonNone)
	}
	for name, tc := range map[string]struct {
		run  func(*scene)
		hold bool
		seen int64
		want Rule
	}{
		"a timeout in a hold":                         {timeout, true, ended, ""},
		"a timeout of before a hold":                  {timeout, true, last, RuleDefinition},
		"a timeout without a hold":                    {timeout, false, ended, RuleDefinition},
		"a success in a hold":                         {success, true, ended, ""},
		"a success of another attempt before a hold":  {success, true, last, RuleFence},
		"a success of another attempt without a hold": {success, false, ended, RuleFence},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) {
				none := 0
				s.Timeout, s.Retry.MaxRetries = job.Duration(51*time.Second), &none
			})
			tc.run(s)
			h := &s.in.Final.History[0]
			h.FinishedAt = job.Instant(minute(1) + last)
			s.in.Final.Recorded[h.Seq] = h.FinishedAt
			s.in.Final.Seen = map[uint64]job.Instant{h.Seq: job.Instant(minute(1) + tc.seen)}
			if len(s.in.Final.Dead) > 0 {
				s.in.Final.Dead[0].Run = *h
			}
			if tc.hold {
				s.in.Outages = append(s.in.Outages, Outage{h.FinishedAt, job.Instant(minute(1) + 53_000)})
				s.fault(FaultClock, "n2", minute(1)+last+400, minute(1)+53_000)
			}
			check(t, s.end(1), tc.want)
		})
	}
}
