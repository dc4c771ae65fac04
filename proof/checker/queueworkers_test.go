package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// The leases of queue workers: what may take a run from one, and what may not.
func TestQueueWorkers(t *testing.T) {
	lost := func(s *scene) {
		s.in.QueueWorkers = []string{"p1", "p2"}
		s.attempt(sched(minute(1)), 1, "p1", minute(1), 31_000, Canceled, job.RunFailed, job.ReasonWorkerLost)
		s.attempt(sched(minute(1)), 2, "p2", minute(1)+31_500, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
	}
	timeout := func(s *job.Spec) { s.Timeout = job.Duration(20 * time.Second) }
	for _, tt := range []struct {
		name string
		spec func(*job.Spec)
		fill func(*scene)
		want Rule
	}{
		{"lost with nothing wrong", nil, lost, RuleLive},
		{"it was cut off", nil, func(s *scene) { lost(s); s.fault(FaultCut, "p1", minute(1)+1000, minute(1)+40_000) }, ""},
		{"it was cut off for a moment", nil,
			func(s *scene) { lost(s); s.fault(FaultCut, "p1", minute(1)+1000, minute(1)+9000) }, RuleLive},
		{"it was killed", nil, func(s *scene) { lost(s); s.fault(FaultKill, "p1", minute(1)+1000, minute(1)+2000) }, ""},
		{"another one was cut off", nil,
			func(s *scene) { lost(s); s.fault(FaultCut, "p2", minute(1)+1000, minute(1)+40_000) }, RuleLive},
		{"another one was killed", nil, func(s *scene) { lost(s); s.fault(FaultKill, "p2", minute(1)+1000, minute(1)+2000) },
			RuleLive},
		{"the node on its way was cut off", nil,
			func(s *scene) { lost(s); s.fault(FaultCut, "n2", minute(1)+1000, minute(1)+40_000) }, ""},
		{"both had it", nil, func(s *scene) {
			lost(s)
			s.fault(FaultCut, "p1", minute(1)+1000, minute(1)+40_000)
			s.in.Effects[0].End = job.Instant(minute(1) + 40_000)
		}, RuleLive},
		{"a lost answer was begun after all", nil, func(s *scene) {
			lost(s)
			s.fault(FaultCut, "p1", minute(1)+1000, minute(1)+40_000)
			s.in.Effects[0].Start, s.in.Effects[0].End = job.Instant(minute(1)+41_000), job.Instant(minute(1)+42_000)
		}, RuleLive},
		{"handed to two", nil, func(s *scene) {
			s.in.QueueWorkers = []string{"p1", "p2"}
			s.attempt(sched(minute(1)), 1, "p1", minute(1), 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
			h := s.in.Handed[0]
			h.Worker, h.At = "p2", h.At+1
			s.in.Handed = append(s.in.Handed, h)
		}, RuleFence},
		{"told that it takes too long", timeout, func(s *scene) {
			s.in.QueueWorkers = []string{"p1"}
			s.attempt(sched(minute(1)), 1, "p1", minute(1), 20_003, Canceled, job.RunDead, job.ReasonTimeout)
		}, ""},
		{"told that too early", timeout, func(s *scene) {
			s.in.QueueWorkers = []string{"p1"}
			s.attempt(sched(minute(1)), 1, "p1", minute(1), 15_000, Canceled, job.RunDead, job.ReasonTimeout)
		}, RuleLive},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(func(spec *job.Spec) {
				if tt.spec != nil {
					none := 0
					tt.spec(spec)
					spec.Retry.MaxRetries = &none
				}
			})
			tt.fill(s)
			check(t, s.end(1), tt.want)
		})
	}
}
