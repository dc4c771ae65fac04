package checker

import (
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// TestQueues: runs of a minutely job of a queue that take a minute and a half each, so that two are with workers at a
// time.
func TestQueues(t *testing.T) {
	for _, tc := range []struct {
		name string
		tell func(s *scene)
		want bool
	}{
		{"no limit", func(*scene) {}, false},
		{"within the limit", func(s *scene) { s.queue(2, false, OK, t0+5, t0+10) }, false},
		{"over the limit", func(s *scene) { s.queue(1, false, OK, t0+5, t0+10) }, true},
		{"a limit that perhaps never was", func(s *scene) { s.queue(1, false, Unknown, t0+5, t0+10) }, false},
		{"a limit that was refused", func(s *scene) { s.queue(1, false, Refused, t0+5, t0+10) }, false},
		{"a limit that came with the claim", func(s *scene) { s.queue(1, false, OK, minute(4)-5, minute(4)+5) }, false},
		{"a limit that was raised",
			func(s *scene) { s.queue(1, false, OK, t0+5, t0+10); s.queue(0, false, OK, minute(1)+5, minute(1)+10) }, false},
		{"a limit that perhaps was raised", func(s *scene) {
			s.queue(1, false, OK, t0+5, t0+10)
			s.queue(5, false, Unknown, minute(1)+5, minute(1)+10)
		}, false},
		{"paused", func(s *scene) { s.queue(0, true, OK, minute(2)+5, minute(2)+10) }, true},
		{"paused and resumed", func(s *scene) {
			s.queue(0, true, OK, minute(2)+5, minute(2)+10)
			s.queue(0, false, OK, minute(2)+15, minute(2)+20)
		}, false},
		{"paused after the last claim", func(s *scene) { s.queue(0, true, OK, minute(4)+5, minute(4)+10) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) {
				s.Type, s.Payload, s.Overlap = job.TypeQueue, []byte(`{"queue":"q"}`), job.OverlapAllow
			})
			for n := 1; n <= 4; n++ {
				s.attempt(sched(minute(n)), 1, worker, minute(n), 90_000, Succeeded, job.RunSucceeded, 0)
			}
			tc.tell(s)
			in := s.end(4)
			in.Final.At = job.Instant(minute(4) + 30_000)
			var rules []Rule
			for _, p := range Check(in).Problems {
				rules = append(rules, p.Rule)
			}
			if slices.Contains(rules, RuleQueue) != tc.want {
				t.Errorf("broken rules: %v", rules)
			}
		})
	}
}

func (s *scene) queue(limit int, paused bool, o CallOutcome, from, to int64) {
	s.in.Calls = append(s.in.Calls,
		Call{Kind: CallQueue, Name: "q", Limit: limit, Paused: paused, Outcome: o, Invoke: job.Instant(from),
			Return: job.Instant(to)})
}
