package schedule

import (
	"testing"
	"time"
)

var benchExprs = []struct{ name, expr, zone string }{
	{"minute", "* * * * *", "America/New_York"},
	{"every15", "*/15 * * * *", "America/New_York"},
	{"weekdays", "0 9 * * MON-FRI", "America/New_York"},
	{"utc", "0 9 * * MON-FRI", "UTC"},
	{"seconds", "*/10 * * * * *", "Europe/London"},
	{"monthly", "0 0 LW * *", "America/New_York"},
	{"yearly", "0 0 1 1 *", "America/New_York"},
	{"leapSunday", "0 0 29 2 */7", "America/New_York"},
	{"every", "@every 90s", "UTC"},
	{"instant", "2027-03-01T09:00:00Z", "UTC"},
	{"rruleDaily", "DTSTART:19970901T090000 RRULE:FREQ=DAILY", "America/New_York"},
	{"rruleWeekly", "DTSTART:19970901T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE", "America/New_York"},
	{"rruleMonthlyPos", "DTSTART:19970901T090000 RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "America/New_York"},
	{"rruleYearly", "DTSTART:19970901T090000 RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", "America/New_York"},
	{"rruleMinutely", "DTSTART:19970901T090000 RRULE:FREQ=MINUTELY;INTERVAL=7;BYHOUR=9,10", "America/New_York"},
}

func BenchmarkNext(b *testing.B) {
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, bc := range benchExprs {
		b.Run(bc.name, func(b *testing.B) {
			s := mustParse(b, bc.expr, Options{Zone: bc.zone})
			b.ReportAllocs()
			at := base
			for b.Loop() {
				next, ok := s.Next(at)
				if at = next; !ok || next.Year() > 2040 {
					at = base
				}
			}
		})
	}
}

func BenchmarkPrev(b *testing.B) {
	base := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, bc := range benchExprs {
		b.Run(bc.name, func(b *testing.B) {
			s := mustParse(b, bc.expr, Options{Zone: bc.zone})
			b.ReportAllocs()
			at := base
			for b.Loop() {
				prev, ok := s.Prev(at)
				if at = prev.Add(-1); !ok || prev.Year() < 2026 {
					at = base
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, bc := range benchExprs {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(bc.expr, Options{Zone: bc.zone}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkContains(b *testing.B) {
	c := Calendar{Timezone: "America/New_York", Dates: []string{"12-25", "2026-07-03"}, Weekdays: []string{"sat"},
		Daily: []string{"22:00-06:00"}}
	bl, err := c.Compile()
	if err != nil {
		b.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		bl.Contains(at)
		at = at.Add(time.Hour)
	}
}

// BenchmarkParseCron is what a create reads.
func BenchmarkParseCron(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("17 43 10 * * *", Options{Zone: "UTC", Gap: "run_after"}); err != nil {
			b.Fatal(err)
		}
	}
}
