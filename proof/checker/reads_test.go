package checker

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// TestReads: a job is made, edited in its second minute and deleted in its fourth.
func TestReads(t *testing.T) {
	read := func(at int64, version uint64) Read {
		return Read{Node: "n2", Job: jobA, Invoke: job.Instant(at), Return: job.Instant(at + 20), Version: version}
	}
	edit, end := minute(2)+20_000, minute(4)+20_000
	for _, tt := range []struct {
		name  string
		reads []Read
		want  Rule
	}{
		{"each as it was", []Read{read(minute(1), 1), read(edit+100, 2), read(end+100, 0)}, ""},
		{"before the edit", []Read{read(edit+100, 1)}, RuleRead},
		{"while it was on its way", []Read{read(edit-2, 1), read(edit, 2)}, ""},
		{"back again", []Read{read(edit-40, 2), read(edit-4, 1)}, RuleRead},
		{"not there before it was deleted", []Read{read(minute(1), 0)}, RuleRead},
		{"there after it was deleted", []Read{read(end+100, 2)}, RuleRead},
		{"there again", []Read{read(end-3, 0), read(end+18, 2)}, RuleRead},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(nil)
			runs(s, 1, 2)
			s.update(edit, func(s *job.Spec) { s.Priority = "high" })
			runs(s, 3, 4)
			s.call(Call{Kind: CallDelete}, end)
			s.gone()
			s.in.Reads, s.in.Final.At = tt.reads, job.Instant(minute(5))
			check(t, s.in, tt.want)
		})
	}
}
