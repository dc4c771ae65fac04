package decide

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// A job is missing an occurrence only if nothing explains that it has none.
func TestMissing(t *testing.T) {
	at10 := hm("10:00")
	for _, tt := range []struct {
		name  string
		spec  *job.Spec
		def   store.Definition
		state store.State
		due   bool
		want  int64
	}{
		{"it is lost", testSpec("0 * * * *", nil), store.Definition{CreatedAt: hm("08:30")},
			store.State{LastNominal: at10}, false, hm("11:00")},
		{"it is lost before the first one", testSpec("0 * * * *", nil), store.Definition{CreatedAt: hm("08:30")},
			store.State{}, false, hm("09:00")},
		{"it is lost after an edit", testSpec("0 * * * *", nil), store.Definition{CreatedAt: 1, Follows: hm("11:30")},
			store.State{LastNominal: at10}, false, hm("12:00")},
		{"it is lost while runs are open", testSpec("0 * * * *", func(s *job.Spec) { s.Overlap = job.OverlapQueue }),
			store.Definition{CreatedAt: 1}, store.State{LastNominal: at10, Active: 1, Waiting: 3}, false, hm("11:00")},
		{"it is lost with dead letters", testSpec("0 * * * *", nil), store.Definition{CreatedAt: 1},
			store.State{LastNominal: at10, Dead: 2, LastStatus: job.RunDead}, false, hm("11:00")},
		{"it is lost before max_runs", testSpec("0 * * * *", func(s *job.Spec) { s.MaxRuns = 3 }),
			store.Definition{CreatedAt: 1}, store.State{LastNominal: at10, Runs: 2}, false, hm("11:00")},
		{"it is there", testSpec("0 * * * *", nil), store.Definition{CreatedAt: 1}, store.State{LastNominal: at10},
			true, 0},
		{"paused", testSpec("0 * * * *", nil), store.Definition{}, store.State{Paused: true}, false, 0},
		{"in quarantine", testSpec("0 * * * *", nil), store.Definition{}, store.State{Quarantined: true}, false, 0},
		{"manual", testSpec("@manual", nil), store.Definition{}, store.State{Manual: true}, false, 0},
		{"max_runs is reached", testSpec("0 * * * *", func(s *job.Spec) { s.MaxRuns = 3 }),
			store.Definition{CreatedAt: 1}, store.State{LastNominal: at10, Runs: 3}, false, 0},
		{"end_at is reached", testSpec("0 * * * *", func(s *job.Spec) { s.EndAt = job.Instant(hm("10:59")) }),
			store.Definition{CreatedAt: 1}, store.State{LastNominal: at10}, false, 0},
		{"it ended before it was created", testSpec("0 * * * *", func(s *job.Spec) { s.EndAt = job.Instant(at10) }),
			store.Definition{CreatedAt: hm("10:30")}, store.State{}, false, 0},
		{"an edit ended it in the past", testSpec("0 * * * *", func(s *job.Spec) { s.EndAt = job.Instant(hm("12:00")) }),
			store.Definition{CreatedAt: 1, Follows: hm("12:30")}, store.State{LastNominal: at10}, false, 0},
		{"a one-off is lost", testSpec("2027-03-01T10:30:00Z", nil), store.Definition{CreatedAt: at10}, store.State{},
			false, hm("10:30")},
		{"a one-off that was made after its time is lost", testSpec("2027-03-01T10:30:00Z", nil),
			store.Definition{CreatedAt: hm("11:00")}, store.State{}, false, hm("10:30")},
		{"a one-off ran", testSpec("2027-03-01T10:30:00Z", nil), store.Definition{CreatedAt: at10},
			store.State{LastNominal: hm("10:30")}, false, 0},
		{"a one-off was canceled before its time", testSpec("2027-03-01T10:30:00Z", nil),
			store.Definition{CreatedAt: at10}, store.State{Canceled: true}, false, 0},
	} {
		sched, err := Compile(tt.spec, 1)
		if err != nil {
			t.Fatal(err)
		}
		tt.def.Spec = *tt.spec
		p := store.Place{Parked: !tt.due}
		if got := Missing(&tt.def, sched, &tt.state, p); got.At != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, job.Instant(got.At), job.Instant(tt.want))
		}
	}
}
