package schedule

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
)

func TestCalendar(t *testing.T) {
	for _, tc := range []struct {
		name    string
		c       Calendar
		in, out []string
	}{
		{"a date", Calendar{Dates: []string{"2026-12-25"}}, []string{"2026-12-25T00:00:00Z", "2026-12-25T23:59:59Z"},
			[]string{"2026-12-24T23:59:59Z", "2026-12-26T00:00:00Z", "2027-12-25T12:00:00Z"}},
		{"every year", Calendar{Dates: []string{"12-25", "02-29"}},
			[]string{"2026-12-25T12:00:00Z", "2031-12-25T12:00:00Z", "2028-02-29T12:00:00Z"},
			[]string{"2026-12-26T00:00:00Z", "2027-03-01T00:00:00Z"}},
		{"a date in a zone", Calendar{Timezone: "America/New_York", Dates: []string{"2026-12-25"}},
			[]string{"2026-12-25T05:00:00Z", "2026-12-26T04:59:59Z"}, []string{"2026-12-25T04:59:59Z", "2026-12-26T05:00:00Z"}},
		{"weekend", Calendar{Weekdays: []string{"sat", "SUNDAY"}}, []string{"2026-01-03T12:00:00Z", "2026-01-04T12:00:00Z"},
			[]string{"2026-01-02T12:00:00Z", "2026-01-05T00:00:00Z"}},
		{"over midnight", Calendar{Daily: []string{"22:00-06:00"}},
			[]string{"2026-01-03T22:00:00Z", "2026-01-04T00:00:00Z", "2026-01-04T05:59:59Z"},
			[]string{"2026-01-03T21:59:59Z", "2026-01-04T06:00:00Z"}},
		{"to midnight", Calendar{Daily: []string{"22:00-00:00", "12:00-13:00", "12:30-14:00"}},
			[]string{"2026-01-03T23:59:59Z", "2026-01-03T13:30:00Z"}, []string{"2026-01-04T00:00:00Z", "2026-01-04T14:00:00Z"}},
		{"hours on the wall", Calendar{Timezone: "America/New_York", Daily: []string{"02:00-04:00"}},
			[]string{"2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z"}, []string{"2026-03-08T06:59:59Z", "2026-03-08T08:00:00Z"}},
		{"windows", Calendar{Windows: []Window{
			{parseTime(t, "2026-05-01T00:00:00Z"), parseTime(t, "2026-05-02T00:00:00Z")},
			{parseTime(t, "2026-01-01T00:00:00+01:00"), parseTime(t, "2026-01-01T02:00:00+01:00")},
			{parseTime(t, "2026-01-01T00:30:00Z"), parseTime(t, "2026-01-01T03:00:00Z")}}},
			[]string{"2025-12-31T23:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T02:59:59Z", "2026-05-01T12:00:00Z"},
			[]string{"2025-12-31T22:59:59Z", "2026-01-01T03:00:00Z", "2026-05-02T00:00:00Z"}},
		{"empty", Calendar{}, nil, []string{"2026-01-01T00:00:00Z"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := tc.c.Compile()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range tc.in {
				if !b.Contains(parseTime(t, s)) {
					t.Errorf("%s should be blocked", s)
				}
			}
			for _, s := range tc.out {
				if b.Contains(parseTime(t, s)) {
					t.Errorf("%s should be free", s)
				}
			}
			b.Contains(time.Time{})
			b.Contains(time.Unix(1<<60, 0))
			b.Contains(time.Unix(-1<<60, 0))
		})
	}
}

func TestCalendarRefused(t *testing.T) {
	at := time.Unix(0, 0)
	for field, list := range map[string][]Calendar{
		"timezone": {{Timezone: "Nowhere"}},
		"dates": {{Dates: []string{"2026-02-29"}}, {Dates: []string{"25.12."}}, {Dates: []string{"13-01"}},
			{Dates: []string{""}}},
		"weekdays": {{Weekdays: []string{"su"}}, {Weekdays: []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}}},
		"daily": {{Daily: []string{"22:00"}}, {Daily: []string{"22-6"}}, {Daily: []string{"10:00-10:00"}},
			{Daily: []string{"24:00-06:00"}}, {Daily: []string{"00:00-25:00"}}, {Daily: []string{"00:00-24:00"}},
			{Daily: []string{"06:00-22:00", "22:00-06:00"}}},
		"windows": {{Windows: []Window{{at, at}}}},
	} {
		for _, c := range list {
			_, err := c.Compile()
			var e *Error
			if !errors.As(err, &e) || e.Field != field || e.Remedy == "" {
				t.Errorf("%+v: %#v", c, err)
			}
		}
	}
}

func TestCalendarJSON(t *testing.T) {
	const text = `{"name":"freeze","timezone":"Europe/London","dates":["12-25"],"weekdays":["sat"],"daily":["22:00-06:00"],"windows":[{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}]}`
	var c Calendar
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if out, err := json.Marshal(c); err != nil || string(out) != text {
		t.Fatalf("%s, %v", out, err)
	}
}

// Nothing before Until is free, and asking again and again leads to the first free second.
func TestBlackoutUntil(t *testing.T) {
	for _, c := range []Calendar{
		{Weekdays: []string{"sun", "sat"}},
		{Timezone: "Europe/Berlin", Weekdays: []string{"sun"}},
		{Timezone: "America/New_York", Daily: []string{"22:00-06:00", "12:00-13:00"}, Dates: []string{"03-14", "2027-11-08"}},
		{Timezone: "Australia/Lord_Howe", Daily: []string{"01:00-03:00"}},
		{Timezone: "America/Sao_Paulo", Dates: []string{"10-15"}},
		{Windows: []Window{{parseTime(t, "2027-03-13T10:00:00Z"), parseTime(t, "2027-03-15T04:30:00.5Z")}},
			Dates: []string{"03-15"}},
		{},
	} {
		b, err := c.Compile()
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []string{"2027-03-13T00:00:00Z", "2027-03-27T22:00:00Z", "2027-10-30T20:00:00Z",
			"2027-11-06T00:00:00Z", "2017-10-14T20:00:00Z", "2027-04-03T10:00:00Z"} {
			start := parseTime(t, from)
			for at := start; at.Before(start.Add(4 * 24 * time.Hour)); at = at.Add(7*time.Minute + 13*time.Second) {
				end, steps := at, 0
				for b.Contains(end) {
					next := b.Until(end)
					if !next.After(end) || steps > 40 {
						t.Fatalf("%+v: from %s to %s in %d steps", c, at, end, steps)
					}
					end = next
					steps++
				}
				if !b.Until(end).Equal(end) {
					t.Fatalf("%+v: %s is free", c, end)
				}
				for x := at; x.Before(end); x = x.Add(10 * time.Minute) {
					if !b.Contains(x) {
						t.Fatalf("%+v: %s is free, and lies before %s", c, x, end)
					}
				}
				if end.After(at) && !b.Contains(end.Add(-time.Millisecond)) {
					t.Fatalf("%+v: %s is not the first free moment after %s", c, end, at)
				}
			}
		}
		b.Until(time.Time{})
		b.Until(time.Unix(1<<60, 0))
	}
}
