package checker

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// A run of the live schedule and one that catches up, as they should and should not meet.
func TestLiveAndSerial(t *testing.T) {
	policy := func(p string) func(*job.Spec) { return func(s *job.Spec) { s.Overlap = p } }
	// takes is a run of minute n that is claimed at a time and takes so many seconds.
	takes := func(s *scene, n int, at, seconds int64) {
		s.attempt(sched(minute(n)), 1, worker, at, seconds*1000, Succeeded, job.RunSucceeded, 0)
	}
	fill := func(s *scene, n int, asked int64, at, seconds int64) {
		k := job.RunKey{Job: jobA, At: minute(n), Origin: job.OriginBackfill}
		s.call(Call{Kind: CallBackfill, From: job.Instant(k.At), To: job.Instant(k.At), Times: []job.Instant{job.Instant(k.At)}}, asked)
		s.attempt(k, 1, worker, at, seconds*1000, Succeeded, job.RunSucceeded, 0)
	}
	sparse := func(s *job.Spec) { s.Schedule = "*/2 * * * *" }
	for _, c := range []struct {
		name string
		spec func(*job.Spec)
		make func(s *scene) *Input
		want Rule
	}{
		{"skipped while one is open", nil, func(s *scene) *Input {
			takes(s, 1, minute(1), 150)
			s.gap(2, 3, 2, job.RunSkipped, job.ReasonOverlap, minute(4))
			s.run(4)
			return s.end(4)
		}, ""},
		{"skipped for one that a backfill made late", nil, func(s *scene) *Input {
			s.run(1)
			fill(s, -10, minute(1)+20_000, minute(1)+30_000, 80)
			takes(s, 2, minute(2)+50_100, 30)
			s.gap(3, 3, 1, job.RunSkipped, job.ReasonOverlap, minute(4))
			s.run(4)
			return s.end(4)
		}, RuleOverlap},
		{"skipped for one that would have been open without the backfill too", nil, func(s *scene) *Input {
			s.run(1)
			fill(s, -10, minute(1)+20_000, minute(1)+30_000, 80)
			takes(s, 2, minute(2)+50_100, 65)
			s.gap(3, 3, 1, job.RunSkipped, job.ReasonOverlap, minute(4))
			s.run(4)
			return s.end(4)
		}, ""},
		{"it waited for one that a backfill made late", nil, func(s *scene) *Input {
			s.run(1)
			fill(s, -10, minute(1)+20_000, minute(1)+30_000, 80)
			takes(s, 2, minute(2)+50_100, 30)
			takes(s, 3, minute(3)+20_200, 50)
			takes(s, 4, minute(4)+10_300, 1)
			return s.end(4)
		}, ""},
		{"a backfill without room", nil, func(s *scene) *Input {
			takes(s, 1, minute(1), 40)
			fill(s, -10, minute(1)+20_000, minute(1)+40_100, 40)
			takes(s, 2, minute(2)+20_200, 1)
			s.run(3)
			return s.end(3)
		}, RuleOverlap},
		{"it ran although one was open at its time", nil, func(s *scene) *Input {
			takes(s, 1, minute(1), 80)
			takes(s, 2, minute(2)+30_000, 1)
			s.run(3)
			return s.end(3)
		}, RuleOverlap},
		{"it ran although an earlier one waited at its time", nil, func(s *scene) *Input {
			takes(s, 1, minute(2)+10_000, 1)
			takes(s, 2, minute(2)+30_000, 1)
			s.run(3)
			return s.end(3)
		}, RuleOverlap},
		{"skipped while an earlier one waited", nil, func(s *scene) *Input {
			takes(s, 1, minute(2)+10_000, 1)
			s.gap(2, 2, 1, job.RunSkipped, job.ReasonWaiting, minute(3))
			s.run(3)
			return s.end(3)
		}, ""},
		{"skipped while an earlier one waited, whose first claim went with its worker", nil, func(s *scene) *Input {
			s.fault(FaultKill, worker, minute(3)-10_000, minute(3)-9_000)
			takes(s, 1, minute(3)+10_000, 1)
			s.gap(2, 2, 1, job.RunSkipped, job.ReasonWaiting, minute(3)-5_000)
			s.gap(3, 3, 1, job.RunSkipped, job.ReasonWaiting, minute(3)+10_000)
			s.run(4)
			return s.end(4)
		}, ""},
		{"skipped as waiting before the earlier one was claimed", nil, func(s *scene) *Input {
			takes(s, 1, minute(3)+10_000, 1)
			s.gap(2, 2, 1, job.RunSkipped, job.ReasonWaiting, minute(3)-5_000)
			s.gap(3, 3, 1, job.RunSkipped, job.ReasonWaiting, minute(3)+10_000)
			s.run(4)
			return s.end(4)
		}, RuleOverlap},
		{"skipped as waiting, and nothing waited", nil, func(s *scene) *Input {
			s.run(1)
			s.gap(2, 2, 1, job.RunSkipped, job.ReasonWaiting, minute(3))
			s.run(3)
			return s.end(3)
		}, RuleOverlap},
		{"skipped after the run had ended", nil, func(s *scene) *Input {
			takes(s, 1, minute(1), 50)
			s.gap(2, 2, 1, job.RunSkipped, job.ReasonOverlap, minute(3))
			s.run(3)
			return s.end(3)
		}, RuleOverlap},
		{"skipped because of a backfill", nil, func(s *scene) *Input {
			s.run(1)
			fill(s, 0, minute(1)+20_000, minute(1)+20_000, 50)
			s.gap(2, 2, 1, job.RunSkipped, job.ReasonOverlap, minute(3))
			s.run(3)
			return s.end(3)
		}, RuleOverlap},
		{"it waited behind a backfill", nil, func(s *scene) *Input {
			s.run(1)
			fill(s, 0, minute(1)+20_000, minute(1)+20_000, 50)
			takes(s, 2, minute(2)+10_010, 1)
			s.run(3)
			return s.end(3)
		}, ""},
		{"a backfill went before one that waited", nil, func(s *scene) *Input {
			s.run(1)
			fill(s, 0, minute(1)+20_000, minute(1)+20_000, 50)
			fill(s, -1, minute(1)+20_000, minute(2)+11_000, 10)
			takes(s, 2, minute(2)+30_000, 1)
			s.run(3)
			return s.end(3)
		}, RuleOverlap},
		{"the newest takes the place of those that waited", policy(job.OverlapReplace), func(s *scene) *Input {
			s.gap(1, 2, 2, job.RunCanceled, job.ReasonReplaced, minute(3)+20_000)
			takes(s, 3, minute(3)+20_000, 1)
			return s.end(3)
		}, ""},
		{"replaced by nothing", policy(job.OverlapReplace), func(s *scene) *Input {
			s.run(1)
			s.run(2)
			s.gap(3, 3, 1, job.RunCanceled, job.ReasonReplaced, minute(3)+20_000)
			return s.end(3)
		}, RuleOverlap},
		{"missed in an outage while one was open", nil, func(s *scene) *Input {
			takes(s, 1, minute(1), 500)
			s.outage(minute(2)+5000, minute(6)-10_000)
			s.gap(2, 2, 1, job.RunSkipped, job.ReasonOverlap, minute(3))
			s.gap(3, 4, 2, job.RunMissed, job.ReasonOutage, minute(6))
			s.gap(5, 9, 5, job.RunSkipped, job.ReasonOverlap, minute(10))
			s.run(10)
			return s.end(10)
		}, ""},
		{"missed in an outage, recorded as overlap", nil, func(s *scene) *Input {
			takes(s, 1, minute(1), 500)
			s.outage(minute(2)+5000, minute(6)-10_000)
			s.gap(2, 9, 8, job.RunSkipped, job.ReasonOverlap, minute(10))
			s.run(10)
			return s.end(10)
		}, RuleOverlap},
		{"the one that run_once would run, with a run open", sparse, func(s *scene) *Input {
			takes(s, 2, minute(2), 500)
			s.outage(minute(3), minute(7)+10_000)
			s.gap(4, 6, 2, job.RunMissed, job.ReasonOutage, minute(8))
			s.gap(8, 10, 2, job.RunSkipped, job.ReasonOverlap, minute(11))
			takes(s, 12, minute(12), 1)
			s.job().NextRunAt = job.Instant(minute(14))
			return s.end(13)
		}, ""},
		{"the one that run_once would run, with nothing open", sparse, func(s *scene) *Input {
			takes(s, 2, minute(2), 1)
			s.outage(minute(3), minute(7)+10_000)
			s.gap(4, 6, 2, job.RunMissed, job.ReasonOutage, minute(8))
			takes(s, 8, minute(8), 1)
			s.job().NextRunAt = job.Instant(minute(10))
			return s.end(9)
		}, RuleMissed},
		{"waited in an outage, recorded as waiting", nil, func(s *scene) *Input {
			s.outage(minute(1)+5000, minute(6)-10_000)
			takes(s, 1, minute(6)-9_000, 1)
			s.gap(2, 5, 4, job.RunSkipped, job.ReasonWaiting, minute(6)-9_000)
			s.run(6)
			return s.end(6)
		}, RuleOverlap},
		{"replaced under another policy", nil, func(s *scene) *Input {
			s.gap(1, 2, 2, job.RunCanceled, job.ReasonReplaced, minute(3)+20_000)
			takes(s, 3, minute(3)+20_000, 1)
			return s.end(3)
		}, RuleOverlap},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(c.spec)
			check(t, c.make(s), c.want)
		})
	}
}

// An edit into a one-off whose time has passed leaves a record of what the old schedule had behind it.
func TestEditIntoAPastOneOff(t *testing.T) {
	s := newScene(nil)
	s.run(1)
	at := minute(2) + 30_000
	s.gap(2, 2, 1, job.RunSkipped, job.ReasonEdited, minute(5)+10_000)
	s.gap(3, 5, 3, job.RunSkipped, job.ReasonEdited, minute(5)+10_000)
	s.update(minute(5)+10_000, func(spec *job.Spec) { spec.Schedule = job.Instant(at).String() })
	s.runAt(sched(at), minute(5)+10_000)
	s.job().Status = job.StatusCompleted
	check(t, s.end(6), "")
}

// An edit of the schedule leaves a run alone that waits already, and drops what is merely due. Under skip only what
// waits behind a serial run, or behind one that such a run made late, is a run by then.
func TestEditWhileOneWaits(t *testing.T) {
	fill := func(s *scene, asked, from, seconds int64) {
		k := job.RunKey{Job: jobA, At: minute(0), Origin: job.OriginBackfill}
		at := job.Instant(k.At)
		s.call(Call{Kind: CallBackfill, From: at, To: at, Times: []job.Instant{at}}, asked)
		s.attempt(k, 1, worker, from, seconds*1000, Succeeded, job.RunSucceeded, 0)
	}
	for name, tc := range map[string]struct {
		before func(s *scene) // up to the run that waits: claimed at minute 3 and 10 s, after an edit at minute 3 and 5 s
		after  func(s *scene)
		want   Rule
	}{
		"behind a backfill": {func(s *scene) {
			runs(s, 1, 2)
			fill(s, minute(2)+20_000, minute(2)+20_000, 50)
		}, nil, ""},
		"behind one that a backfill made late": {func(s *scene) {
			s.run(1)
			fill(s, minute(1)+20_000, minute(1)+20_000, 50)
			s.attempt(sched(minute(2)), 1, worker, minute(2)+10_010, 59_000, Succeeded, job.RunSucceeded, 0)
		}, nil, ""},
		"behind nothing": {func(s *scene) { runs(s, 1, 2) }, nil, RuleTwice},
		"the backfill had ended": {func(s *scene) {
			runs(s, 1, 2)
			fill(s, minute(2)+20_000, minute(2)+20_000, 30)
		}, nil, RuleTwice},
		"behind one that was late by itself": {func(s *scene) {
			s.run(1)
			s.attempt(sched(minute(2)), 1, worker, minute(2)+10_010, 59_000, Succeeded, job.RunSucceeded, 0)
		}, nil, RuleTwice},
		"the letter was redriven later": {func(s *scene) {
			s.run(1)
			s.attempt(sched(minute(2)), 1, worker, minute(2), 1000, Permanent, job.RunDead, job.ReasonPermanent)
			s.in.Final.Dead = nil
		}, func(s *scene) {
			s.call(Call{Kind: CallRedrive}, minute(3)+20_000)
			s.attempt(sched(minute(2)), 2, worker, minute(3)+20_000, 1000, Succeeded, job.RunSucceeded, 0)
		}, RuleTwice},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(nil)
			tc.before(s)
			s.update(minute(3)+5000, func(s *job.Spec) { s.Schedule = "30 */2 * * * *" })
			s.attempt(sched(minute(3)), 1, worker, minute(3)+10_010, 1000, Succeeded, job.RunSucceeded, 0)
			if tc.after != nil {
				tc.after(s)
			}
			s.runAt(sched(minute(4)+30_000), minute(4)+30_000)
			s.job().NextRunAt = job.Instant(minute(6) + 30_000)
			check(t, s.end(5), tc.want)
		})
	}
}
