package schedule

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"
)

func mustParse(tb testing.TB, expr string, o Options) *Schedule {
	tb.Helper()
	s, err := Parse(expr, o)
	if err != nil {
		tb.Fatalf("%q: %v", expr, err)
	}
	return s
}

func checkNext(t *testing.T, s *Schedule, after string, want []string) {
	t.Helper()
	at := parseTime(t, after)
	for _, w := range want {
		got, ok := s.Next(at)
		for ok && s.Skipped(got) {
			got, ok = s.Next(got)
		}
		if !ok || !got.Equal(parseTime(t, w)) {
			t.Fatalf("after %v comes %v (%v), want %s", at, got, ok, w)
		}
		if got.Location() != time.UTC {
			t.Fatalf("%v is not in UTC", got)
		}
		if prev, ok := s.Prev(got); !ok || !prev.Equal(got) {
			t.Fatalf("Prev(%v) = %v, %v", got, prev, ok)
		}
		at = got
	}
}

// TestDST has the rules for daylight saving, case by case.
func TestDST(t *testing.T) {
	ny := "America/New_York"
	for _, tc := range []struct {
		name, expr string
		o          Options
		after      string
		want       []string
	}{
		{"fixed time in a gap runs after it", "30 2 * * *", Options{Zone: ny}, "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"}},
		{"gap, skip", "30 2 * * *", Options{Zone: ny, Gap: "skip"}, "2026-03-07T12:00:00Z", []string{"2026-03-09T06:30:00Z"}},
		{"step of hours in a gap", "0 */2 * * *", Options{Zone: ny}, "2026-03-08T05:30:00Z",
			[]string{"2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z"}},
		{"not twice if the instant after is an occurrence", "*/15 * * * *", Options{Zone: ny}, "2026-03-08T06:40:00Z",
			[]string{"2026-03-08T06:45:00Z", "2026-03-08T07:00:00Z", "2026-03-08T07:15:00Z"}},
		{"many swallowed, one run", "*/5 2 * * *", Options{Zone: ny}, "2026-03-08T06:00:00Z",
			[]string{"2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"}},
		{"skip keeps the instant after", "*/15 * * * *", Options{Zone: ny, Gap: "skip"}, "2026-03-08T06:45:00Z",
			[]string{"2026-03-08T07:00:00Z"}},
		{"fixed time that occurs twice", "30 1 * * *", Options{Zone: ny}, "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"fixed list", "0,30 1 * * *", Options{Zone: ny}, "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:00:00Z"}},
		{"H alone is fixed", "H(30-30) 1 * * *", Options{Zone: ny}, "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"interval follows real time", "*/30 * * * *", Options{Zone: ny}, "2026-11-01T04:50:00Z",
			[]string{"2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:30:00Z",
				"2026-11-01T07:00:00Z"}},
		{"a range is an interval", "30 0-5 * * *", Options{Zone: ny}, "2026-11-01T05:00:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:30:00Z"}},
		{"interval, first", "*/30 * * * *", Options{Zone: ny, Overlap: "first"}, "2026-11-01T05:10:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-01T07:00:00Z"}},
		{"fixed, both", "30 1 * * *", Options{Zone: ny, Overlap: "both"}, "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"}},
		{"asked within the second pass", "30 1 * * *", Options{Zone: ny}, "2026-11-01T06:10:00Z",
			[]string{"2026-11-02T06:30:00Z"}},
		{"midnight gap", "0 0 * * *", Options{Zone: "Africa/Cairo"}, "2026-04-22T23:00:00Z",
			[]string{"2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"}},
		{"midnight gap, dated", "15 0 4 11 *", Options{Zone: "America/Sao_Paulo"}, "2018-01-01T00:00:00Z",
			[]string{"2018-11-04T03:00:00Z", "2019-11-04T03:15:00Z"}},
		{"midnight overlap", "30 23 * * *", Options{Zone: "Africa/Cairo"}, "2026-10-29T00:00:00Z",
			[]string{"2026-10-29T20:30:00Z", "2026-10-30T21:30:00Z"}},
		{"half an hour", "15 2 * * *", Options{Zone: "Australia/Lord_Howe"}, "2026-10-03T00:00:00Z",
			[]string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		{"a missing day", "0 9 * * *", Options{Zone: "Pacific/Apia"}, "2011-12-29T20:00:00Z",
			[]string{"2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z"}},
		{"a missing day, dated", "0 9 30 12 *", Options{Zone: "Pacific/Apia"}, "2011-06-01T00:00:00Z",
			[]string{"2011-12-30T10:00:00Z", "2012-12-29T19:00:00Z"}},
		{"a missing day, skip", "0 9 30 12 *", Options{Zone: "Pacific/Apia", Gap: "skip"}, "2011-06-01T00:00:00Z",
			[]string{"2012-12-29T19:00:00Z"}},
		{"an offset that changed for good", "0 0 * * *", Options{Zone: "Africa/Monrovia"}, "1972-01-06T12:00:00Z",
			[]string{"1972-01-07T00:44:30Z", "1972-01-08T00:00:00Z"}},
	} {
		t.Run(tc.name, func(t *testing.T) { checkNext(t, mustParse(t, tc.expr, tc.o), tc.after, tc.want) })
	}
}

func TestCron(t *testing.T) {
	for _, tc := range []struct {
		name, expr, after string
		want              []string
	}{
		{"weekdays", "0 9 * * MON-FRI", "2026-01-02T10:00:00Z", []string{"2026-01-05T09:00:00Z", "2026-01-06T09:00:00Z"}},
		{"seconds first", "30 0 9 * * *", "2026-01-01T09:00:30Z", []string{"2026-01-02T09:00:30Z"}},
		{"day of month or day of week", "0 0 13 * 5", "2026-02-06T12:00:00Z",
			[]string{"2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-06T00:00:00Z",
				"2026-03-13T00:00:00Z"}},
		{"a star narrows", "0 0 */10 * 1", "2026-01-01T00:00:00Z", []string{"2026-05-11T00:00:00Z", "2026-06-01T00:00:00Z"}},
		{"7 is Sunday", "0 0 * * 7", "2026-01-01T00:00:00Z", []string{"2026-01-04T00:00:00Z"}},
		{"wrapped weekdays", "0 0 * * FRI-MON", "2026-01-01T00:00:00Z",
			[]string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z", "2026-01-05T00:00:00Z",
				"2026-01-09T00:00:00Z"}},
		{"wrapped hours with a step", "0 22-4/2 * * *", "2026-01-01T20:00:00Z",
			[]string{"2026-01-01T22:00:00Z", "2026-01-02T00:00:00Z", "2026-01-02T02:00:00Z", "2026-01-02T04:00:00Z",
				"2026-01-02T22:00:00Z"}},
		{"last day", "0 0 L * *", "2028-01-31T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"}},
		{"before the last day", "0 0 L-3 2 ?", "2026-01-01T00:00:00Z", []string{"2026-02-25T00:00:00Z"}},
		{"nearest weekday, Saturday", "0 0 15W 8 *", "2026-01-01T00:00:00Z", []string{"2026-08-14T00:00:00Z"}},
		{"nearest weekday does not leave the month", "0 0 1W 8 *", "2026-01-01T00:00:00Z", []string{"2026-08-03T00:00:00Z"}},
		{"nearest weekday, no such day", "0 0 31W * *", "2026-01-31T00:00:00Z", []string{"2026-03-31T00:00:00Z"}},
		{"last weekday", "0 0 LW * *", "2026-01-01T00:00:00Z", []string{"2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z"}},
		{"last Friday", "0 0 ? * 5L", "2026-01-01T00:00:00Z", []string{"2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z"}},
		{"third Friday", "0 0 * * fri#3", "2026-01-01T00:00:00Z", []string{"2026-01-16T00:00:00Z", "2026-02-20T00:00:00Z"}},
		{"leap day", "0 0 29 2 *", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}}, // 2100 has none
		{"leap day on a Sunday", "0 0 29 2 */7", "2026-01-01T00:00:00Z",
			[]string{"2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z", "2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"}},
		{"@hourly", "@hourly", "2026-01-01T00:30:00Z", []string{"2026-01-01T01:00:00Z"}},
		{"@midnight", "@Midnight", "2026-01-01T00:30:00Z", []string{"2026-01-02T00:00:00Z"}},
		{"@weekly", "@weekly", "2026-01-01T00:30:00Z", []string{"2026-01-04T00:00:00Z"}},
		{"@monthly", "@monthly", "2026-01-01T00:30:00Z", []string{"2026-02-01T00:00:00Z"}},
		{"@annually", " @annually ", "2026-01-01T00:30:00Z", []string{"2027-01-01T00:00:00Z"}},
		{"zone in the expression", "CRON_TZ=Asia/Kolkata 0 9 * * *", "2026-01-01T00:00:00Z",
			[]string{"2026-01-01T03:30:00Z"}},
	} {
		t.Run(tc.name, func(t *testing.T) { checkNext(t, mustParse(t, tc.expr, Options{}), tc.after, tc.want) })
	}
}

// TestRefused holds that a wrong schedule is refused, for the right field, and with a hint.
func TestRefused(t *testing.T) {
	start := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name, expr string
		o          Options
		field      string
		says       string
	}{
		{"empty", "  ", Options{}, "schedule", "empty"},
		{"four fields", "* * * *", Options{}, "schedule", "this one has 4"},
		{"year field", "0 0 0 1 1 ? 2027", Options{}, "schedule", "year"},
		{"minute", "75 * * * *", Options{}, "schedule", `minute field: "75" is out of range 0-59`},
		{"hour", "0 24 * * *", Options{}, "schedule", "hour field"},
		{"second of six", "99 0 0 * * *", Options{}, "schedule", "second field"},
		{"day", "0 0 0 * *", Options{}, "schedule", "day of month field"},
		{"month name", "0 0 1 JANUARY *", Options{}, "schedule", "month field"},
		{"weekday", "0 0 * * 8", Options{}, "schedule", "day of week field"},
		{"sign", "+5 * * * *", Options{}, "schedule", ""},
		{"sign inside", "5 -3 * * *", Options{}, "schedule", "hour field"},
		{"L without weekday", "0 0 * * L", Options{}, "schedule", "5L"},
		{"nth", "0 0 * * 5#6", Options{}, "schedule", "1 to 5"},
		{"W in weekday", "0 0 * * 5W", Options{}, "schedule", "day of week field"},
		{"? in hour", "0 ? * * *", Options{}, "schedule", "day fields"},
		{"step zero", "*/0 * * * *", Options{}, "schedule", "step"},
		{"step too long", "*/90 * * * *", Options{}, "schedule", "@every"},
		{"empty list item", "1,,2 * * * *", Options{}, "schedule", "empty"},
		{"star in a list", "*,5 * * * *", Options{}, "schedule", "list"},
		{"H backwards", "H(30-10) * * * *", Options{}, "schedule", "backwards"},
		{"H step", "H(0-5)/9 * * * *", Options{}, "schedule", "beyond its range"},
		{"step on L", "0 0 L/2 * *", Options{}, "schedule", "step"},
		{"30 February", "0 0 30 2 *", Options{}, "schedule", "never fires"},
		{"31 February", "0 0 31 2 *", Options{}, "schedule", "never fires"},
		{"31 in short months", "0 0 31 4,6,9,11 *", Options{}, "schedule", "never fires"},
		{"unknown macro", "@fortnightly", Options{}, "schedule", "@weekly"},
		{"every half second", "@every 500ms", Options{}, "schedule", "one second"},
		{"every, no duration", "@every", Options{}, "schedule", "duration"},
		{"every, days", "@every 3d", Options{}, "schedule", "duration"},
		{"every, microseconds", "@every 1.0000005s", Options{}, "schedule", "milliseconds"},
		{"every, too long", "@every 100000h", Options{}, "schedule", "ten years"},
		{"instant without offset", "2027-03-01T09:00:00", Options{}, "schedule", "RFC 3339"},
		{"instant too late", "2201-01-01T00:00:00Z", Options{}, "schedule", "2200"},
		{"relative", "+90s", Options{}, "schedule", "relative"},
		{"zone", "@daily", Options{Zone: "Mars/Olympus"}, "timezone", "IANA"},
		{"zone, wrong case", "@daily", Options{Zone: "europe/london"}, "timezone", "did you mean Europe/London"},
		{"zone of the machine", "@daily", Options{Zone: "Local"}, "timezone", ""},
		{"zone outside", "@daily", Options{Zone: "../../etc/passwd"}, "timezone", ""},
		{"two zones", "TZ=Europe/London @daily", Options{Zone: "Europe/Paris"}, "timezone", "keep one"},
		{"only a zone", "TZ=Europe/London", Options{}, "schedule", "no schedule"},
		{"gap", "@daily", Options{Gap: "later"}, "dst_gap", "run_after"},
		{"overlap", "@daily", Options{Overlap: "second"}, "dst_overlap", "first"},
		{"jitter", "@daily", Options{Jitter: -1}, "jitter", ""},
		{"end before start", "@daily", Options{StartAt: start, EndAt: start.Add(-1)}, "end_at", "before"},
		{"nothing between", "@yearly", Options{StartAt: start, EndAt: start.AddDate(0, 1, 0)}, "end_at", "between"},
		{"instant before start", "2026-01-01T00:00:00Z", Options{StartAt: start}, "start_at", ""},
		{"rule without DTSTART", "RRULE:FREQ=DAILY", Options{}, "schedule", "DTSTART"},
		{"rule without words", "FREQ=DAILY", Options{}, "schedule", "RRULE:"},
		{"rule without FREQ", "DTSTART:20260101T000000 RRULE:COUNT=3", Options{}, "schedule", "FREQ"},
		{"rule, unknown part", "DTSTART:20260101T000000 RRULE:FREQ=DAILY;BYEASTER=1", Options{}, "schedule", "BYEASTER"},
		{"rule, count and until", "DTSTART:20260101T000000 RRULE:FREQ=DAILY;COUNT=3;UNTIL=20270101T000000", Options{},
			"schedule", "exclude"},
		{"rule, part twice", "DTSTART:20260101T000000 RRULE:FREQ=DAILY;COUNT=3;COUNT=4", Options{}, "schedule", "twice"},
		{"rule, two rules", "DTSTART:20260101T000000 RRULE:FREQ=DAILY RRULE:FREQ=DAILY", Options{}, "schedule",
			"more than one"},
		{"rule, hour", "DTSTART:20260101T000000 RRULE:FREQ=DAILY;BYHOUR=24", Options{}, "schedule", "BYHOUR"},
		{"rule, sixth Monday", "DTSTART:20260101T000000 RRULE:FREQ=MONTHLY;BYDAY=6MO", Options{}, "schedule", "five"},
		{"rule, numbered weekday", "DTSTART:20260101T000000 RRULE:FREQ=WEEKLY;BYDAY=1MO", Options{}, "schedule", "BYDAY"},
		{"rule, never meets", "DTSTART:20260101T000000 RRULE:FREQ=HOURLY;INTERVAL=2;BYHOUR=1", Options{}, "schedule",
			"never"},
		{"rule, never meets by date", "DTSTART:20260105T000000 RRULE:FREQ=HOURLY;INTERVAL=168;BYDAY=TU", Options{},
			"schedule", "never"},
		{"rule, no such date", "DTSTART:20260101T000000 RRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30;BYHOUR=3", Options{},
			"schedule", "never"},
		{"rule, all excluded", "DTSTART:20260101T000000 RRULE:FREQ=DAILY;COUNT=2 EXDATE:20260101,20260102", Options{},
			"schedule", "never"},
		{"rule, until before start", "DTSTART:20260101T000000 RRULE:FREQ=DAILY;UNTIL=20251231T000000", Options{}, "schedule",
			"never"},
		{"rule, zones differ", "DTSTART;TZID=Europe/London:20260101T000000 RRULE:FREQ=DAILY", Options{Zone: "UTC"},
			"timezone", "keep one"},
		{"rule, UTC in a zone", "DTSTART:20260101T000000Z RRULE:FREQ=DAILY", Options{Zone: "Europe/London"}, "timezone",
			"keep one"},
		{"rule, EXRULE", "DTSTART:20260101T000000 RRULE:FREQ=DAILY EXRULE:FREQ=WEEKLY", Options{}, "schedule", "EXRULE"},
		{"rule, date", "DTSTART:20260230T000000 RRULE:FREQ=DAILY", Options{}, "schedule", "DTSTART"},
		{"rule, before 1970", "DTSTART:19691231T000000 RRULE:FREQ=DAILY", Options{}, "schedule", "1970"},
		{"too long", strings.Repeat("1,", 40000), Options{}, "schedule", "longer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Parse(tc.expr, tc.o)
			var e *Error
			if !errors.As(err, &e) || s != nil {
				t.Fatalf("got %v, %v", s, err)
			}
			if e.Field != tc.field || e.Msg == "" || !strings.Contains(e.Error(), tc.says) {
				t.Fatalf("%s: %s, want %s and %q", e.Field, e, tc.field, tc.says)
			}
		})
	}
}

func TestRuleForms(t *testing.T) {
	for _, tc := range []struct {
		name, expr string
		zone       string
		want       []string
	}{
		{"lines", "DTSTART;TZID=Europe/London:20260601T090000\r\nRRULE:FREQ=DAILY;COUNT=2", "",
			[]string{"2026-06-01T08:00:00Z", "2026-06-02T08:00:00Z"}},
		{"two characters for a line end", `DTSTART:20260601T090000\nRRULE:FREQ=DAILY`, "", []string{"2026-06-01T09:00:00Z"}},
		{"spaces, small letters", "dtstart:20260601t090000z rrule:freq=daily;byhour=10", "",
			[]string{"2026-06-01T10:00:00Z"}},
		{"folded", "DTSTART:20260601T090000\r\nRRULE:FREQ=DAILY;BYH\r\n OUR=10,\r\n 11", "",
			[]string{"2026-06-01T10:00:00Z", "2026-06-01T11:00:00Z"}},
		{"rule first", "RRULE:FREQ=DAILY\nDTSTART:20260601T090000", "Europe/London", []string{"2026-06-01T08:00:00Z"}},
		{"a date", "DTSTART;VALUE=DATE:20260601 RRULE:FREQ=DAILY", "", []string{"2026-06-01T00:00:00Z"}},
		{"UTC under another name", "DTSTART:20260601T090000Z RRULE:FREQ=DAILY", "Etc/UTC", []string{"2026-06-01T09:00:00Z"}},
		{"exdate", "DTSTART:20260601T090000 RRULE:FREQ=DAILY EXDATE:20260602T090000,20260603T090000", "",
			[]string{"2026-06-01T09:00:00Z", "2026-06-04T09:00:00Z"}},
		{"exdate in UTC", "DTSTART;TZID=Europe/London:20260601T090000 RRULE:FREQ=DAILY EXDATE:20260602T080000Z", "",
			[]string{"2026-06-01T08:00:00Z", "2026-06-03T08:00:00Z"}},
		{"exdate in a zone",
			"DTSTART;TZID=Europe/London:20260601T090000 RRULE:FREQ=DAILY EXDATE;TZID=Europe/Paris:20260602T100000", "",
			[]string{"2026-06-01T08:00:00Z", "2026-06-03T08:00:00Z"}},
		{"exdate, a day", "DTSTART:20260601T230000 RRULE:FREQ=HOURLY EXDATE;VALUE=DATE:20260602", "",
			[]string{"2026-06-01T23:00:00Z", "2026-06-03T00:00:00Z"}},
		{"rdate", "DTSTART:20260601T090000 RRULE:FREQ=DAILY;COUNT=1 RDATE:20260501T100000,20260701T100000", "",
			[]string{"2026-05-01T10:00:00Z", "2026-06-01T09:00:00Z", "2026-07-01T10:00:00Z"}},
		{"until, a day", "DTSTART:20260601T090000 RRULE:FREQ=DAILY;UNTIL=20260602", "",
			[]string{"2026-06-01T09:00:00Z", "2026-06-02T09:00:00Z", ""}},
		{"weekdays of both kinds", "DTSTART:20260601T090000 RRULE:FREQ=MONTHLY;BYDAY=1MO,-1FR", "",
			[]string{"2026-06-01T09:00:00Z", "2026-06-26T09:00:00Z", "2026-07-06T09:00:00Z"}},
		{"last workday", "DTSTART:20260601T090000 RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "",
			[]string{"2026-06-30T09:00:00Z", "2026-07-31T09:00:00Z", "2026-08-31T09:00:00Z"}},
		{"every other week", "DTSTART:20260603T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE", "",
			[]string{"2026-06-03T09:00:00Z", "2026-06-15T09:00:00Z", "2026-06-17T09:00:00Z"}},
		{"Friday the 13th", "DTSTART:20260101T000000 RRULE:FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "",
			[]string{"2026-02-13T00:00:00Z", "2026-03-13T00:00:00Z", "2026-11-13T00:00:00Z"}},
		{"week number", "DTSTART:20260101T000000 RRULE:FREQ=YEARLY;BYWEEKNO=53;BYDAY=FR", "",
			[]string{"2027-01-01T00:00:00Z", "2032-12-31T00:00:00Z"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := mustParse(t, tc.expr, Options{Zone: tc.zone})
			if s.Kind() != RRule {
				t.Fatal(s.Kind())
			}
			n := len(tc.want)
			if tc.want[n-1] == "" {
				n--
				if at, ok := s.Next(parseTime(t, tc.want[n-1])); ok {
					t.Fatalf("%v after the end", at)
				}
			}
			checkNext(t, s, "1999-01-01T00:00:00Z", tc.want[:n])
		})
	}
}

func TestInstantAndManual(t *testing.T) {
	s := mustParse(t, "2020-03-01T09:00:00.25-05:00", Options{Zone: "America/New_York"})
	at := time.Date(2020, 3, 1, 14, 0, 0, 250e6, time.UTC)
	if got, ok := s.Next(at.Add(-1)); !ok || !got.Equal(at) {
		t.Fatal(got, ok)
	}
	if _, ok := s.Next(at); ok {
		t.Fatal("fires twice")
	}
	if got, ok := s.Prev(at); !ok || !got.Equal(at) {
		t.Fatal(got, ok)
	}
	if _, ok := s.Prev(at.Add(-1)); ok {
		t.Fatal("Prev before it")
	}
	m := mustParse(t, "@manual", Options{})
	if _, ok := m.Next(at); ok || len(m.Preview(at, 3)) != 0 {
		t.Fatal("a manual job fires")
	}
	if _, ok := m.Prev(at); ok {
		t.Fatal("a manual job has fired")
	}
	if n, more := m.Count(time.Time{}, at, 5); n != 0 || more {
		t.Fatal(n, more)
	}
	for k, want := range map[Kind]string{Cron: "cron", Every: "every", RRule: "rrule", Instant: "instant",
		Manual: "manual"} {
		if k.String() != want {
			t.Errorf("%v, want %s", k, want)
		}
	}
}

// TestEnds asks at and beyond the supported years.
func TestEnds(t *testing.T) {
	if got := time.Date(maxYear, 12, 31, 23, 59, 59, 0, time.UTC).Unix(); got != maxUnix {
		t.Fatal(got)
	}
	for _, expr := range []string{"@daily", "* * * * * *", "@every 1h", "DTSTART:19700101T000000 RRULE:FREQ=DAILY"} {
		for _, zone := range []string{"UTC", "America/New_York", "Pacific/Auckland"} {
			s := mustParse(t, expr, Options{Zone: zone})
			for _, at := range []time.Time{{}, time.Unix(math.MinInt64/4, 0), time.Unix(-1, 0)} {
				if got, ok := s.Next(at); !ok || got.Year() != 1970 || got.YearDay() > 1 {
					t.Errorf("%s %s: Next(%v) = %v, %v", expr, zone, at, got, ok)
				}
				if got, ok := s.Prev(at); ok {
					t.Errorf("%s %s: Prev(%v) = %v", expr, zone, at, got)
				}
			}
			for _, at := range []time.Time{time.Unix(maxUnix, 0), time.Unix(math.MaxInt64/4, 0)} {
				if got, ok := s.Next(at); ok {
					t.Errorf("%s %s: Next(%v) = %v", expr, zone, at, got)
				}
				if got, ok := s.Prev(at); !ok || got.Year() != 2200 {
					t.Errorf("%s %s: Prev(%v) = %v, %v", expr, zone, at, got, ok)
				}
			}
		}
	}
}

func TestCount(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		expr  string
		until time.Time
		max   int
		n     int
		more  bool
	}{
		{"@hourly", from.Add(3 * time.Hour), 10, 3, false},
		{"@hourly", from.Add(3 * time.Hour), 3, 3, false},
		{"@hourly", from.Add(3 * time.Hour), 2, 2, true},
		{"@hourly", from.Add(3 * time.Hour), 0, 0, true},
		{"@hourly", from.Add(-time.Hour), 5, 0, false},
		{"@every 1s", from.AddDate(100, 0, 0), 1000, 1000, true},
		{"@every 1h", from.Add(48 * time.Hour), 1000, 48, false},
	} {
		if n, more := mustParse(t, tc.expr, Options{}).Count(from, tc.until, tc.max); n != tc.n || more != tc.more {
			t.Errorf("%s up to %v, at most %d: %d, %v", tc.expr, tc.until, tc.max, n, more)
		}
	}
}

// TestStableHashes pins what the seed decides: a change would move existing jobs.
func TestStableHashes(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		seed    uint64
		h, step string
		every   int64
		delay   time.Duration
	}{
		{1, "2026-01-08T06:19:00Z", "2026-01-01T12:04:00Z", 1767227067045, 13*time.Minute + 20068*time.Millisecond},
		{12345, "2026-01-19T21:57:00Z", "2026-01-01T15:12:00Z", 1767226004546, 28*time.Minute + 10829*time.Millisecond},
	} {
		h, _ := mustParse(t, "H H H * *", Options{Seed: tc.seed}).Next(at)
		step, _ := mustParse(t, "H/15 H(9-17) * * *", Options{Seed: tc.seed}).Next(at)
		every, _ := mustParse(t, "@every 1h", Options{Seed: tc.seed}).Next(at)
		delay := mustParse(t, "@daily", Options{Seed: tc.seed, Jitter: 30 * time.Minute}).Delay()
		if h.Format(time.RFC3339) != tc.h || step.Format(time.RFC3339) != tc.step || every.UnixMilli() != tc.every ||
			delay != tc.delay {
			t.Errorf("%d: %s %s %d %v", tc.seed, h.Format(time.RFC3339), step.Format(time.RFC3339), every.UnixMilli(), delay)
		}
	}
}

// TestSpread looks at the jobs 1 to 6000: H, @every and jitter must use all of their range about equally.
func TestSpread(t *testing.T) {
	const jobs, slots = 6000, 60
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var minute, second, delay, phase [slots]int
	for seed := range uint64(jobs) {
		h, _ := mustParse(t, "H H * * * *", Options{Seed: seed + 1}).Next(at)
		minute[h.Minute()]++
		second[h.Second()]++
		s := mustParse(t, "@every 1m", Options{Seed: seed + 1, Jitter: time.Hour})
		delay[s.Delay()/time.Minute]++
		e, _ := s.Next(at)
		phase[e.Second()]++
	}
	for name, got := range map[string][slots]int{"minute": minute, "second": second, "delay": delay, "phase": phase} {
		for i, n := range got {
			if n < 50 || n > 160 { // 100 expected, standard deviation 10
				t.Errorf("%s %d: %d of %d jobs", name, i, n, jobs)
			}
		}
	}
}

// TestConcurrent is for the race detector.
func TestConcurrent(t *testing.T) {
	s := mustParse(t, "DTSTART:20260601T090000 RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
		Options{Zone: "America/New_York"})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			at := time.Date(2026+i, 1, 1, 0, 0, 0, 0, time.UTC)
			for range 100 {
				at, _ = s.Next(at)
				if p, ok := s.Prev(at); !ok || !p.Equal(at) {
					t.Errorf("%v, want %v", p, at)
				}
			}
			if _, err := loadZone([]string{"Asia/Tokyo", "Asia/Seoul"}[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestPreview(t *testing.T) {
	at := parseTime(t, "2026-03-06T12:00:00Z")
	for _, tc := range []struct {
		expr, gap, after string
		want             []Fire
	}{
		{"30 2 * * *", "", "2026-03-07T12:00:00Z",
			[]Fire{{Note: "moved from 02:30, which does not exist: the clock goes from 02:00 to 03:00"}, {}}},
		{"*/30 * * * *", "", "2026-03-08T06:20:00Z",
			[]Fire{{}, {Note: "the clock goes from 02:00 to 03:00; times between have no run of their own"}, {}}},
		{"30 2 * * *", "skip", "2026-03-07T12:00:00Z",
			[]Fire{{Note: "not run: 02:30 does not exist, the clock goes from 02:00 to 03:00", Skipped: true}, {}}},
		{"30 1 * * *", "", "2026-10-31T12:00:00Z", []Fire{{Note: "this time occurs twice; it runs only the first time"}, {}}},
		{"30 * * * *", "skip", "2026-11-01T05:00:00Z",
			[]Fire{{Note: "this time occurs twice; this is the first"}, {Note: "this time occurs twice; this is the second"},
				{}}},
		{"@every 1h", "", "2026-11-01T05:00:00Z", []Fire{{}, {}, {}}},
	} {
		s := mustParse(t, tc.expr, Options{Zone: "America/New_York", Gap: tc.gap})
		got := s.Preview(parseTime(t, tc.after), len(tc.want))
		for i, f := range got {
			if f.Note != tc.want[i].Note || f.Skipped != tc.want[i].Skipped || f.At.Location().String() != "America/New_York" {
				t.Errorf("%s: %v %q, want %q", tc.expr, f.At, f.Note, tc.want[i].Note)
			}
		}
	}
	if n := len(mustParse(t, "2026-03-07T00:00:00Z", Options{}).Preview(at, 5)); n != 1 {
		t.Error(n)
	}
}
