package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The oracle answers the same question as Next by looking at every second (or minute) of real time in turn. It shares
// nothing with the package but the words: it knows the expression from the generator that wrote it, and the zone from
// package time.

// spec is an expression together with what it means.
type spec struct {
	text             string
	second, minute   [60]bool
	hour             [24]bool
	month            [13]bool
	dom, dow         func(date time.Time) bool
	domStar, dowStar bool
	interval         bool
	step             int64 // 1 for six fields, 60 for five
}

func (s *spec) match(w time.Time) bool {
	h, m, sec := w.Clock()
	if !s.second[sec] || !s.minute[m] || !s.hour[h] || !s.month[w.Month()] {
		return false
	}
	if s.domStar || s.dowStar {
		return s.dom(w) && s.dow(w)
	}
	return s.dom(w) || s.dow(w)
}

// fires are the fire times of a spec in [from, to].
func (s *spec) fires(loc *time.Location, gap, overlap string, from, to time.Time) []time.Time {
	both := overlap == "both" || overlap == "" && s.interval
	var out []time.Time
	seen := before // the highest wall time shown so far
	// Begin before the overlap that from may lie in. They are of an hour or two, but Vostok has one of seven.
	hours := int64(2)
	_, off := from.In(loc).Zone()
	if _, o := from.Add(-8 * time.Hour).In(loc).Zone(); o-off > 2*3600 {
		hours = 8
	}
	lead := hours * 3600 / s.step * s.step
	for u := from.Unix() - lead; u <= to.Unix(); u += s.step {
		t := time.Unix(u, 0)
		_, off := t.In(loc).Zone()
		wall := u + int64(off)
		fire := s.match(time.Unix(wall, 0).UTC())
		if wall <= seen && !both {
			fire = false
		}
		if seen != before && wall > seen+s.step && gap != "skip" {
			for w := seen + s.step; w < wall; w += s.step {
				if s.match(time.Unix(w, 0).UTC()) {
					fire = true
					break
				}
			}
		}
		seen = max(seen, wall)
		if fire && !t.Before(from) {
			out = append(out, t.UTC())
		}
	}
	return out
}

// genField writes one of the numeric fields, and sets what it allows.
func genField(t *rapid.T, name string, lo, hi int, set func(v int)) (text string, interval bool) {
	value := func() int { return rapid.IntRange(lo, hi).Draw(t, name) }
	step := rapid.IntRange(1, hi-lo+1)
	switch rapid.SampledFrom([]string{"star", "every", "value", "value", "list", "range", "rangeStep", "open"}).Draw(t,
		name+" form") {
	case "star":
		for v := lo; v <= hi; v++ {
			set(v)
		}
		return "*", true
	case "every":
		n := step.Draw(t, name)
		for v := lo; v <= hi; v += n {
			set(v)
		}
		return fmt.Sprintf("*/%d", n), true
	case "list":
		var parts []string
		for range rapid.IntRange(2, 4).Draw(t, name) {
			v := value()
			set(v)
			parts = append(parts, fmt.Sprint(v))
		}
		return strings.Join(parts, ","), false
	case "range":
		a, b := value(), value()
		for v := a; ; v++ {
			if v > hi {
				v = lo
			}
			set(v)
			if v == b {
				break
			}
		}
		return fmt.Sprintf("%d-%d", a, b), true
	case "rangeStep":
		a := value()
		b, n := rapid.IntRange(a, hi).Draw(t, name), step.Draw(t, name)
		for v := a; v <= b; v += n {
			set(v)
		}
		return fmt.Sprintf("%d-%d/%d", a, b, n), true
	case "open":
		a, n := value(), step.Draw(t, name)
		for v := a; v <= hi; v += n {
			set(v)
		}
		return fmt.Sprintf("%d/%d", a, n), true
	}
	v := value()
	set(v)
	return fmt.Sprint(v), false
}

func lastOfMonth(d time.Time) int {
	return time.Date(d.Year(), d.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// nearest walks outward from a day to the next weekday of the same month.
func nearest(d time.Time, dom int) int {
	for _, delta := range []int{0, -1, 1, -2, 2} {
		c := dom + delta
		at := time.Date(d.Year(), d.Month(), c, 0, 0, 0, 0, time.UTC)
		if at.Month() == d.Month() && at.Weekday() != time.Saturday && at.Weekday() != time.Sunday {
			return c
		}
	}
	panic("no weekday")
}

func genDom(t *rapid.T) (string, func(time.Time) bool, bool) {
	switch rapid.SampledFrom([]string{"plain", "plain", "any", "L", "L-n", "W", "LW", "list"}).Draw(t, "dom form") {
	case "any":
		return rapid.SampledFrom([]string{"*", "?"}).Draw(t, "dom"), func(time.Time) bool { return true }, true
	case "L":
		return "L", func(d time.Time) bool { return d.Day() == lastOfMonth(d) }, false
	case "L-n":
		n := rapid.IntRange(0, 30).Draw(t, "dom")
		return fmt.Sprintf("L-%d", n), func(d time.Time) bool { return d.Day() == lastOfMonth(d)-n }, false
	case "W":
		n := rapid.IntRange(1, 31).Draw(t, "dom")
		return fmt.Sprintf("%dW", n), func(d time.Time) bool { return n <= lastOfMonth(d) && d.Day() == nearest(d, n) }, false
	case "LW":
		return "lw", func(d time.Time) bool { return d.Day() == nearest(d, lastOfMonth(d)) }, false
	case "list":
		n := rapid.IntRange(1, 31).Draw(t, "dom")
		return fmt.Sprintf("%d,L", n), func(d time.Time) bool { return d.Day() == n || d.Day() == lastOfMonth(d) }, false
	}
	set := map[int]bool{}
	text, _ := genField(t, "dom", 1, 31, func(v int) { set[v] = true })
	return text, func(d time.Time) bool { return set[d.Day()] }, text[0] == '*'
}

func genDow(t *rapid.T) (string, func(time.Time) bool, bool) {
	names := []string{"sun", "Mon", "TUE", "wed", "Thu", "FRI", "sat"}
	switch rapid.SampledFrom([]string{"any", "any", "plain", "name", "range", "nth", "last", "seven"}).Draw(t,
		"dow form") {
	case "any":
		return rapid.SampledFrom([]string{"*", "?"}).Draw(t, "dow"), func(time.Time) bool { return true }, true
	case "name":
		n := rapid.IntRange(0, 6).Draw(t, "dow")
		return names[n], func(d time.Time) bool { return int(d.Weekday()) == n }, false
	case "range":
		a, b := rapid.IntRange(0, 6).Draw(t, "dow"), rapid.IntRange(0, 6).Draw(t, "dow")
		set := map[int]bool{}
		for v := a; ; v = (v + 1) % 7 {
			set[v] = true
			if v == b {
				break
			}
		}
		return names[a] + "-" + names[b], func(d time.Time) bool { return set[int(d.Weekday())] }, false
	case "nth":
		n, k := rapid.IntRange(0, 7).Draw(t, "dow"), rapid.IntRange(1, 5).Draw(t, "nth")
		return fmt.Sprintf("%d#%d", n, k), func(d time.Time) bool {
			return int(d.Weekday()) == n%7 && (d.Day()+6)/7 == k
		}, false
	case "last":
		n := rapid.IntRange(0, 7).Draw(t, "dow")
		return fmt.Sprintf("%dL", n), func(d time.Time) bool {
			return int(d.Weekday()) == n%7 && d.Day()+7 > lastOfMonth(d)
		}, false
	case "seven":
		a := rapid.IntRange(1, 7).Draw(t, "dow")
		return fmt.Sprintf("%d-7", a), func(d time.Time) bool { return d.Weekday() == 0 || int(d.Weekday()) >= a }, false
	}
	set := map[int]bool{}
	text, _ := genField(t, "dow", 0, 6, func(v int) { set[v] = true })
	return text, func(d time.Time) bool { return set[int(d.Weekday())] }, text[0] == '*'
}

// genSpec writes an expression. The date is mostly every day: what is tested with it is the time of the day.
func genSpec(t *rapid.T, fields int) *spec {
	s := &spec{step: 60}
	minute, i1 := genField(t, "minute", 0, 59, func(v int) { s.minute[v] = true })
	hour, i2 := genField(t, "hour", 0, 23, func(v int) { s.hour[v] = true })
	s.interval = i1 || i2
	s.text = minute + " " + hour
	s.second[0] = true
	if fields == 6 {
		s.second[0] = false
		second, i3 := genField(t, "second", 0, 59, func(v int) { s.second[v] = true })
		s.text = second + " " + s.text
		s.interval = s.interval || i3
		s.step = 1
	}
	dom, month, dow := "*", "*", "*"
	for m := range s.month {
		s.month[m] = true
	}
	s.dom, s.dow = func(time.Time) bool { return true }, func(time.Time) bool { return true }
	s.domStar, s.dowStar = true, true
	if rapid.IntRange(0, 3).Draw(t, "dated") == 0 {
		dom, s.dom, s.domStar = genDom(t)
		dow, s.dow, s.dowStar = genDow(t)
		if rapid.Bool().Draw(t, "months") {
			s.month = [13]bool{}
			month, _ = genField(t, "month", 1, 12, func(v int) { s.month[v] = true })
		}
	}
	s.text += " " + dom + " " + month + " " + dow
	return s
}

// changes are instants around which clocks do strange things.
var changes = []struct {
	zone string
	at   string
}{
	{"America/New_York", "2026-03-08T07:00:00Z"},
	{"America/New_York", "2026-11-01T06:00:00Z"},
	{"America/New_York", "2096-03-11T07:00:00Z"}, // beyond the table of the zone
	{"Europe/London", "2026-03-29T01:00:00Z"},
	{"Europe/London", "2026-10-25T01:00:00Z"},
	{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"}, // half an hour
	{"Australia/Lord_Howe", "2026-10-03T15:30:00Z"},
	{"Africa/Cairo", "2026-04-23T22:00:00Z"}, // at midnight
	{"Africa/Cairo", "2026-10-29T21:00:00Z"},
	{"America/Santiago", "2026-04-05T03:00:00Z"},
	{"America/Santiago", "2026-09-06T04:00:00Z"},
	{"America/Sao_Paulo", "2018-02-18T02:00:00Z"},
	{"America/Sao_Paulo", "2018-11-04T03:00:00Z"},
	{"Asia/Beirut", "2026-03-28T22:00:00Z"},
	{"Asia/Beirut", "2026-10-24T21:00:00Z"},
	{"Pacific/Apia", "2011-12-30T10:00:00Z"}, // a whole day missing
	{"Pacific/Apia", "2012-03-31T14:00:00Z"},
	{"Antarctica/Vostok", "1994-11-01T00:00:00Z"}, // seven hours
	{"Antarctica/Vostok", "1994-01-31T17:00:00Z"},
	{"Africa/Monrovia", "1972-01-07T00:44:30Z"}, // an offset with seconds
	{"Asia/Kolkata", "2026-06-01T00:00:00Z"},
	{"UTC", "2024-12-31T00:00:00Z"},
}

func parseTime(tb testing.TB, s string) time.Time {
	tb.Helper()
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}
