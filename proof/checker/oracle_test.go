package checker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// TestOracle holds the oracle against package schedule around changes of the clocks. They share no code, so that what
// both say is probably true.
func TestOracle(t *testing.T) {
	exprs := []string{"*/7 * * * *", "0 2 * * *", "30 1,2,3 * * *", "0 */2 * * *", "15 0 * * MON-FRI", "10,50 1-3 * * *",
		"*/13 * * * * *", "0 0 L * *", "0 12 15W * ?",
		"5 4 * * 5#2", "5 4 * * 7L", "0 0 LW * *", "H H * * *", "H/10 H(0-5) * * *", "H H(1-7) 1-28/3 * *",
		"0 22-3 * * FRI-MON", "@hourly", "@daily", "@weekly",
		"@every 7m", "@every 90s", "0 0 13 * 5", "3/10 * * * *", "30 2 29 2 *",
		"DTSTART:20260301T013000 RRULE:FREQ=DAILY", "DTSTART:20260301T013000 RRULE:FREQ=HOURLY;INTERVAL=3",
		"DTSTART:20260301T023000 RRULE:FREQ=WEEKLY;BYDAY=SU,MO EXDATE:20260315T023000",
		"DTSTART:20260301T023000 RRULE:FREQ=DAILY;COUNT=40",
		"DTSTART:20260301T023000 RRULE:FREQ=DAILY;UNTIL=20261030T000000", "2026-03-29T01:30:00+01:00"}
	points := []struct{ zone, at string }{
		{"America/New_York", "2026-03-08T07:00:00Z"}, {"America/New_York", "2026-11-01T06:00:00Z"},
		{"Europe/London", "2026-03-29T01:00:00Z"},
		{"Europe/London", "2026-10-25T01:00:00Z"}, {"Australia/Lord_Howe", "2026-04-04T15:00:00Z"},
		{"Australia/Lord_Howe", "2026-10-03T15:30:00Z"},
		{"Africa/Cairo", "2026-04-23T22:00:00Z"}, {"Africa/Cairo", "2026-10-29T21:00:00Z"},
		{"Asia/Kolkata", "2026-06-01T00:00:00Z"}, {"UTC", "2026-12-31T00:00:00Z"},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	checked := 0
	for _, expr := range exprs {
		for _, p := range points {
			for _, policy := range [][2]string{{"", ""}, {"skip", "both"}, {"run_after", "first"}} {
				at, _ := time.Parse(time.RFC3339, p.at)
				spec := &job.Spec{Schedule: expr, Timezone: p.zone, DSTGap: policy[0], DSTOverlap: policy[1],
					Jitter: job.Duration(time.Minute)}
				if rng.IntN(4) == 0 {
					spec.StartAt, spec.EndAt = job.At(at.Add(-5*time.Hour)), job.At(at.Add(7*time.Hour))
				}
				id := job.ID(1 + rng.IntN(1000))
				s, err := schedule.Parse(expr,
					schedule.Options{Zone: p.zone, Gap: policy[0], Overlap: policy[1], Seed: uint64(id), Jitter: time.Minute,
						StartAt: spec.StartAt.Time(), EndAt: spec.EndAt.Time()})
				if err != nil {
					continue // it never fires within those bounds
				}
				o, err := newOracle(spec, id)
				if err != nil {
					t.Fatalf("%s: %v", expr, err)
				}
				if o.delay != s.Delay().Milliseconds() {
					t.Errorf("%s: a delay of %d ms, want %d", expr, o.delay, s.Delay().Milliseconds())
				}
				from, to := at.Add(-26*time.Hour), at.Add(26*time.Hour)
				var want []int64
				for x := from.Add(-time.Millisecond); ; {
					n, ok := s.Next(x)
					if !ok || n.After(to) {
						break
					}
					want, x = append(want, n.UnixMilli()), n
					if got := o.skipped(n.UnixMilli()); got != s.Skipped(n) {
						t.Fatalf("%s in %s (%v): %s is skipped: %v, want %v", expr, p.zone, policy, n, got, !got)
					}
				}
				got := o.between(from.UnixMilli(), to.UnixMilli())
				checked += len(want)
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("%s in %s (%v) around %s:\n got %v\nwant %v", expr, p.zone, policy, p.at, times(got), times(want))
				}
				after := from.UnixMilli() + rng.Int64N(40*3600_000)
				wantNext := int64(0)
				if n, ok := s.Next(time.UnixMilli(after)); ok && n.Sub(at) < far {
					wantNext = n.UnixMilli()
				}
				if gotNext := o.next(after); gotNext != wantNext {
					t.Fatalf("%s in %s: the next after %s is %s, want %s", expr, p.zone, job.Instant(after), job.Instant(gotNext),
						job.Instant(wantNext))
				}
			}
		}
	}
	if checked < 5000 {
		t.Errorf("only %d occurrences were compared", checked)
	}
}

func times(ms []int64) []string {
	var out []string
	for _, t := range ms {
		out = append(out, job.Instant(t).String())
	}
	return out
}

// TestCalendarOracle holds the calendar oracle against package schedule.
func TestCalendarOracle(t *testing.T) {
	at := time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC)
	c := schedule.Calendar{Timezone: "Europe/London", Dates: []string{"2026-10-25", "10-27"}, Weekdays: []string{"wed"},
		Daily:   []string{"22:00-06:00", "12:30-13:00"},
		Windows: []schedule.Window{{From: at.Add(5 * time.Hour), To: at.Add(7 * time.Hour)}}}
	b, err := c.Compile()
	if err != nil {
		t.Fatal(err)
	}
	blocked := 0
	for m := range 7 * 24 * 60 {
		x := at.Add(time.Duration(m) * time.Minute)
		want := b.Contains(x)
		if got := forbids(&c, x.UnixMilli()); got != want {
			t.Fatalf("%s: %v, want %v", x, got, want)
		}
		if want {
			blocked++
		}
	}
	if blocked == 0 {
		t.Error("nothing was blocked")
	}
}
