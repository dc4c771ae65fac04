package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestTimeOfRetries: the second attempt of a run comes when its backoff is over, at once if its worker was lost, when
// its job is resumed, or when it is redriven.
func TestTimeOfRetries(t *testing.T) {
	const end = 2000 // of the first attempt
	pause := func(from, to int64) func(*scene) {
		return func(s *scene) {
			s.call(Call{Kind: CallPause}, minute(1)+from)
			s.call(Call{Kind: CallResume}, minute(1)+to)
		}
	}
	edit := func(at int64) func(*scene) {
		return func(s *scene) {
			s.update(minute(1)+at, func(s *job.Spec) { s.Workers = map[string]string{"pool": "b"} })
		}
	}
	redrive := func(at int64) func(*scene) {
		return func(s *scene) {
			s.call(Call{Kind: CallRedrive, Dead: []uint64{1}, Count: 1}, minute(1)+at)
			s.in.Final.Dead = nil
		}
	}
	returned := func(s *scene) { s.fence++ }
	for _, tt := range []struct {
		name   string
		status job.RunStatus // of the first attempt
		lost   bool
		also   func(*scene)
		ready  int64 // of the second
		want   Rule
	}{
		{"after its backoff", job.RunFailed, false, nil, end + 10_000, ""},
		{"after the least of it", job.RunFailed, false, nil, end + 8_000, ""},
		{"too early", job.RunFailed, false, nil, end + 7_900, RuleRetry},
		{"too late", job.RunFailed, false, nil, end + 10_500, RuleRetry},
		{"late, and it was given back meanwhile", job.RunFailed, false, returned, end + 10_500, ""},
		{"resumed later", job.RunFailed, false, pause(5000, 15_000), 15_000, ""},
		{"resumed earlier", job.RunFailed, false, pause(5000, 7000), end + 10_000, ""},
		{"resumed earlier, and that counts", job.RunFailed, false, pause(5000, 7000), 7000, RuleRetry},
		{"some time after the resume", job.RunFailed, false, pause(5000, 15_000), 16_000, RuleRetry},
		{"moved by an edit", job.RunFailed, false, edit(5000), end + 10_003, ""},
		{"moved by more", job.RunFailed, false, edit(5000), end + 10_004, RuleRetry},
		{"lost, at once", job.RunFailed, true, nil, end, ""},
		{"lost, and a moment later", job.RunFailed, true, nil, end + 10, RuleRetry},
		{"lost while it was paused", job.RunFailed, true, pause(500, 9000), 9000, ""},
		{"redriven", job.RunDead, false, redrive(5000), 5000, ""},
		{"redriven too early", job.RunDead, false, redrive(5000), 4000, RuleRetry},
		{"redriven too late", job.RunDead, false, redrive(5000), 6000, RuleRetry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := 3
			if tt.status == job.RunDead {
				n = 0
			}
			s := newScene(func(s *job.Spec) {
				s.Overlap = job.OverlapAllow
				s.Retry = job.Retry{MaxRetries: &n, Base: job.Duration(10 * time.Second)}
			})
			outcome, reason := Failed, job.ReasonNone
			switch {
			case tt.lost:
				s.fault(FaultKill, worker, minute(1)+100, minute(1)+30_000)
				outcome, reason = Cut, job.ReasonWorkerLost
			case n == 0:
				reason = job.ReasonExhausted
			}
			s.attempt(sched(minute(1)), 1, worker, minute(1), end, outcome, tt.status, reason)
			if tt.also != nil {
				tt.also(s)
			}
			s.attempt(sched(minute(1)), 2, "n2", minute(1)+tt.ready+50, 1000, Succeeded, job.RunSucceeded, 0)
			s.in.Final.History[1].ReadyAt = job.Instant(minute(1) + tt.ready)
			check(t, s.end(1), tt.want)
		})
	}
	t.Run("claimed before it may be", func(t *testing.T) {
		s := newScene(retries(3, 10*time.Second))
		s.attempt(sched(minute(1)), 1, worker, minute(1), end, Failed, job.RunFailed, 0)
		s.attempt(sched(minute(1)), 2, "n2", minute(1)+end+9000, 1000, Succeeded, job.RunSucceeded, 0)
		s.in.Final.History[1].ReadyAt = job.Instant(minute(1) + end + 10_000)
		check(t, s.end(1), RuleEarly)
	})
	for set, want := range map[time.Duration]Rule{-2 * time.Minute: "", -time.Minute: RuleRetry, 2 * time.Minute: RuleRetry} {
		t.Run("redriven, and let go by a leader whose clock was wrong by "+set.String(), func(t *testing.T) {
			s := newScene(retries(0, 10*time.Second))
			s.attempt(sched(minute(1)), 1, worker, minute(1), end, Failed, job.RunDead, job.ReasonExhausted)
			s.call(Call{Kind: CallRedrive, Dead: []uint64{1}, Count: 1}, minute(1)+5000)
			s.in.Final.Dead = nil
			s.fault(FaultClock, "n1", minute(1)+7000, minute(1)+9000)
			s.in.Faults[len(s.in.Faults)-1].Amount = set
			s.attempt(sched(minute(1)), 2, "n2", minute(1)+11_000, 1000, Succeeded, job.RunSucceeded, 0)
			s.in.Final.History[1].ReadyAt = job.Instant(minute(1) + 7100 - 120_000)
			check(t, s.end(1), want)
		})
	}
}
