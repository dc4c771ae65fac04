package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// TestCalendarOfWaiting: what waits behind a run of its job was judged by the calendar of its own time; what found none
// is judged when it is claimed; and a change that its leader may not have heard of proves nothing.
func TestCalendarOfWaiting(t *testing.T) {
	open := &schedule.Calendar{Name: "closed"}
	for name, tc := range map[string]struct {
		changed int64 // when the calendar begins to forbid the second occurrence
		behind  bool  // a run is open at its time
		back    bool  // its first worker never heard of it
		unheard bool  // the answer to the change said that a node may not know of it
		want    Rule
	}{
		"changed while it waited behind a run":    {minute(2) + 10_000, true, false, false, ""},
		"changed before its time":                 {minute(2) - 10_000, true, false, false, RuleBounds},
		"changed while it waited for a slot only": {minute(2) + 10_000, false, false, false, RuleBounds},
		"changed while its first worker had it":   {minute(2) + 10_000, false, true, false, ""},
		"changed, and perhaps not heard of":       {minute(2) - 10_000, true, false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) { s.Calendars, s.Overlap = []string{"closed"}, job.OverlapQueue })
			s.call(Call{Kind: CallCalendar, Name: "closed", Calendar: open}, t0-1000)
			window := schedule.Window{From: time.UnixMilli(minute(2)), To: time.UnixMilli(minute(2) + 1000)}
			forbids := &schedule.Calendar{Name: "closed", Windows: []schedule.Window{window}}
			s.call(Call{Kind: CallCalendar, Name: "closed", Calendar: forbids, Unheard: tc.unheard}, tc.changed)
			took := int64(1000)
			if tc.behind {
				took = 80_000
			}
			s.attempt(sched(minute(1)), 1, worker, minute(1), took, Succeeded, job.RunSucceeded, job.ReasonNone)
			s.runAt(sched(minute(2)), minute(1)+80_100)
			if h := &s.in.Final.History[1]; tc.back {
				h.ReadyAt = h.ClaimedAt
			} else if !tc.behind {
				h.ReadyAt = h.ScheduledAt
			}
			s.run(3)
			check(t, s.end(3), tc.want)
		})
	}
}
