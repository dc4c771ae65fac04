package view

import (
	"cmp"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

func TestNextRunBehindABlackout(t *testing.T) {
	at := func(s string) time.Time {
		x, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, tt := range []struct {
		expr, zone string
		calendars  []schedule.Calendar
		due, want  string
	}{
		{"* * * * *", "", []schedule.Calendar{{Weekdays: []string{"sun"}}}, "2027-03-07T00:00:00Z",
			"2027-03-08T00:00:00Z"},
		{"* * * * *", "", []schedule.Calendar{{Weekdays: []string{"sun"}}}, "2027-03-06T23:59:00Z",
			"2027-03-06T23:59:00Z"},
		{"*/7 * * * *", "", []schedule.Calendar{{Weekdays: []string{"sun"}}, {Dates: []string{"2027-03-08"}},
			{Daily: []string{"00:00-06:30"}}}, "2027-03-07T05:07:00Z", "2027-03-09T06:35:00Z"},
		{"* * * * *", "", []schedule.Calendar{{Windows: []schedule.Window{{From: at("2027-01-01T00:00:00Z"),
			To: at("2031-01-01T00:00:30Z")}}}}, "2027-03-07T05:07:00Z", "2031-01-01T00:01:00Z"},
		{"@every 1s", "", []schedule.Calendar{{Timezone: "Europe/Berlin", Weekdays: []string{"sun"}}},
			"2027-03-27T23:30:00Z", "2027-03-28T22:00:00Z"}, // 23 hours
		{"@every 1s", "", []schedule.Calendar{{Timezone: "Europe/Berlin", Weekdays: []string{"sun"}}},
			"2027-10-31T10:30:00Z", "2027-10-31T23:00:00Z"}, // 25 hours
		{"0 9 * * sun", "", []schedule.Calendar{{Weekdays: []string{"sun"}}}, "2027-03-07T09:00:00Z", ""},
		// what the clock goes over is skipped, and so is a calendar's day behind it
		{"30 2 * * *", "America/New_York", nil, "2027-03-13T07:30:00Z", "2027-03-13T07:30:00Z"},
		{"30 2 * * *", "America/New_York", nil, "2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"},
		{"30 2 * * *", "America/New_York", []schedule.Calendar{{Weekdays: []string{"mon"}}}, "2027-03-14T07:00:00Z", "2027-03-16T06:30:00Z"},
	} {
		r := &Reader{calendars: map[calendarKey]*schedule.Blackout{}}
		h := Held{ID: 1, Def: store.Definition{Spec: job.Spec{Type: job.TypeShell, Schedule: tt.expr,
			Timezone: tt.zone, DSTGap: "skip"}}}
		for i, c := range tt.calendars {
			name := string(rune('a' + i))
			b, err := c.Compile()
			if err != nil {
				t.Fatal(err)
			}
			r.calendars[calendarKey{"", name}] = b
			h.Def.Spec.Calendars = append(h.Def.Spec.Calendars, name)
		}
		h.Place = store.Place{At: at(tt.due).UnixMilli(), Ready: at(tt.due).UnixMilli()}
		want := int64(0)
		if tt.want != "" {
			want = at(tt.want).UnixMilli()
		}
		got := r.NextRun(&h)
		if tt.expr == "@every 1s" { // its phase is its own
			got -= got % 1000
		}
		if got != want {
			t.Errorf("%s from %s: %s, want %s", tt.expr, tt.due, job.Instant(got), tt.want)
		}
	}
}

// What waits for the turns of its job says for what.
func TestTurnOfCatchUpRuns(t *testing.T) {
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true, MmapSize: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	const now, id = 1000_000, job.ID(7)
	src := Source{Store: st, Now: func() int64 { return now }}
	s := store.State{Class: 1, Waiting: 2, Took: 3_210}
	for _, tt := range []struct {
		name   string
		row    store.Row
		ready  int64
		reason job.Reason
		turn   string
	}{
		{"live, behind a catch-up run", store.Row{Status: job.RunWaiting, Delayed: true}, now + 1, job.ReasonBackfill, ""},
		{"live, behind a live one", store.Row{Status: job.RunWaiting}, now + 1, job.ReasonNone, ""},
		{"of a paused job", store.Row{Status: job.RunWaiting, Held: job.RunPending, Serial: true}, now + 1, job.ReasonNone, ""},
		{"no room", store.Row{Status: job.RunWaiting, Serial: true}, now + 1, job.ReasonNoRoom,
			"2 runs wait for their turn: there is no time left before the next occurrence: a run of the job takes about 3.2s"},
		{"one is due", store.Row{Status: job.RunWaiting, Serial: true}, now, job.ReasonNone,
			"2 runs wait for their turn: an occurrence is due and comes first"},
	} {
		p := store.Place{Ready: tt.ready, At: tt.ready}
		b, err := st.Begin()
		if err == nil {
			err = cmp.Or(b.PutState(id, &s, p), b.Commit())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := src.View(func(r *Reader) error {
			reason, _, err := r.waitsBehind(job.RunKey{Job: id, At: 1, Origin: job.OriginBackfill}, &tt.row)
			if reason != tt.reason {
				t.Errorf("%s: %q", tt.name, reason)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		h := Held{ID: id, State: s, Place: p}
		if got := h.turn(now); tt.turn != "" && got != tt.turn {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
