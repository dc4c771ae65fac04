package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	for _, tc := range []struct{ expr, zone, want string }{
		{"0 9 * * 1-5", "America/New_York", "at 09:00 on weekdays (America/New_York)"},
		{"0 9 * * *", "", "at 09:00 every day (UTC)"},
		{"30 9,17 * * SAT,SUN", "", "at 09:30 and 17:30 on weekends (UTC)"},
		{"15 30 9 * * *", "", "at 09:30:15 every day (UTC)"},
		{"* * * * *", "", "every minute (UTC)"},
		{"*/15 9-17 * * *", "", "every 15 minutes from 09:00 to 17:59 (UTC)"},
		{"*/7 * * * *", "", "every 7 minutes from the start of each hour (UTC)"},
		{"*/10 * * * * *", "", "every 10 seconds (UTC)"},
		{"* 3 * * *", "", "every minute of hour 3 (UTC)"},
		{"0 */2 * * *", "", "every 2 hours (UTC)"},
		{"0 */5 * * *", "", "every 5 hours from midnight (UTC)"},
		{"5,35 * * * *", "", "at minutes 5 and 35 of every hour (UTC)"},
		{"0 9-17/2 * * *", "", "at minute 0 of hours 9 to 17 by 2 every day (UTC)"},
		{"30 */5 9 * * *", "", "at second 30 of every 5th minute of hour 9 (UTC)"},
		{"@hourly", "", "every hour (UTC)"},
		{"TZ=Europe/London @daily", "", "at 00:00 every day (Europe/London)"},
		{"0 0 25 12 *", "", "at 00:00 on 25 December (UTC)"},
		{"0 0 1,15 * *", "", "at 00:00 on days 1 and 15 of the month (UTC)"},
		{"0 0 13 * 5", "", "at 00:00 on day 13 of the month or on Friday (UTC)"},
		{"0 0 */2 * 1", "", "at 00:00 on every 2nd day of the month if it is on Monday (UTC)"},
		{"30 6 L * *", "", "at 06:30 on the last day of the month (UTC)"},
		{"0 0 L-3,LW,15W * *", "",
			"at 00:00 on 3 days before the last day of the month, the last weekday of the month and the weekday nearest to day 15 of the month (UTC)"},
		{"0 12 * * 5#2,MONL", "", "at 12:00 on the 2nd Friday of the month and the last Monday of the month (UTC)"},
		{"30 3 * jun-aug mon,wed", "", "at 03:30 on Monday and Wednesday from June to August (UTC)"},
		{"0 0 * */3 1", "", "at 00:00 on Monday in every 3rd month (UTC)"},
		{"H H * * *", "", "at minute H of hour H every day, where H depends on the job (UTC)"},
		{"@every 90s", "Europe/London", "every 90 seconds"},
		{"@every 24h", "", "every day"},
		{"@every 1500ms", "", "every 1.5s"},
		{"@manual", "", "only when triggered"},
		{"2027-03-01T09:00:00Z", "America/New_York", "once, at 2027-03-01 04:00:00 (America/New_York)"},
		{"DTSTART:20260105T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE", "",
			"every 2 weeks on Monday and Wednesday at 09:00 from 2026-01-05 (UTC)"},
		{"DTSTART:20260105T090000 RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=5", "",
			"every month on weekdays at 09:00 (only the last of each month) from 2026-01-05 until 2026-05-29 (UTC)"},
		{"DTSTART:20260105T090000 RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3 EXDATE:20270328", "",
			"every year on the last Sunday in March at 09:00 from 2026-01-05 except on 1 date (UTC)"},
		{"DTSTART:20260105T090000 RRULE:FREQ=MONTHLY;BYMONTHDAY=1,-2", "",
			"every month on day 1 and the 2nd to last day of the month at 09:00 from 2026-01-05 (UTC)"},
		{"DTSTART:20260105T090000 RRULE:FREQ=HOURLY;INTERVAL=3;BYMINUTE=0,30", "",
			"every 3 hours at 00:00 and 30:00 past the hour from 2026-01-05 (UTC)"},
		{"DTSTART:20260105T090000 RRULE:FREQ=MINUTELY;INTERVAL=5;BYHOUR=9,10", "",
			"every 5 minutes in hour 9 and 10 from 2026-01-05 (UTC)"},
	} {
		got, err := Describe(tc.expr, tc.zone)
		if err != nil || got != tc.want {
			t.Errorf("%s\n got %s, %v\nwant %s", tc.expr, got, err, tc.want)
		}
	}
	if _, err := Describe("0 0 30 2 *", ""); err == nil {
		t.Error("an impossible date is described")
	}
}

// TestDescribeFor: of a job it is known what H stands for.
func TestDescribeFor(t *testing.T) {
	for seed := range uint64(20) {
		s, err := Parse("H H * * *", Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		at, _ := s.Next(time.Unix(1_800_000_000, 0))
		got, err := DescribeFor("H H * * *", "", seed)
		if want := at.Format("at 15:04") + " every day (UTC)"; err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		every, err := Parse("H/20 * * * *", Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		first, _ := every.Next(time.Unix(1_800_000_000, 0).Truncate(time.Hour).Add(-1))
		got, err = DescribeFor("H/20 * * * *", "", seed)
		if want := fmt.Sprintf("at minutes %d to 59 by 20 of every hour (UTC)", first.Minute()); err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}

func TestByJob(t *testing.T) {
	for expr, want := range map[string]bool{"H * * * *": true, "@every 10m": true, "0 H(1-5) * * *": true,
		"*/5 * * * *": false, "@manual": false, "@daily": false, "2027-03-01T09:00:00Z": false} {
		if s, err := Parse(expr, Options{}); err != nil || s.ByJob() != want {
			t.Errorf("%s: %v", expr, err)
		}
	}
	if s, err := Parse("@every 10m", Options{StartAt: time.Unix(1_800_000_000, 0)}); err != nil || s.ByJob() {
		t.Errorf("with a start: %v", err)
	}
}

// TestWordsForAnInterval: who writes an interval in words is told how to.
func TestWordsForAnInterval(t *testing.T) {
	if _, err := Parse("every 5 seconds", Options{}); err == nil || !strings.Contains(err.Error(), `"@every 5s"`) {
		t.Error(err)
	}
}
