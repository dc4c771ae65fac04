package checker

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestMemory shows the checker what a cluster remembers over its leaders, and for how long: leases, turns, requests,
// history.
func TestMemory(t *testing.T) {
	queue := func(s *job.Spec) { s.Overlap = job.OverlapQueue }
	allow := func(s *job.Spec) { s.Overlap = job.OverlapAllow }
	for _, tc := range []struct {
		name string
		spec func(*job.Spec)
		make func(s *scene) *Input
		want Rule
	}{
		{"an inherited lease of full length", nil, func(s *scene) *Input { return inherited(s, 30_500) }, ""},
		{"an inherited lease that is cut short", nil, func(s *scene) *Input { return inherited(s, 20_000) }, RuleLease},
		{"an inherited lease of a process that was killed", nil, func(s *scene) *Input {
			in := inherited(s, 8000)
			s.fault(FaultKill, worker, minute(1)+3000, minute(1)+9000)
			in.Effects[0].End, in.Effects[0].Outcome = job.Instant(minute(1)+3000), Cut
			return in
		}, ""},
		{"an inherited lease, and another process was killed", nil, func(s *scene) *Input {
			in := inherited(s, 8000)
			s.fault(FaultKill, "n3", minute(1)+3000, minute(1)+9000)
			return in
		}, RuleLease},
		{"taken at the end of its lease, and the next leader comes soon after", nil,
			func(s *scene) *Input { return between(s, 31_000) }, ""},
		{"taken before that, and the next leader comes soon after", nil,
			func(s *scene) *Input { return between(s, 12_000) }, RuleLease},
		{"a claim of the leader's own", nil, func(s *scene) *Input {
			in := inherited(s, 20_000)
			in.Takeovers[0].At = job.Instant(minute(1) - 20)
			return in
		}, ""},

		{"oldest first", queue, func(s *scene) *Input { return turns(s, 1, 2, 3) }, ""},
		{"newest first", queue, func(s *scene) *Input { return turns(s, 1, 3, 2) }, RuleOrder},
		{"newest first by hand", queue, func(s *scene) *Input { return handTurns(s) }, RuleOrder},
		{"newest first, and each may run at any time", allow, func(s *scene) *Input { return turns(s, 1, 3, 2) }, ""},

		{"a repeated request is answered alike", nil, func(s *scene) *Input { return repeated(s, minute(5), true) }, ""},
		{"a repeated request runs it again", nil, func(s *scene) *Input { return repeated(s, minute(5), false) },
			RuleRequest},
		{"a key that has been forgotten", nil, func(s *scene) *Input {
			in := repeated(s, minute(5)+25*3_600_000, false)
			in.Final.At += 26 * 3_600_000
			in.Final.Slack = 26 * time.Hour
			s.job().NextRunAt = job.Instant(minute(6))
			return in
		}, ""},

		{"history is trimmed by age", nil, func(s *scene) *Input { return trimmedTo(s, 4, 1, 2, 3, 4) }, ""},
		{"one record too many by age", nil, func(s *scene) *Input { return trimmedTo(s, 6, 1, 2, 3, 4, 5, 6) }, RuleTrim},
		{"a record is gone from above the floor", nil, func(s *scene) *Input { return trimmedTo(s, 4, 1, 2, 3, 4, 7) },
			RuleTrim},
		{"the newest record is gone", nil, func(s *scene) *Input { return trimmedTo(s, 4, 1, 2, 3, 4, 10) }, RuleTrim},
		{"a record below the floor is kept", nil, func(s *scene) *Input { return trimmedTo(s, 4, 1, 2, 4) }, RuleTrim},
		{"history that is far too old", nil, func(s *scene) *Input { return trimmedTo(s, 1, 1) }, RuleTrim},
		{"a record dated back stays behind younger ones", nil,
			func(s *scene) *Input { return datedBack(trimmedTo(s, 4, 1, 2, 3, 4), 6) }, ""},
		{"a record dated back stays behind one that is far too old", nil, func(s *scene) *Input {
			in := datedBack(trimmedTo(s, 1, 1), 2)
			in.Final.Trimmed.MaxAge += 90 * time.Second // the third is young enough
			return in
		}, RuleTrim},
		{"history is trimmed by count", nil, func(s *scene) *Input {
			in := trimmedTo(s, 4, 1, 2, 3, 4)
			in.Final.Trimmed.MaxAge, in.Final.Trimmed.MaxCount = 0, 6
			return in
		}, ""},
		{"one record too many by count", nil, func(s *scene) *Input {
			in := trimmedTo(s, 4, 1, 2, 3, 4)
			in.Final.Trimmed.MaxAge, in.Final.Trimmed.MaxCount = 0, 7
			return in
		}, RuleTrim},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, tc.make(newScene(tc.spec)), tc.want) })
	}
}

// inherited is a run whose worker is cut off; a takeover comes half a second later, and the run is taken from it so
// long after that.
func inherited(s *scene, millis int64) *Input {
	s.in.Takeovers = []Takeover{{Node: "n2", Term: 3, At: job.Instant(minute(1) + 500)}}
	s.fault(FaultCut, worker, minute(1)+100, minute(1)+45_000)
	s.attempt(sched(minute(1)), 1, worker, minute(1), 500+millis, Canceled, job.RunFailed, job.ReasonWorkerLost)
	s.in.Effects[0].End = job.Instant(minute(1) + 500 + millis + 20) // it went on until then, and gave up by itself
	if millis > 20_000 {
		s.in.Effects[0].End = job.Instant(minute(1) + 20_100)
	}
	s.attempt(sched(minute(1)), 2, "n2", minute(1)+500+millis+100, 1000, Succeeded, job.RunSucceeded, 0)
	return s.end(1)
}

// between is a run whose worker stands still; a takeover comes ten seconds later, the run is taken from it so long
// after that, and another takeover comes before clocks can tell which leader it was.
func between(s *scene, millis int64) *Input {
	lost := minute(1) + 10_000 + millis
	s.in.ClockError = 6 * time.Second
	s.in.Takeovers = []Takeover{{Node: "n2", Term: 3, At: job.Instant(minute(1) + 10_000)}, {Node: "n3", Term: 4, At: job.Instant(lost + 5000)}}
	s.fault(FaultPause, worker, minute(1)+9000, lost+20_000)
	s.attempt(sched(minute(1)), 1, worker, minute(1), lost-minute(1), Canceled, job.RunFailed, job.ReasonWorkerLost)
	s.in.Effects[0].End = job.Instant(lost + 20_000)
	s.attempt(sched(minute(1)), 2, "n2", lost+100, 1000, Succeeded, job.RunSucceeded, 0)
	return s.end(1)
}

// turns are three runs that wait for a long one and are started in an order.
func turns(s *scene, order ...int) *Input {
	s.attempt(sched(minute(1)), 1, worker, minute(1), 200_000, Succeeded, job.RunSucceeded, 0)
	at := minute(4) + 21_000
	for _, n := range order {
		s.runAt(sched(minute(n+1)), at)
		at += 2000
	}
	return s.end(4)
}

// handTurns are two runs by hand that wait for one of the schedule, and the later one starts first.
func handTurns(s *scene) *Input {
	s.attempt(sched(minute(1)), 1, worker, minute(1), 40_000, Succeeded, job.RunSucceeded, 0)
	first, second := minute(1)+5000, minute(1)+7000
	for _, at := range []int64{first, second} {
		s.call(Call{Kind: CallRun, Run: job.RunKey{Job: jobA, At: at, Origin: job.OriginManual}}, at)
	}
	s.runAt(job.RunKey{Job: jobA, At: second, Origin: job.OriginManual}, minute(1)+41_000)
	s.runAt(job.RunKey{Job: jobA, At: first, Origin: job.OriginManual}, minute(1)+43_000)
	return s.end(1)
}

// repeated is a run by hand that is asked for twice with one key, and answered with one run or two.
func repeated(s *scene, again int64, same bool) *Input {
	runs(s, 1, 3)
	at := minute(3) + 10_000
	for i, at := range []int64{at, again + 10_000} {
		k := job.RunKey{Job: jobA, At: at, Origin: job.OriginManual}
		if i == 1 && same {
			k.At = minute(3) + 10_000
		}
		s.call(Call{Kind: CallRun, Request: "once", Run: k}, at)
		if i == 0 || !same {
			s.runAt(k, at)
		}
		if i == 0 {
			runs(s, 4, 5)
		}
	}
	return s.end(5)
}

// TestRepeatedUpdate: an edit that is repeated with its key is done once while the key is kept; around the time when it
// is forgotten it may be done again, and after that it is.
func TestRepeatedUpdate(t *testing.T) {
	const hour = int64(3_600_000)
	const soon = 24*hour + 180_000 // the key's time is over, and it may not be removed yet
	type call struct {
		at      int64 // after the first
		outcome CallOutcome
		done    uint64 // how many times
	}
	for _, tc := range []struct {
		name   string
		calls  []call
		outage bool // from a second after soon to a second before 30 hours
		want   Rule
	}{
		{"answered by the first", []call{{23 * hour, OK, 0}}, false, ""},
		{"done again while the key is kept", []call{{23 * hour, OK, 1}}, false, RuleCall},
		{"without an answer, and done again while the key is kept", []call{{23 * hour, Unknown, 1}}, false, RuleCall},
		{"done again when the key may be forgotten", []call{{soon, OK, 1}}, false, ""},
		{"answered by the first when the key may be forgotten", []call{{soon, OK, 0}}, false, ""},
		{"without an answer, and done when the key may be forgotten", []call{{soon, Unknown, 1}}, false, ""},
		{"done twice by one repetition", []call{{soon, OK, 2}}, false, RuleCall},
		{"done again after the key is forgotten", []call{{25 * hour, OK, 1}}, false, ""},
		{"acknowledged after the key is forgotten, and not done", []call{{25 * hour, OK, 0}}, false, RuleCall},
		{"without an answer after the key is forgotten, and done", []call{{25 * hour, Unknown, 1}}, false, ""},
		{"without an answer after the key is forgotten, and not done", []call{{25 * hour, Unknown, 0}}, false, ""},
		{"answered by a repetition that was done", []call{{soon, OK, 1}, {25 * hour, OK, 0}}, false, ""},
		{"done by the second repetition", []call{{soon, OK, 0}, {25 * hour, OK, 1}}, false, ""},
		{"answered by a repetition without an answer", []call{{25 * hour, Unknown, 1}, {26 * hour, OK, 0}}, false, ""},
		{"answered by the first just after an outage", []call{{30 * hour, OK, 0}}, true, ""},
		{"acknowledged long after an outage, and not done", []call{{31 * hour, OK, 0}}, true, RuleCall},
		{"done again while the key of a repetition is kept", []call{{25 * hour, OK, 1}, {26 * hour, OK, 1}}, false, RuleCall},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) { s.Schedule = "0 0 1 6 *" })
			j := s.job()
			j.NextRunAt = job.At(time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC))
			s.update(minute(1), func(s *job.Spec) { s.Timeout = job.Duration(time.Minute) })
			if tc.outage {
				s.outage(minute(1)+soon+1000, minute(1)+30*hour-1000)
			}
			s.in.Calls[1].Request, s.in.Calls[1].Version = "once", 0
			for _, again := range tc.calls {
				at := minute(1) + again.at
				if again.done > 0 {
					j.Version, j.UpdatedAt = j.Version+again.done, job.Instant(at)
				}
				c := s.call(s.in.Calls[1], at)
				c.Outcome, c.Answer = again.outcome, nil
				if again.outcome == OK {
					answer := *j
					c.Answer = &answer
				}
				s.in.Final.At = job.Instant(at + hour)
			}
			check(t, s.in, tc.want)
		})
	}
}

// trimmedTo is a quiet time whose history lasts five minutes, trimmed to a floor when its tenth run has ended; gone is
// what is missing.
func trimmedTo(s *scene, floor uint64, gone ...uint64) *Input {
	runs(s, 1, 10)
	in := s.end(10)
	kept := map[uint64]bool{}
	for _, h := range in.Final.History {
		kept[h.Seq] = true
	}
	for _, seq := range gone {
		delete(kept, seq)
	}
	in.Final.Trimmed = &Trimmed{MaxAge: 5*time.Minute + 20*time.Second, Kept: kept,
		Floors: []Floor{{At: in.Final.At, Seq: floor, Last: 10}}}
	return in
}

// datedBack is a result that a leader recorded while its clock was a day behind.
func datedBack(in *Input, seq uint64) *Input {
	in.Final.Recorded[seq] -= 24 * 3_600_000
	return in
}

// TestCleanUp: a one-off is removed when its retention is over.
func TestCleanUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   int64
		want Rule
	}{{"after its retention", minute(1) + 1000 + 3_600_000, ""},
		{"before its retention is over", minute(1) + 1000 + 3_500_000, RuleTrim}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) {
				s.Schedule = time.UnixMilli(minute(1)).UTC().Format(time.RFC3339)
				s.Retention = job.Duration(time.Hour)
			})
			s.run(1)
			s.gone()
			s.in.Final.At = job.Instant(tc.at + 60_000)
			s.in.Final.Cleaned = map[job.ID]job.Instant{jobA: job.Instant(tc.at)}
			check(t, s.in, tc.want)
		})
	}
}

// TestExcuses: what took an attempt from its worker happened to that worker, while it had the attempt.
func TestExcuses(t *testing.T) {
	lost := func(s *scene, at int64) {
		s.attempt(sched(minute(2)), 1, worker, minute(2), at-minute(2), Canceled, job.RunFailed, job.ReasonWorkerLost)
		s.in.Effects[len(s.in.Effects)-1].End = job.Instant(at - 100)
		s.attempt(sched(minute(2)), 2, "n2", at+2, 1000, Succeeded, job.RunSucceeded, 0)
	}
	for _, tc := range []struct {
		name string
		make func(s *scene)
		want Rule
	}{
		{"its worker was killed",
			func(s *scene) { s.fault(FaultKill, worker, minute(2)+2000, minute(2)+4000); lost(s, minute(2)+5000) }, ""},
		{"its worker was dead when it was claimed", func(s *scene) {
			s.fault(FaultKill, worker, minute(2)-2000, minute(2)+4000)
			lost(s, minute(2)+5000)
			s.in.Effects, s.in.Handed = slices.Delete(s.in.Effects, 1, 2), slices.Delete(s.in.Handed, 1, 2)
		}, ""},
		{"its worker was killed long before the claim", func(s *scene) {
			s.fault(FaultKill, worker, minute(2)-25_000, minute(2)-20_000)
			lost(s, minute(2)+5000)
		}, RuleLive},
		{"its worker was back when it got it",
			func(s *scene) { s.fault(FaultKill, worker, minute(2)-5000, minute(2)-2000); lost(s, minute(2)+5000) }, RuleLive},
		{"its worker was killed afterwards",
			func(s *scene) { s.fault(FaultKill, worker, minute(2)+6000, minute(2)+8000); lost(s, minute(2)+5000) }, RuleLive},
		{"another one was killed",
			func(s *scene) { s.fault(FaultKill, "n3", minute(2)+2000, minute(2)+4000); lost(s, minute(2)+5000) }, RuleLive},
		{"a cut that was over",
			func(s *scene) { s.fault(FaultCut, worker, minute(2)-28_000, minute(2)-8000); lost(s, minute(2)+5000) }, RuleLive},
		{"no node led for long", func(s *scene) { s.outage(minute(2)+1000, minute(2)+21_000); lost(s, minute(2)+26_000) },
			""},
		{"no node had led for long before its claim",
			func(s *scene) { s.outage(minute(2)-21_000, minute(2)-1000); lost(s, minute(2)+5000) }, RuleLive},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(nil)
			s.run(1)
			tc.make(s)
			check(t, s.end(2), tc.want)
		})
	}
}

// TestBackfillDeadline: a backfill that waits for too long expires, counted from its request.
func TestBackfillDeadline(t *testing.T) {
	for _, tc := range []struct {
		name string
		late int64
		want Rule
	}{{"after its deadline", 121_000, ""}, {"before its deadline", 60_000, RuleDeadline}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) { s.Deadline = job.Duration(2 * time.Minute) })
			runs(s, 1, 6)
			k := job.RunKey{Job: jobA, At: minute(0), Origin: job.OriginBackfill}
			s.call(Call{Kind: CallBackfill, From: job.Instant(k.At), To: job.Instant(k.At),
				Times: []job.Instant{job.Instant(k.At)}}, minute(3)+5000)
			s.seq++
			s.in.Final.History = append(s.in.Final.History,
				job.Run{RunID: k.String(), JobID: jobA, ScheduledAt: job.Instant(k.At), Origin: k.Origin,
					FinishedAt: job.Instant(minute(3) + 5000 + tc.late), Status: job.RunExpired, Reason: job.ReasonDeadline,
					Seq: s.seq})
			s.in.Final.Recorded[s.seq] = job.Instant(minute(3) + 5000 + tc.late)
			check(t, s.end(6), tc.want)
		})
	}
}
