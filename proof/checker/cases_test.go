package checker

import (
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// What some cases of TestRules share.

func retries(n int, base time.Duration) func(*job.Spec) {
	return func(s *job.Spec) {
		none := 0.0
		s.Retry = job.Retry{MaxRetries: &n, Backoff: job.BackoffLinear, Base: job.Duration(base), Jitter: &none}
	}
}

// forcedAgain: a backfill of a time failed, and its retry was fine; a second one with force fails as well. Its failures
// count from its own first attempt: the retry comes wait after it.
func forcedAgain(s *scene, wait int64) *Input {
	runs(s, 1, 3)
	k := job.RunKey{Job: jobA, At: minute(0), Origin: job.OriginBackfill}
	for _, at := range []int64{minute(3) + 10_000, minute(3) + 20_000} {
		s.call(Call{Kind: CallBackfill, From: job.Instant(k.At), To: job.Instant(k.At),
			Times: []job.Instant{job.Instant(k.At)}, Force: at > minute(3)+10_000}, at)
		s.attempt(k, 1, worker, at, 1000, Failed, job.RunFailed, job.ReasonNone)
		s.attempt(k, 2, worker, at+1000+wait, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
	}
	for i := range s.in.Effects { // the second time it has a key of its own
		if e := &s.in.Effects[i]; e.Run == k && e.Fence > 5 {
			e.Key += ":forced:1"
			s.in.Handed[i].Key = e.Key
		}
	}
	return s.end(3)
}

// oneOffAgain: a one-off is canceled, gets another schedule and, if edited, its own again after its time; then it runs
// at once.
func oneOffAgain(s *scene, edited bool) *Input {
	at := minute(4) + 20_000
	own := s.spec.Schedule
	s.call(Call{Kind: CallCancel, Count: 1}, minute(1))
	s.seq++
	s.in.Final.History = append(s.in.Final.History,
		job.Run{JobID: jobA, First: job.Instant(at), Last: job.Instant(at), Count: 1, Status: job.RunCanceled,
			Reason: job.ReasonCanceled, FinishedAt: job.Instant(minute(1)), Seq: s.seq})
	if edited {
		s.update(minute(5)+10_000, func(spec *job.Spec) { spec.Schedule = "* * * * *" })
		s.update(minute(5)+20_000, func(spec *job.Spec) { spec.Schedule = own })
	}
	s.runAt(sched(at), minute(5)+20_000)
	s.job().Status = job.StatusCompleted
	return s.end(6)
}

func atMostOnce(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce }

// forcedOnce: a time is backfilled, and once more with force; it runs so many times.
func forcedOnce(s *scene, times int) *Input {
	runs(s, 1, 3)
	k := job.RunKey{Job: jobA, At: minute(0), Origin: job.OriginBackfill}
	for i := range int64(times) {
		at := minute(3) + 10_000*(i+1)
		if i < 2 {
			s.call(Call{Kind: CallBackfill, From: job.Instant(k.At), To: job.Instant(k.At),
				Times: []job.Instant{job.Instant(k.At)}, Force: i > 0}, at)
		}
		s.attempt(k, 1, worker, at, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
	}
	first := true
	for i := range s.in.Effects { // with force it has a key of its own
		if e := &s.in.Effects[i]; e.Run == k {
			if !first {
				e.Key += ":forced:1"
				s.in.Handed[i].Key = e.Key
			}
			first = false
		}
	}
	return s.end(3)
}

// canceledOneOff: it is canceled, gets another schedule, is paused over its old time and resumed. count is what the
// record of the pause says.
func canceledOneOff(s *scene, count int) *Input {
	at := minute(4) + 20_000
	s.call(Call{Kind: CallCancel, Count: 1}, minute(1))
	s.seq++
	s.in.Final.History = append(s.in.Final.History,
		job.Run{JobID: jobA, First: job.Instant(at), Last: job.Instant(at), Count: 1, Status: job.RunCanceled,
			Reason: job.ReasonCanceled, FinishedAt: job.Instant(minute(1)), Seq: s.seq})
	s.update(minute(2)-10_000, func(spec *job.Spec) { spec.Schedule = "* * * * *" })
	s.run(2)
	s.call(Call{Kind: CallPause}, minute(2)+10_000)
	s.call(Call{Kind: CallResume}, minute(6)+10_000)
	s.gap(3, 6, count, job.RunSkipped, job.ReasonPaused, minute(6)+10_000)
	s.run(7)
	return s.end(7)
}

// leaderStood is a run that was taken from its worker by a leader (or another node) that had stood still for a while.
func leaderStood(s *scene, millis int64, led bool) *Input {
	s.fault(FaultPause, "n3", minute(1)+5000, minute(1)+5000+millis)
	if led {
		s.in.Faults[0].Led = []uint32{0}
	}
	s.attempt(sched(minute(1)), 1, worker, minute(1), 25_001, Canceled, job.RunFailed, job.ReasonWorkerLost)
	s.in.Effects[0].End = job.Instant(minute(1) + 24_000)
	s.attempt(sched(minute(1)), 2, "n2", minute(1)+25_002, 1000, Succeeded, job.RunSucceeded, 0)
	return s.end(1)
}

// replaceLater has jitter, and replaceOneOff one occurrence, with overlap replace.
func replaceLater(jitter time.Duration) func(*job.Spec) {
	return func(s *job.Spec) {
		s.Overlap, s.Schedule, s.Jitter = job.OverlapReplace, "*/2 * * * *", job.Duration(jitter)
	}
}

func replaceOneOff(s *job.Spec) {
	s.Overlap, s.Schedule = job.OverlapReplace, time.UnixMilli(minute(1)).UTC().Format(time.RFC3339)
}

// byHand is a run by hand; unless it is the last it is replaced before it starts.
func (s *scene) byHand(at, replaced int64) {
	k := job.RunKey{Job: jobA, At: at, Origin: job.OriginManual}
	s.call(Call{Kind: CallRun, Run: k}, at)
	if replaced == 0 {
		s.runAt(k, at)
		return
	}
	s.unstarted(k, replaced)
}

// unstarted is the record of a run that was replaced before it started.
func (s *scene) unstarted(k job.RunKey, at int64) {
	s.seq++
	s.in.Final.History = append(s.in.Final.History, job.Run{RunID: k.String(), JobID: k.Job, JobName: "a",
		ScheduledAt: job.Instant(k.At), Origin: k.Origin, FinishedAt: job.Instant(at), Status: job.RunCanceled,
		Reason: job.ReasonReplaced, Seq: s.seq})
	s.in.Final.Recorded[s.seq] = job.Instant(at)
}

// replacedTwice is a run by hand so long before an occurrence was ready (negative: after that), which replaced it, and
// which another run by hand replaced.
func replacedTwice(s *scene, seconds int64) *Input {
	o, err := newOracle(&s.spec, jobA)
	if err != nil {
		panic(err)
	}
	ready := minute(2) + o.delay
	s.byHand(ready-seconds*1000, ready+2000)
	s.unstarted(sched(minute(2)), ready+4000)
	s.byHand(ready+4000, 0)
	s.job().NextRunAt = job.Instant(minute(4) + o.delay)
	return s.end(3)
}

// resumedOneOff is a run by hand after the time of a one-off, which replaced it and was replaced by another one.
func resumedOneOff(s *scene, paused bool) *Input {
	if paused {
		s.call(Call{Kind: CallPause}, minute(1)-10_000)
		s.call(Call{Kind: CallResume}, minute(1)+30_000)
	}
	s.byHand(minute(1)+20_000, minute(1)+30_000)
	s.unstarted(sched(minute(1)), minute(1)+40_000)
	s.byHand(minute(1)+40_000, 0)
	s.job().Status = job.StatusCompleted
	return s.end(2)
}
