package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestRules shows the checker histories that are right, and such that break one rule each.
func TestRules(t *testing.T) {
	every := func(f func(*job.Spec)) func(*job.Spec) { return f }
	overlap := func(p string) func(*job.Spec) { return func(s *job.Spec) { s.Overlap = p } }
	missed := func(p string, max int) func(*job.Spec) {
		return func(s *job.Spec) {
			s.Missed = job.Missed{Policy: p, Max: max, Window: "1h"}
		}
	}
	late := func(deadline time.Duration) func(*job.Spec) {
		return func(s *job.Spec) {
			missed(job.MissedRunAll, 10)(s)
			s.Missed.Grace, s.Deadline = job.Duration(20*time.Second), job.Duration(deadline)
		}
	}
	cases := []struct {
		name string
		spec func(*job.Spec)
		make func(s *scene) *Input
		want Rule
	}{
		{"a quiet time", nil, func(s *scene) *Input { runs(s, 1, 10); return s.end(10) }, ""},
		{"an occurrence is missing", nil, func(s *scene) *Input { runs(s, 1, 4); runs(s, 6, 10); return s.end(10) },
			RuleLost},
		{"the last one is missing", nil, func(s *scene) *Input { runs(s, 1, 9); return s.end(10) }, RuleLost},
		{"a run for no occurrence", nil, func(s *scene) *Input {
			runs(s, 1, 10)
			s.runAt(sched(minute(10)+7000), minute(10)+7000)
			return s.end(10)
		}, RuleInvented},
		{"it ran and did not", nil, func(s *scene) *Input {
			runs(s, 1, 10)
			s.gap(4, 4, 1, job.RunSkipped, job.ReasonOverlap, minute(5))
			return s.end(10)
		}, RuleTwice},
		{"two records of one", overlap(job.OverlapSkip), func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 80_000, Succeeded, job.RunSucceeded, 0)
			s.gap(2, 2, 1, job.RunSkipped, job.ReasonOverlap, minute(2))
			s.gap(2, 2, 1, job.RunSkipped, job.ReasonOverlap, minute(2))
			runs(s, 3, 5)
			return s.end(5)
		}, RuleTwice},
		{"an end of a run without a claim", nil, func(s *scene) *Input {
			runs(s, 1, 5)
			s.in.Final.History[2].Fence, s.in.Final.History[2].Attempt = 0, 0
			return s.end(5)
		}, RuleCommitted},
		{"started without a committed claim", nil, func(s *scene) *Input {
			runs(s, 1, 5)
			s.in.Effects = append(s.in.Effects,
				Effect{Worker: "n2", Run: sched(minute(3)), Fence: 77, Attempt: 1, Key: "j_1:1", Start: job.Instant(minute(3) + 5),
					End: job.Instant(minute(3) + 9), Outcome: Succeeded})
			return s.end(5)
		}, RuleCommitted},
		{"started before the claim", nil, func(s *scene) *Input {
			runs(s, 1, 5)
			s.in.Effects[2].Start -= 50
			return s.end(5)
		}, RuleCommitted},

		// Live claims, fences, attempts.
		{"a worker died, and another went on", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.fault(FaultKill, worker, minute(3)+5000, minute(3)+20_000)
			s.attempt(sched(minute(3)), 1, worker, minute(3), 25_000, Cut, job.RunFailed, job.ReasonWorkerLost)
			s.in.Effects[2].End = job.Instant(minute(3) + 5000)
			s.attempt(sched(minute(3)), 2, "n2", minute(3)+25_002, 1000, Succeeded, job.RunSucceeded, 0)
			runs(s, 4, 5)
			return s.end(5)
		}, ""},
		{"a second delivery without an excuse", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.attempt(sched(minute(3)), 1, worker, minute(3), 25_000, Cut, job.RunFailed, job.ReasonWorkerLost)
			s.attempt(sched(minute(3)), 2, "n2", minute(3)+25_002, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(3)
		}, RuleLive},
		{"a short pause is no excuse", nil, func(s *scene) *Input {
			s.fault(FaultPause, worker, minute(1)+5000, minute(1)+9000)
			s.attempt(sched(minute(1)), 1, worker, minute(1), 25_000, Cut, job.RunFailed, job.ReasonWorkerLost)
			s.attempt(sched(minute(1)), 2, "n2", minute(1)+25_002, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, RuleLive},
		{"its leader stood still, and no other node could lead", nil,
			func(s *scene) *Input { return leaderStood(s, 20_000, true) }, ""},
		{"its leader stood still for a moment", nil, func(s *scene) *Input { return leaderStood(s, 4000, true) }, RuleLive},
		{"a follower stood still", nil, func(s *scene) *Input { return leaderStood(s, 20_000, false) }, RuleLive},
		{"its leader stood still, and it went on for too long", nil, func(s *scene) *Input {
			in := leaderStood(s, 20_000, true)
			in.Effects[0].End = job.Instant(minute(1) + 25_500)
			return in
		}, RuleLive},
		{"two live attempts", nil, func(s *scene) *Input {
			s.fault(FaultCut, worker, minute(1)+500, minute(1)+40_000)
			s.attempt(sched(minute(1)), 1, worker, minute(1), 31_000, Canceled, job.RunFailed, job.ReasonWorkerLost)
			s.in.Effects[0].End = job.Instant(minute(1) + 33_000)
			s.attempt(sched(minute(1)), 2, "n2", minute(1)+31_000, 5000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, RuleLive},
		{"the same with a worker that stood still", nil, func(s *scene) *Input {
			s.fault(FaultPause, worker, minute(1)+500, minute(1)+32_900)
			s.attempt(sched(minute(1)), 1, worker, minute(1), 31_000, Canceled, job.RunFailed, job.ReasonWorkerLost)
			s.in.Effects[0].End = job.Instant(minute(1) + 33_000)
			s.attempt(sched(minute(1)), 2, "n2", minute(1)+31_000, 5000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, ""},
		{"a claim started after it was given away", nil, func(s *scene) *Input {
			s.fault(FaultCut, worker, minute(1), minute(1)+35_000)
			s.attempt(sched(minute(1)), 1, worker, minute(1), 31_000, Canceled, job.RunFailed, job.ReasonWorkerLost)
			s.in.Effects[0].Start, s.in.Effects[0].End = job.Instant(minute(1)+36_100), job.Instant(minute(1)+36_200)
			s.attempt(sched(minute(1)), 2, "n2", minute(1)+31_000, 5000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, RuleLive},
		{"one claim started twice", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.in.Effects = append(s.in.Effects, s.in.Effects[1])
			return s.end(3)
		}, RuleLive},
		{"a fence for two runs", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.in.Final.History[2].Fence = s.in.Final.History[1].Fence
			s.in.Effects = s.in.Effects[:2]
			return s.end(3)
		}, RuleFence},
		{"a fence that goes back", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			for i, f := range []uint64{5, 4, 6} {
				s.in.Final.History[i].Fence, s.in.Effects[i].Fence, s.in.Handed[i].Fence = f, f, f
			}
			return s.end(3)
		}, RuleFence},
		{"an attempt number that does not grow", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Failed, job.RunFailed, 0)
			s.attempt(sched(minute(1)), 1, worker, minute(1)+3000, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, RuleAttempt},
		{"an end after the end", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Succeeded, job.RunSucceeded, 0)
			s.attempt(sched(minute(1)), 2, worker, minute(1)+3000, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, RuleTwice},
		{"an assignment of a lower term", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.in.Handed[2].Term = 1
			return s.end(3)
		}, RuleTerm},

		// Overlap.
		{"skipped by an open run", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 150_000, Succeeded, job.RunSucceeded, 0)
			s.gap(2, 3, 2, job.RunSkipped, job.ReasonOverlap, minute(4))
			runs(s, 4, 5)
			return s.end(5)
		}, ""},
		{"skipped by nothing", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.gap(3, 3, 1, job.RunSkipped, job.ReasonOverlap, minute(4))
			runs(s, 4, 5)
			return s.end(5)
		}, RuleOverlap},
		{"two at once", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 80_000, Succeeded, job.RunSucceeded, 0)
			runs(s, 2, 3)
			return s.end(3)
		}, RuleOverlap},
		{"two at once under allow", overlap(job.OverlapAllow), func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 80_000, Succeeded, job.RunSucceeded, 0)
			runs(s, 2, 3)
			return s.end(3)
		}, ""},
		{"three at once with a limit of two", every(func(s *job.Spec) { s.Overlap, s.Concurrency = job.OverlapAllow, 2 }),
			func(s *scene) *Input {
				for n := 1; n <= 3; n++ {
					s.attempt(sched(minute(n)), 1, worker, minute(n), 200_000, Succeeded, job.RunSucceeded, 0)
				}
				return s.end(3)
			}, RuleOverlap},
		{"a retry counts as open", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 55_000, Failed, job.RunFailed, 0)
			s.run(2)
			s.attempt(sched(minute(1)), 2, worker, minute(2)+10_000, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(2)
		}, RuleOverlap},
		{"replaced though the policy is skip", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 59_000, Canceled, job.RunCanceled, job.ReasonReplaced)
			runs(s, 2, 3)
			return s.end(3)
		}, RuleOverlap},
		{"replaced", overlap(job.OverlapReplace), func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 60_500, Canceled, job.RunCanceled, job.ReasonReplaced)
			s.runAt(sched(minute(2)), minute(2)+503)
			s.run(3)
			return s.end(3)
		}, ""},
		{"an interval over the time of a canceled one-off",
			every(func(s *job.Spec) { s.Schedule = time.UnixMilli(minute(4) + 20_000).UTC().Format(time.RFC3339) }),
			func(s *scene) *Input {
				return canceledOneOff(s, 4)
			}, ""},
		{"an interval that counts a canceled one-off",
			every(func(s *job.Spec) { s.Schedule = time.UnixMilli(minute(4) + 20_000).UTC().Format(time.RFC3339) }),
			func(s *scene) *Input {
				return canceledOneOff(s, 5)
			}, RuleInvented},
		{"a canceled one-off that gets its time again",
			every(func(s *job.Spec) { s.Schedule = time.UnixMilli(minute(4) + 20_000).UTC().Format(time.RFC3339) }),
			func(s *scene) *Input {
				return oneOffAgain(s, true)
			}, ""},
		{"a canceled one-off that runs all the same",
			every(func(s *job.Spec) { s.Schedule = time.UnixMilli(minute(4) + 20_000).UTC().Format(time.RFC3339) }),
			func(s *scene) *Input {
				return oneOffAgain(s, false)
			}, RuleInvented},
		{"replaced by one that had waited", overlap(job.OverlapReplace), func(s *scene) *Input {
			byHand := job.RunKey{Job: jobA, At: minute(1) + 20_000, Origin: job.OriginManual}
			s.call(Call{Kind: CallRun, Run: byHand}, byHand.At)
			s.attempt(byHand, 1, worker, byHand.At, 10_000, Canceled, job.RunCanceled, job.ReasonReplaced)
			s.runAt(sched(minute(1)), minute(1)+30_003)
			s.run(2)
			return s.end(2)
		}, ""},
		{"replaced by one that had ended", overlap(job.OverlapReplace), func(s *scene) *Input {
			byHand := job.RunKey{Job: jobA, At: minute(1) + 20_000, Origin: job.OriginManual}
			s.call(Call{Kind: CallRun, Run: byHand}, byHand.At)
			s.run(1)
			s.attempt(byHand, 1, worker, byHand.At, 10_000, Canceled, job.RunCanceled, job.ReasonReplaced)
			s.run(2)
			return s.end(2)
		}, RuleOverlap},

		{"replaced by one whose jitter was over later, and which was replaced too", replaceLater(time.Minute),
			func(s *scene) *Input { return replacedTwice(s, 1) }, ""},
		{"replaced by one whose jitter was over before, and which was replaced too", replaceLater(time.Minute),
			func(s *scene) *Input { return replacedTwice(s, -1) }, RuleOverlap},
		{"replaced by a one-off that a resume let go, and which was replaced too", replaceOneOff,
			func(s *scene) *Input { return resumedOneOff(s, true) }, ""},
		{"replaced by a one-off that was not paused, and which was replaced too", replaceOneOff,
			func(s *scene) *Input { return resumedOneOff(s, false) }, RuleOverlap},

		// Missed windows.
		{"missed with skip", missed(job.MissedSkip, 0), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(6)+20_000)
			s.gap(3, 5, 3, job.RunMissed, job.ReasonOutage, minute(6)+20_000)
			s.runAt(sched(minute(6)), minute(6)+20_001) // within the grace
			runs(s, 7, 8)
			return s.end(8)
		}, ""},
		{"missed with skip within the grace", missed(job.MissedSkip, 0), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(6)+20_000)
			s.gap(3, 6, 4, job.RunMissed, job.ReasonOutage, minute(7))
			runs(s, 7, 8)
			return s.end(8)
		}, RuleMissed},
		{"ran with skip", missed(job.MissedSkip, 0), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(6)+20_000)
			s.gap(3, 4, 2, job.RunMissed, job.ReasonOutage, minute(6)+20_000)
			s.runAt(sched(minute(5)), minute(6)+20_001)
			s.runAt(sched(minute(6)), minute(6)+22_001)
			runs(s, 7, 8)
			return s.end(8)
		}, RuleMissed},
		{"run once", missed(job.MissedRunOnce, 0), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(6)+20_000)
			s.gap(3, 5, 3, job.RunMissed, job.ReasonOutage, minute(6)+20_001)
			s.runAt(sched(minute(6)), minute(6)+20_001)
			runs(s, 7, 8)
			return s.end(8)
		}, ""},
		{"a catch-up is dropped", missed(job.MissedRunOnce, 0), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(6)+20_000)
			s.gap(3, 6, 4, job.RunMissed, job.ReasonOutage, minute(7))
			runs(s, 7, 8)
			return s.end(8)
		}, RuleMissed},
		{"the wrong one is caught up", missed(job.MissedRunOnce, 0), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(6)+20_000)
			s.gap(3, 4, 2, job.RunMissed, job.ReasonOutage, minute(6)+20_001)
			s.runAt(sched(minute(5)), minute(6)+20_001)
			s.gap(6, 6, 1, job.RunMissed, job.ReasonOutage, minute(7))
			runs(s, 7, 8)
			return s.end(8)
		}, RuleMissed},
		{"run all", missed(job.MissedRunAll, 3), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(7)+20_000)
			s.gap(3, 4, 2, job.RunMissed, job.ReasonOutage, minute(7)+20_001)
			for n := 5; n <= 7; n++ {
				s.runAt(sched(minute(n)), minute(7)+20_001+int64(n-5)*2000)
			}
			runs(s, 8, 9)
			return s.end(9)
		}, ""},
		{"run all, one dropped", missed(job.MissedRunAll, 3), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(7)+20_000)
			s.gap(3, 5, 3, job.RunMissed, job.ReasonOutage, minute(7)+20_001)
			for n := 6; n <= 7; n++ {
				s.runAt(sched(minute(n)), minute(7)+20_001+int64(n-6)*2000)
			}
			runs(s, 8, 9)
			return s.end(9)
		}, RuleMissed},
		{"run all, more than max", missed(job.MissedRunAll, 3), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(7)+20_000)
			s.gap(3, 3, 1, job.RunMissed, job.ReasonOutage, minute(7)+20_001)
			for n := 4; n <= 7; n++ {
				s.runAt(sched(minute(n)), minute(7)+20_001+int64(n-4)*2000)
			}
			runs(s, 8, 9)
			return s.end(9)
		}, RuleMissed},
		{"run all outside its window",
			func(s *job.Spec) { s.Missed = job.Missed{Policy: job.MissedRunAll, Max: 10, Window: "2m"} }, func(s *scene) *Input {
				s.outage(minute(1)-5000, minute(4)+20_000)
				for n := 1; n <= 4; n++ {
					s.runAt(sched(minute(n)), minute(4)+20_001+int64(n)*2000)
				}
				return s.end(4)
			}, RuleMissed},
		{"run all, skipped within the grace behind what has expired", late(30 * time.Second), func(s *scene) *Input {
			s.run(1)
			s.attempt(sched(minute(2)), 1, worker, minute(2), 290_000, Succeeded, job.RunSucceeded, job.ReasonNone)
			s.outage(minute(2)+5000, minute(5)+10_000)
			s.gap(3, 4, 2, job.RunExpired, job.ReasonDeadline, minute(5)+12_000)
			s.gap(5, 6, 2, job.RunSkipped, job.ReasonOverlap, minute(7))
			runs(s, 7, 8)
			return s.end(8)
		}, ""},
		{"run all, skipped within the grace behind one that is to run", late(100 * time.Second), func(s *scene) *Input {
			s.run(1)
			s.attempt(sched(minute(2)), 1, worker, minute(2), 290_000, Succeeded, job.RunSucceeded, job.ReasonNone)
			s.outage(minute(2)+5000, minute(5)+10_000)
			s.gap(3, 3, 1, job.RunExpired, job.ReasonDeadline, minute(5)+12_000)
			s.gap(4, 4, 1, job.RunMissed, job.ReasonOutage, minute(5)+12_001)
			s.gap(5, 6, 2, job.RunSkipped, job.ReasonOverlap, minute(7))
			runs(s, 7, 8)
			return s.end(8)
		}, RuleOverlap},
		{"within the grace", missed(job.MissedSkip, 0), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(3)+20_000)
			s.runAt(sched(minute(3)), minute(3)+20_001)
			runs(s, 4, 5)
			return s.end(5)
		}, ""},
		{"within the grace, and missed", missed(job.MissedSkip, 0), func(s *scene) *Input {
			runs(s, 1, 2)
			s.outage(minute(2)+5000, minute(3)+20_000)
			s.gap(3, 3, 1, job.RunMissed, job.ReasonOutage, minute(4))
			runs(s, 4, 5)
			return s.end(5)
		}, RuleMissed},
		{"backlog is missed", missed(job.MissedSkip, 0), func(s *scene) *Input {
			runs(s, 1, 2)
			s.gap(3, 5, 3, job.RunMissed, job.ReasonOutage, minute(6))
			runs(s, 6, 7)
			return s.end(7)
		}, RuleMissed},
		{"an outage under a leader", nil, func(s *scene) *Input {
			runs(s, 1, 5)
			s.outage(minute(2)+5000, minute(4)+20_000)
			return s.end(5)
		}, RuleOutage},
		{"an outage out of nothing", missed(job.MissedSkip, 0), func(s *scene) *Input {
			s.in.Outages = []Outage{{job.Instant(minute(1) - 5000), job.Instant(minute(4) + 20_000)}}
			s.gap(1, 4, 4, job.RunMissed, job.ReasonOutage, minute(5))
			s.run(5)
			return s.end(5)
		}, RuleOutage},

		// Deadlines and bounds.
		{"expired", func(s *job.Spec) { s.Deadline = job.Duration(30 * time.Second) }, func(s *scene) *Input {
			s.run(1)
			s.gap(2, 2, 1, job.RunExpired, job.ReasonDeadline, minute(3)-20_000)
			s.run(3)
			return s.end(3)
		}, ""},
		{"expired early", func(s *job.Spec) { s.Deadline = job.Duration(70 * time.Second) }, func(s *scene) *Input {
			s.run(1)
			s.gap(2, 2, 1, job.RunExpired, job.ReasonDeadline, minute(3)-20_000)
			s.run(3)
			return s.end(3)
		}, RuleDeadline},
		{"started after its deadline", func(s *job.Spec) { s.Deadline = job.Duration(30 * time.Second) },
			func(s *scene) *Input {
				s.run(1)
				s.runAt(sched(minute(2)), minute(2)+31_000)
				s.run(3)
				return s.end(3)
			}, RuleDeadline},
		{"after end_at", func(s *job.Spec) { s.EndAt = job.Instant(minute(3)) },
			func(s *scene) *Input { runs(s, 1, 4); return s.end(4) }, RuleBounds},
		{"before start_at", func(s *job.Spec) { s.StartAt = job.Instant(minute(3)) },
			func(s *scene) *Input { runs(s, 2, 4); return s.end(4) }, RuleBounds},
		{"beyond max_runs", func(s *job.Spec) { s.MaxRuns = 3 }, func(s *scene) *Input { runs(s, 1, 4); return s.end(4) },
			RuleBounds},
		{"blackout", func(s *job.Spec) { s.Calendars = []string{"closed"} }, func(s *scene) *Input {
			s.call(Call{Kind: CallCalendar, Name: "closed", Calendar: closedCalendar}, t0-1000)
			runs(s, 1, 2)
			s.gap(3, 4, 2, job.RunSkipped, job.ReasonBlackout, minute(5))
			runs(s, 5, 6)
			return s.end(6)
		}, ""},
		{"ran in a blackout", func(s *job.Spec) { s.Calendars = []string{"closed"} }, func(s *scene) *Input {
			s.call(Call{Kind: CallCalendar, Name: "closed", Calendar: closedCalendar}, t0-1000)
			runs(s, 1, 3)
			s.gap(4, 4, 1, job.RunSkipped, job.ReasonBlackout, minute(5))
			runs(s, 5, 6)
			return s.end(6)
		}, RuleBounds},
		{"a blackout that is none", func(s *job.Spec) { s.Calendars = []string{"closed"} }, func(s *scene) *Input {
			s.call(Call{Kind: CallCalendar, Name: "closed", Calendar: closedCalendar}, t0-1000)
			runs(s, 1, 2)
			s.gap(3, 5, 3, job.RunSkipped, job.ReasonBlackout, minute(6))
			s.run(6)
			return s.end(6)
		}, RuleBounds},
		{"claimed early", nil, func(s *scene) *Input { s.run(1); s.runAt(sched(minute(2)), minute(2)-1); return s.end(2) },
			RuleEarly},

		// At most once, retries, keys, outcomes.
		{"at most once, lost", func(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce }, func(s *scene) *Input {
			s.fault(FaultKill, worker, minute(1)+5000, minute(1)+20_000)
			s.attempt(sched(minute(1)), 1, worker, minute(1), 25_000, Cut, job.RunLost, job.ReasonWorkerLost)
			return s.end(1)
		}, ""},
		{"at most once, twice", func(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce }, func(s *scene) *Input {
			s.fault(FaultKill, worker, minute(1)+5000, minute(1)+20_000)
			s.attempt(sched(minute(1)), 1, worker, minute(1), 25_000, Cut, job.RunFailed, job.ReasonWorkerLost)
			s.attempt(sched(minute(1)), 2, "n2", minute(1)+25_010, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, RuleOnce},
		{"lost though it may be repeated", nil, func(s *scene) *Input {
			s.fault(FaultKill, worker, minute(1)+5000, minute(1)+20_000)
			s.attempt(sched(minute(1)), 1, worker, minute(1), 25_000, Cut, job.RunLost, job.ReasonWorkerLost)
			return s.end(1)
		}, RuleOnce},
		{"a retry too early", retries(3, 10*time.Second), func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Failed, job.RunFailed, 0)
			s.attempt(sched(minute(1)), 2, worker, minute(1)+5000, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, RuleRetry},
		{"a retry in time", retries(3, 10*time.Second), func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Failed, job.RunFailed, 0)
			s.attempt(sched(minute(1)), 2, worker, minute(1)+11_002, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, ""},
		{"one retry too many", retries(1, time.Second), func(s *scene) *Input {
			for n := range 2 {
				s.attempt(sched(minute(1)), n+1, worker, minute(1)+int64(n)*10_000, 1000, Failed, job.RunFailed, 0)
			}
			s.attempt(sched(minute(1)), 3, worker, minute(1)+20_000, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, RuleRetry},
		{"given up too soon", retries(2, time.Second), func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Failed, job.RunDead, job.ReasonExhausted)
			return s.end(1)
		}, RuleRetry},
		{"given up", retries(1, time.Second), func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Failed, job.RunFailed, 0)
			s.attempt(sched(minute(1)), 2, worker, minute(1)+10_000, 1000, Failed, job.RunDead, job.ReasonExhausted)
			return s.end(1)
		}, ""},
		{"given up, and not among the dead", retries(0, time.Second), func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Failed, job.RunDead, job.ReasonExhausted)
			s.in.Final.Dead = nil
			return s.end(1)
		}, RuleDead},
		{"failed, and nothing after", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Failed, job.RunFailed, 0)
			return s.end(1)
		}, RuleLost},
		{"a key that changes", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Failed, job.RunFailed, 0)
			s.attempt(sched(minute(1)), 2, worker, minute(1)+3000, 1000, Succeeded, job.RunSucceeded, 0)
			s.in.Effects[1].Key += "x"
			s.in.Handed = nil
			return s.end(1)
		}, RuleKey},
		{"a key for two runs", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.in.Effects[1].Key = s.in.Effects[0].Key
			s.in.Handed = nil
			return s.end(2)
		}, RuleKey},
		{"success that was none", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.in.Effects[1].Outcome = Failed
			return s.end(2)
		}, RuleOutcome},
		{"failure that was none", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 1000, Succeeded, job.RunFailed, 0)
			s.attempt(sched(minute(1)), 2, worker, minute(1)+5000, 1000, Succeeded, job.RunSucceeded, 0)
			return s.end(1)
		}, RuleOutcome},
		{"the result of another attempt was taken", nil, func(s *scene) *Input {
			s.run(1)
			s.in.Effects[0].End += 20_000
			return s.end(1)
		}, RuleFence},
		{"an open run that is left alone", nil, func(s *scene) *Input {
			s.run(1)
			s.in.Final.Slack = time.Second
			k := job.RunKey{Job: jobA, At: minute(1) + 5000, Origin: job.OriginManual}
			s.call(Call{Kind: CallRun, Run: k}, k.At)
			s.in.Final.Open = []job.Run{{RunID: k.String(), JobID: jobA, ScheduledAt: job.Instant(k.At), Origin: k.Origin,
				Status: job.RunPending, ReadyAt: job.Instant(k.At)}}
			return s.end(1)
		}, RuleLate},
		{"success without an attempt", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.in.Effects, s.in.Handed = s.in.Effects[:1], nil
			return s.end(2)
		}, RuleOutcome},

		// Calls.
		{"paused", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.call(Call{Kind: CallPause}, minute(2)+20_000)
			s.call(Call{Kind: CallResume}, minute(5)+20_000)
			s.gap(3, 5, 3, job.RunSkipped, job.ReasonPaused, minute(5)+20_000)
			runs(s, 6, 7)
			return s.end(7)
		}, ""},
		{"due before the pause, and dropped by it", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.call(Call{Kind: CallPause}, minute(3)+20_000)
			s.call(Call{Kind: CallResume}, minute(5)+20_000)
			s.gap(3, 5, 3, job.RunSkipped, job.ReasonPaused, minute(5)+20_000)
			runs(s, 6, 7)
			return s.end(7)
		}, RuleReason},
		{"due before the pause, and run after it", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.call(Call{Kind: CallPause}, minute(3)+20_000)
			s.call(Call{Kind: CallResume}, minute(5)+20_000)
			s.runAt(sched(minute(3)), minute(5)+25_000)
			s.gap(4, 5, 2, job.RunSkipped, job.ReasonPaused, minute(5)+30_000)
			runs(s, 6, 7)
			return s.end(7)
		}, ""},
		{"due during the pause, and run after it", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.call(Call{Kind: CallPause}, minute(2)+20_000)
			s.call(Call{Kind: CallResume}, minute(3)+20_000)
			s.runAt(sched(minute(3)), minute(3)+25_000)
			runs(s, 4, 5)
			return s.end(5)
		}, RulePaused},
		{"fired while paused", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.call(Call{Kind: CallPause}, minute(2)+20_000)
			s.call(Call{Kind: CallResume}, minute(5)+20_000)
			s.gap(4, 5, 2, job.RunSkipped, job.ReasonPaused, minute(5)+20_000)
			runs(s, 6, 7)
			return s.end(7)
		}, RulePaused},
		{"paused without a request", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.gap(3, 3, 1, job.RunSkipped, job.ReasonPaused, minute(4))
			s.run(4)
			return s.end(4)
		}, RuleReason},
		{"a pause without an answer may have been", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			c := s.call(Call{Kind: CallPause}, minute(2)+20_000)
			c.Outcome, c.Return = Unknown, 0
			s.call(Call{Kind: CallResume}, minute(5)+20_000)
			s.gap(3, 5, 3, job.RunSkipped, job.ReasonPaused, minute(5)+20_000)
			runs(s, 6, 7)
			return s.end(7)
		}, ""},
		{"a pause without an answer need not have been", nil, func(s *scene) *Input {
			runs(s, 1, 5)
			c := s.call(Call{Kind: CallPause}, minute(2)+20_000)
			c.Outcome, c.Return = Unknown, 0
			return s.end(5)
		}, ""},
		{"deleted", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.call(Call{Kind: CallDelete}, minute(3)+20_000)
			in := s.end(6)
			s.gone()
			return in
		}, ""},
		{"fired after its delete", nil, func(s *scene) *Input {
			runs(s, 1, 4)
			s.call(Call{Kind: CallDelete}, minute(3)+20_000)
			in := s.end(6)
			s.gone()
			return in
		}, RuleDeleted},
		{"deleted, and there", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.call(Call{Kind: CallDelete}, minute(3)+20_000)
			return s.end(3)
		}, RuleCall},
		{"gone, and not deleted", nil, func(s *scene) *Input { runs(s, 1, 3); in := s.end(3); s.gone(); return in },
			RuleLost},
		{"a job that was never created", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.in.Final.Jobs = append(s.in.Final.Jobs, job.Job{ID: 9})
			return s.end(2)
		}, RuleInvented},
		{"an edit", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.update(minute(3)+20_000, func(s *job.Spec) { s.Schedule = "*/2 * * * *" })
			for n := 4; n <= 8; n += 2 {
				s.run(n)
			}
			in := s.end(8)
			s.job().NextRunAt = job.Instant(minute(10))
			return in
		}, ""},
		{"the old schedule after an edit", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.update(minute(3)+20_000, func(s *job.Spec) { s.Schedule = "*/2 * * * *" })
			runs(s, 4, 6)
			s.run(8)
			in := s.end(8)
			s.job().NextRunAt = job.Instant(minute(10))
			return in
		}, RuleInvented},
		{"an edit that lost one", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.update(minute(4)+20, func(s *job.Spec) { s.Schedule = "30 */2 * * * *" })
			s.runAt(sched(minute(4)+30_000), minute(4)+30_000)
			in := s.end(4)
			s.job().NextRunAt = job.Instant(minute(6) + 30_000)
			return in
		}, RuleLost},
		{"an edit with a record of it", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.update(minute(4)+20, func(s *job.Spec) { s.Schedule = "30 */2 * * * *" })
			s.gap(4, 4, 1, job.RunSkipped, job.ReasonEdited, minute(4)+20)
			s.runAt(sched(minute(4)+30_000), minute(4)+30_000)
			in := s.end(5)
			s.job().NextRunAt = job.Instant(minute(6) + 30_000)
			return in
		}, ""},
		{"an end before what is due", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.gap(4, 6, 3, job.RunSkipped, job.ReasonEdited, minute(6)+20)
			s.update(minute(6)+20, func(s *job.Spec) { s.EndAt = job.Instant(minute(4) + 1) })
			in := s.end(8)
			s.job().NextRunAt = 0
			return in
		}, ""},
		{"an end before what is due, which loses that", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.update(minute(6)+20, func(s *job.Spec) { s.EndAt = job.Instant(minute(4) + 1) })
			s.runAt(sched(minute(4)), minute(6)+30)
			in := s.end(8)
			s.job().NextRunAt = 0
			return in
		}, RuleTwice},
		{"fewer runs than are due, which keeps what is left of them", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.update(minute(6)+20, func(s *job.Spec) { s.MaxRuns = 5 })
			s.gap(4, 6, 3, job.RunSkipped, job.ReasonEdited, minute(6)+20)
			s.run(7)
			s.run(8)
			in := s.end(9)
			s.job().NextRunAt = 0
			return in
		}, ""},
		{"fewer runs than are due, without a record", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.update(minute(6)+20, func(s *job.Spec) { s.MaxRuns = 5 })
			s.run(7)
			s.run(8)
			in := s.end(9)
			s.job().NextRunAt = 0
			return in
		}, RuleLost},
		{"run by hand", nil, func(s *scene) *Input {
			s.run(1)
			k := job.RunKey{Job: jobA, At: minute(1) + 20_000, Origin: job.OriginManual}
			s.call(Call{Kind: CallRun, Run: k}, k.At)
			s.runAt(k, k.At+1)
			s.run(2)
			return s.end(2)
		}, ""},
		{"a run by hand is lost", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.call(Call{Kind: CallRun, Run: job.RunKey{Job: jobA, At: minute(1) + 20_000, Origin: job.OriginManual}},
				minute(1)+20_000)
			return s.end(2)
		}, RuleLost},
		{"a run by hand without a request", nil, func(s *scene) *Input {
			s.run(1)
			s.runAt(job.RunKey{Job: jobA, At: minute(1) + 20_000, Origin: job.OriginManual}, minute(1)+20_000)
			return s.end(1)
		}, RuleInvented},
		{"backfill", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			k := job.RunKey{Job: jobA, At: minute(-1), Origin: job.OriginBackfill}
			s.call(Call{Kind: CallBackfill, From: job.Instant(minute(-1)), To: job.Instant(minute(2)),
				Times:   []job.Instant{job.Instant(minute(-1)), job.Instant(minute(0))},
				Skipped: []job.Instant{job.Instant(minute(1)), job.Instant(minute(2))}}, minute(3)+10_000)
			s.runAt(k, minute(3)+10_001)
			k.At = minute(0)
			s.runAt(k, minute(3)+12_001)
			return s.end(3)
		}, ""},
		{"a forced backfill of what failed once before", retries(3, 2*time.Second), func(s *scene) *Input {
			return forcedAgain(s, 2000)
		}, ""},
		{"a forced backfill of what is delivered at most once", atMostOnce, func(s *scene) *Input {
			return forcedOnce(s, 2)
		}, ""},
		{"and one more than was asked for", atMostOnce, func(s *scene) *Input {
			return forcedOnce(s, 3)
		}, RuleOnce},
		{"and its retry comes too early", retries(3, 2*time.Second), func(s *scene) *Input {
			return forcedAgain(s, 1000)
		}, RuleRetry},
		{"a backfill of no occurrence", nil, func(s *scene) *Input {
			runs(s, 1, 3)
			s.runAt(job.RunKey{Job: jobA, At: minute(-1), Origin: job.OriginBackfill}, minute(3)+10_001)
			return s.end(3)
		}, RuleInvented},
		{"canceled without a request", nil, func(s *scene) *Input {
			s.attempt(sched(minute(1)), 1, worker, minute(1), 5000, Canceled, job.RunCanceled, job.ReasonCanceled)
			return s.end(1)
		}, RuleCanceled},
		{"the next run is wrong", nil, func(s *scene) *Input {
			runs(s, 1, 2)
			s.job().NextRunAt = job.Instant(minute(5))
			return s.end(2)
		}, RuleNext},
		{"replicas differ", nil, func(s *scene) *Input {
			s.in.Final.Digests["n2"] = "y"
			runs(s, 1, 2)
			return s.end(2)
		}, RuleReplicas},
		{"left alone for long", nil, func(s *scene) *Input {
			s.in.MaxLag = 5 * time.Second
			s.run(1)
			s.runAt(sched(minute(2)), minute(2)+9000)
			return s.end(2)
		}, RuleLate},
	}
	seen := map[Rule]bool{}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { check(t, c.make(newScene(c.spec)), c.want) })
		seen[c.want] = true
	}
	for _, r := range []Rule{RuleLost, RuleInvented, RuleTwice, RuleLive, RuleFence, RuleAttempt, RuleOverlap, RuleMissed,
		RuleReason, RuleDeadline, RuleBounds, RuleOnce,
		RuleRetry, RuleKey, RuleEarly, RulePaused, RuleDeleted, RuleCanceled, RuleOutcome, RuleDead, RuleCall, RuleNext,
		RuleReplicas, RuleCommitted, RuleTerm, RuleLate, RuleOutage} {
		if !seen[r] {
			t.Errorf("no case breaks the rule %q", r)
		}
	}
}
