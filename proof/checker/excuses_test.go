package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestHeldTakeover: a leader whose clock is behind serves no worker until it has caught up with the last stamp. That
// takes runs from their workers if it takes as long as their patience; anything less does not.
func TestHeldTakeover(t *testing.T) {
	const ttl = 6 * time.Second // a worker that hears nothing for 2.8 s may have given up
	for name, tc := range map[string]struct {
		amount   time.Duration
		node     string
		stop, at int64 // when the leader before stopped, and when the next took over, after the claim
		want     Rule
	}{
		"its clock was far enough behind":        {-3 * time.Second, "n2", 2000, 2010, ""},
		"the election took some of the time":     {-2500 * time.Millisecond, "n2", 1500, 2010, ""},
		"its clock was a little behind":          {-400 * time.Millisecond, "n2", 2000, 2010, RuleLive},
		"its clock was ahead":                    {3 * time.Second, "n2", 2000, 2010, RuleLive},
		"the leader before was ahead":            {3 * time.Second, "n3", 2000, 2010, ""},
		"the leader before was a little ahead":   {400 * time.Millisecond, "n3", 2000, 2010, RuleLive},
		"the clock of another was behind":        {-3 * time.Second, "n3", 2000, 2010, RuleLive},
		"it took over before that run's claim":   {-3 * time.Second, "n2", -8000, -7900, RuleLive},
		"it took over after the run was stopped": {-3 * time.Second, "n2", 9000, 9010, RuleLive},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(nil)
			s.in.TTL = ttl
			s.in.Takeovers = []Takeover{{"n2", 3, job.Instant(minute(1) + tc.at)}}
			s.fault(FaultStop, "n3", minute(1)+tc.stop, minute(1)+tc.stop+1000)
			s.fault(FaultClock, tc.node, minute(1)-20_000, minute(1)+20_000)
			s.in.Faults[1].Amount = tc.amount
			s.attempt(sched(minute(1)), 1, worker, minute(1), 5200, Canceled, job.RunFailed, job.ReasonNone)
			s.attempt(sched(minute(1)), 2, worker, minute(1)+15_000, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
			check(t, s.end(1), tc.want)
		})
	}
}
