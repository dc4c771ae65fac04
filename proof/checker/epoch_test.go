package checker

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

func TestEpochs(t *testing.T) {
	at := func(n int64) job.Instant { return job.Instant(minute(0) + n) }
	for _, tc := range []struct {
		name  string
		leads []Takeover
		want  Rule
	}{
		{"one epoch", []Takeover{{"n1", 1, at(0), 0}, {"n2", 2, at(1), 0}}, ""},
		{"a recovery", []Takeover{{"n1", 1, at(0), 0}, {"n2", 2, at(1), 1}, {"n3", 3, at(2), 1}}, ""},
		{"those who were given up lead", []Takeover{{"n2", 2, at(1), 1}, {"n3", 9, at(2), 0}}, RuleEpoch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &checker{in: &Input{Takeovers: tc.leads}}
			c.epochs()
			var got Rule
			if len(c.rep.Problems) > 0 {
				got = c.rep.Problems[0].Rule
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
