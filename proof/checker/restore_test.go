package checker

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// restoredScene is a job whose cluster is lost after its third minute and made anew from a backup of its second, in
// which a run is open. It is released before its seventh.
func restoredScene(s *scene) *Input {
	s.run(1)
	s.attempt(sched(minute(2)), 1, worker, minute(2), 1000, Succeeded, job.RunLost, job.ReasonRestored)
	open := &s.in.Final.History[1]
	open.FinishedAt = job.Instant(minute(6) + 20_000)
	s.in.Final.Recorded[open.Seq] = open.FinishedAt
	s.gap(3, 6, 4, job.RunMissed, job.ReasonRestored, minute(7))
	s.fence += 1000
	runs(s, 7, 8)
	s.in.Restored = &Restored{Backup: job.Instant(minute(2) + 500), Lost: job.Instant(minute(3) + 30_000),
		Release: job.Instant(minute(6) + 10_000), Fence: 2,
		Done: []job.RunKey{sched(minute(3))}}
	s.outage(minute(2)+500, minute(5))
	return s.end(8)
}

func TestRestored(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(s *scene, in *Input)
		want  Rule
	}{
		{"nothing is done twice", func(*scene, *Input) {}, ""},
		{"what the cluster before did is done again", func(s *scene, in *Input) {
			s.call(Call{Kind: CallRedrive}, minute(8))
			s.runAt(sched(minute(3)), minute(8)+5000)
		}, RuleRestore},
		{"what was due before the release runs", func(s *scene, in *Input) {
			g := &in.Final.History[2]
			g.Last, g.Count = job.Instant(minute(5)), 3
			s.runAt(sched(minute(6)), minute(8)+5000)
		}, RuleRestore},
		{"something runs on hold", func(_ *scene, in *Input) {
			in.Restored.Release = job.Instant(minute(7) + 10_000)
		}, RuleRestore},
		{"a fence that the cluster before had not given out", func(_ *scene, in *Input) { in.Restored.Given = 1002 }, ""},
		{"one that it had", func(_ *scene, in *Input) { in.Restored.Given = 1003 }, RuleRestore},
		{"a restore that never was", func(_ *scene, in *Input) { in.Restored = nil }, RuleReason},
		{"given up after the release", func(_ *scene, in *Input) { in.Restored.Release = job.Instant(minute(5) + 10_000) },
			RuleReason},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) { s.Overlap = job.OverlapAllow })
			in := restoredScene(s)
			tc.spoil(s, in)
			check(t, in, tc.want)
		})
	}
}
