package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

var frequencyUnits = []string{"year", "month", "week", "day", "hour", "minute", "second"}

func (s *ruleSet) describe() string {
	r := &s.rule
	parts := []string{"every " + every(int(r.interval), frequencyUnits[r.freq])}
	if days := r.daysText(); days != "" {
		parts = append(parts, "on "+days)
	}
	if r.month != 0x1ffe {
		parts = append(parts, "in "+and(monthList(r.month)))
	}
	parts = append(parts, r.timesText())
	if r.setpos != nil {
		var list []string
		for _, p := range r.setpos {
			list = append(list, numbered(int(p)))
		}
		parts = append(parts, "(only the "+and(list)+" of each "+frequencyUnits[r.freq]+")")
	}
	parts = append(parts, "from "+dateOf(r.start))
	if r.until != never {
		parts = append(parts, "until "+dateOf(r.until))
	}
	if len(s.rdate) > 0 {
		parts = append(parts, "and on "+plural(len(s.rdate), "more date"))
	}
	if n := len(s.exdate) + len(s.exday); n > 0 {
		parts = append(parts, "except on "+plural(n, "date"))
	}
	return strings.Join(parts, " ")
}

func dateOf(w int64) string { return time.Unix(w, 0).UTC().Format("2006-01-02") }

// numbered is "2nd" or "2nd to last".
func numbered(n int) string {
	switch {
	case n == 1:
		return "first"
	case n == -1:
		return "last"
	case n < 0:
		return ordinal(-n) + " to last"
	}
	return ordinal(n)
}

func (r *rrule) daysText() string {
	var list []string
	if r.wday != 0 {
		list = weekdayList(r.wday)
	}
	for _, d := range r.nth {
		list = append(list, "the "+numbered(int(d.n))+" "+time.Weekday(d.wday).String())
	}
	days := and(list)
	list = nil
	if r.mday != 0 {
		list = append(list, "day "+and(bitList(uint64(r.mday))))
	}
	for m := r.nmday; m != 0; m &= m - 1 {
		list = append(list, "the "+numbered(-bits.TrailingZeros32(m))+" day of the month")
	}
	for _, d := range r.yday {
		list = append(list, "the "+numbered(int(d))+" day of the year")
	}
	if r.week != 0 {
		list = append(list, "week "+and(bitList(r.week)))
	}
	for m := r.nweek; m != 0; m &= m - 1 {
		list = append(list, "the "+numbered(-bits.TrailingZeros64(m))+" week of the year")
	}
	switch {
	case days == "":
		return and(list)
	case list == nil:
		return days
	}
	return days + " if it is " + and(list)
}

func bitList(m uint64) []string {
	var list []string
	for ; m != 0; m &= m - 1 {
		list = append(list, strconv.Itoa(bits.TrailingZeros64(m)))
	}
	return list
}

func (r *rrule) timesText() string {
	n := r.times.size()
	if r.unit == 0 && n > 8 {
		return fmt.Sprintf("at %d times a day", n)
	}
	if r.unit == 0 {
		var list []string
		for i := range n {
			list = append(list, clockText(r.times.nth(i), 0))
		}
		return "at " + and(list)
	}
	var parts []string
	if r.freq >= hourly && r.units.hour != 1<<24-1 {
		parts = append(parts, "in hour "+and(bitList(uint64(r.units.hour))))
	}
	switch r.freq {
	case hourly:
		if n > 8 {
			parts = append(parts, fmt.Sprintf("at %d times an hour", n))
			break
		}
		var list []string
		for i := range n {
			t := r.times.nth(i)
			list = append(list, fmt.Sprintf("%02d:%02d", t/60, t%60))
		}
		parts = append(parts, "at "+and(list)+" past the hour")
	case minutely, secondly:
		if r.units.min != 1<<60-1 {
			parts = append(parts, "in minute "+and(bitList(r.units.min)))
		}
		secs := r.times.sec
		if r.freq == secondly {
			secs = r.units.sec
		}
		if r.freq == minutely && secs != 1 || r.freq == secondly && secs != 1<<60-1 {
			parts = append(parts, "at second "+and(bitList(secs)))
		}
	}
	return strings.Join(parts, " ")
}
