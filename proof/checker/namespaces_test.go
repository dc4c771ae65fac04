package checker

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// TestNamespaces: a job of a namespace, and who got its runs.
func TestNamespaces(t *testing.T) {
	for _, tt := range []struct {
		name string
		fill func(s *scene)
		want bool
	}{
		{"a worker of its own", func(s *scene) { s.in.Namespaces = map[string]string{worker: "team-a"} }, false},
		{"a worker of all", func(s *scene) { s.in.Namespaces = map[string]string{worker: ""} }, false},
		{"a worker of another", func(s *scene) { s.in.Namespaces = map[string]string{worker: "team-b"} }, true},
		{"a worker of the usual one", func(s *scene) { s.in.Namespaces = map[string]string{worker: job.DefaultNamespace} }, true},
		{"handed to another and not begun", func(s *scene) {
			s.in.Namespaces = map[string]string{"p1": "team-b"}
			h := s.in.Handed[0]
			h.Worker = "p1"
			s.in.Handed = append(s.in.Handed, h)
		}, true},
		{"shown elsewhere", func(s *scene) { s.job().Namespace = "team-b" }, true},
		{"a record elsewhere", func(s *scene) { s.in.Final.History[0].Namespace = job.DefaultNamespace }, true},
		{"a dead letter elsewhere", func(s *scene) {
			s.in.Final.Dead = append(s.in.Final.Dead, job.DeadLetter{Run: job.Run{JobID: jobA, Namespace: "team-b"}})
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) { s.Namespace = "team-a" })
			for n := 1; n <= 3; n++ {
				s.attempt(sched(minute(n)), 1, worker, minute(n), 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
			}
			for i := range s.in.Final.History {
				s.in.Final.History[i].Namespace = "team-a"
			}
			tt.fill(s)
			broken := false
			for _, p := range Check(s.end(3)).Problems {
				broken = broken || p.Rule == RuleNamespace
			}
			if broken != tt.want {
				t.Errorf("broken: %v, want %v", broken, tt.want)
			}
		})
	}
}

// A create without an answer is found by its name in its namespace, not in another.
func TestANameIsOneOfItsNamespace(t *testing.T) {
	s := newScene(func(s *job.Spec) { s.Namespace, s.Schedule = "team-a", job.ScheduleManual })
	other := s.spec
	other.Namespace = "team-b"
	s.in.Calls[0].Name = In("team-a", "a")
	s.in.Calls = append(s.in.Calls, Call{Kind: CallCreate, Name: In("team-b", "a"), Spec: &other, Outcome: Unknown,
		Invoke: job.Instant(t0 + 100), Return: job.Instant(t0 + 200)})
	s.in.Final.Jobs[0].NextRunAt = 0
	in := s.end(1)
	in.Final.Jobs[0].NextRunAt = 0
	if err := Check(in).Err(); err != nil {
		t.Errorf("the second never was: %v", err)
	}
	second := in.Final.Jobs[0]
	second.ID, second.Namespace = jobA+1, "team-b"
	in.Final.Jobs = append(in.Final.Jobs, second)
	if err := Check(in).Err(); err != nil {
		t.Errorf("the second is there: %v", err)
	}
	in.Final.Jobs[1].Namespace = "team-c"
	if Check(in).Err() == nil {
		t.Error("a job of a third namespace was never created")
	}
}
