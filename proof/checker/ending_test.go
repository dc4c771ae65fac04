package checker

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// TestDefinitionAtTheEnd: of an attempt that ends after an edit, delivery is that of its claim, and retries are those of
// now.
func TestDefinitionAtTheEnd(t *testing.T) {
	once := func(s *job.Spec) {
		none := 0
		s.Delivery, s.Retry = job.DeliverAtMostOnce, job.Retry{MaxRetries: &none}
	}
	allows := func(n int) func(*job.Spec) {
		return func(s *job.Spec) {
			s.Delivery, s.Retry = job.DeliverAtLeastOnce, job.Retry{MaxRetries: &n, Backoff: job.BackoffImmediate}
		}
	}
	const during, after = 2000, 30_000 // of the edit, with an attempt of 25 s
	for _, tt := range []struct {
		name        string
		before, now func(*job.Spec)
		edit        int64
		lost        bool
		status      job.RunStatus
		want        Rule
	}{
		{"lost, and once by now", allows(3), once, during, true, job.RunFailed, ""},
		{"lost for good, and once by now only", allows(3), once, during, true, job.RunLost, RuleOnce},
		{"lost, and once at the claim", once, allows(3), during, true, job.RunLost, ""},
		{"repeated, and once at the claim", once, allows(3), during, true, job.RunFailed, RuleOnce},
		{"failed, and once at the claim", once, allows(3), during, false, job.RunDead, ""},
		{"failed and repeated, and once at the claim", once, allows(3), during, false, job.RunFailed, RuleOnce},
		{"retries since the claim", allows(0), allows(3), during, false, job.RunFailed, ""},
		{"given up, with retries since the claim", allows(0), allows(3), during, false, job.RunDead, RuleRetry},
		{"no retries since the claim", allows(3), allows(0), during, false, job.RunDead, ""},
		{"repeated, with no retries since the claim", allows(3), allows(0), during, false, job.RunFailed, RuleRetry},
		{"repeated, with retries since the end", allows(0), allows(3), after, false, job.RunFailed, RuleRetry},
		{"given up, with none since the end", allows(3), allows(0), after, false, job.RunDead, RuleRetry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(tt.before)
			outcome, reason := Failed, job.ReasonNone
			switch {
			case tt.lost:
				s.fault(FaultKill, worker, minute(1)+5000, minute(1)+20_000)
				outcome, reason = Cut, job.ReasonWorkerLost
			case tt.status == job.RunDead:
				reason = job.ReasonExhausted
			}
			s.attempt(sched(minute(1)), 1, worker, minute(1), 25_000, outcome, tt.status, reason)
			s.in.Final.History[0].JobVersion = 1
			s.update(minute(1)+tt.edit, tt.now)
			if tt.status == job.RunFailed {
				s.attempt(sched(minute(1)), 2, "n2", minute(1)+31_000, 1000, Succeeded, job.RunSucceeded, 0)
				s.in.Final.History[1].JobVersion = 2
			}
			in := s.end(1)
			in.Final.At += 10_000
			check(t, in, tt.want)
		})
	}
}
