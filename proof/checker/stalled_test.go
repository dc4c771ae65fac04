package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestStalled(t *testing.T) {
	const late = 40_000
	for name, tc := range map[string]struct {
		break_ func(*scene)
		lag    int64
		want   Rule
	}{
		"a wrong leader held": {func(s *scene) { s.fault(FaultClock, "n1", minute(2), 0) }, late, RuleStalled},
		"it handed over":      {func(s *scene) { s.fault(FaultClock, "n1", minute(2), 0) }, 3000, ""},
		"two of three were wrong": {func(s *scene) {
			s.fault(FaultClock, "n1", minute(2), 0)
			s.fault(FaultClock, "n2",
				minute(2), 0)
		}, late, ""},
		"one was wrong, another dead": {func(s *scene) {
			s.fault(FaultClock, "n1", minute(2), 0)
			s.fault(FaultKill, "n2",
				minute(2), 0)
		}, late, ""},
		"a transfer is no excuse": {func(s *scene) { s.fault(FaultLeader, "n1", minute(2), minute(2)+100) }, late,
			RuleStalled},
		"the dead one is back already": {func(s *scene) { s.fault(FaultKill, "n2", minute(1), minute(1)+500) }, late,
			RuleStalled},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(nil)
			s.in.Recovery, s.in.Voters = 15*time.Second, 3
			s.run(1)
			s.runAt(sched(minute(2)), minute(2)+tc.lag)
			tc.break_(s)
			check(t, s.end(2), tc.want)
		})
	}
	s := newScene(nil)
	s.in.Recovery, s.in.Voters = 15*time.Second, 3
	runs(s, 1, 2)
	s.fault(FaultClock, "n1", minute(1), 0)
	s.in.Outages = []Outage{{job.Instant(minute(1) + 2000), job.Instant(minute(2) - 2000)}}
	found := false
	for _, p := range Check(s.end(2)).Problems {
		found = found || p.Rule == RuleStalled
	}
	if !found {
		t.Error("an outage of most of a minute is not seen")
	}
}

// What is due and could not be taken is claimed soon after an edit that lets a worker have it.
func TestStalledAfterAnEdit(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*job.Spec)
		lag  int64
		want Rule
	}{
		"claimed at once":           {func(s *job.Spec) { s.Workers = nil }, 22_000, ""},
		"claimed late":              {func(s *job.Spec) { s.Workers = nil }, 50_000, RuleStalled},
		"another type":              {func(s *job.Spec) { s.Type, s.Payload, s.Workers = job.TypeShell, []byte(`{"command":"true"}`), nil }, 22_000, ""},
		"an edit of something else": {func(s *job.Spec) { s.Timeout = job.Duration(time.Minute) }, 22_000, RuleStalled},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) { s.Workers = map[string]string{"region": "mars"} })
			s.in.Recovery, s.in.Voters = 15*time.Second, 3
			s.update(minute(1)+20_000, tc.edit)
			s.runAt(sched(minute(1)), minute(1)+tc.lag)
			s.run(2)
			check(t, s.end(2), tc.want)
		})
	}
}

// A planned transfer begins with a stamp: what the leader was idle for is no outage.
func TestPlannedTransferIsNoOutage(t *testing.T) {
	for _, long := range []bool{false, true} {
		s := newScene(nil)
		s.in.Recovery, s.in.Voters = 15*time.Second, 3
		runs(s, 1, 2)
		s.fault(FaultLeader, "n1", minute(1)+20_000, minute(1)+20_100)
		from := minute(1) + 19_000
		want := Rule("")
		if long {
			from, want = minute(1)+12_000, RuleOutage
		}
		s.in.Outages = []Outage{{job.Instant(from), job.Instant(minute(1) + 20_300)}}
		check(t, s.end(2), want)
	}
}
