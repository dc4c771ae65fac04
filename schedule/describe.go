package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Describe says in plain English when a schedule fires, whichever job has it.
func Describe(expr, zone string) (string, error) { return describe(expr, zone, nil) }

// DescribeFor says in plain English when the schedule of a job fires: what H stands for is known then.
func DescribeFor(expr, zone string, seed uint64) (string, error) { return describe(expr, zone, &seed) }

func describe(expr, zone string, seed *uint64) (string, error) {
	s, err := Parse(expr, Options{Zone: zone})
	if err != nil {
		return "", err
	}
	in := " (" + s.zone.name + ")"
	switch s.kind {
	case Every:
		return "every " + durationText(time.Duration(s.step)*time.Millisecond), nil
	case Instant:
		return "once, at " + time.UnixMilli(s.at).In(s.zone.loc).Format("2006-01-02 15:04:05.999") + in, nil
	case Manual:
		return "only when triggered", nil
	case RRule:
		return s.clock.walls.(*ruleSet).describe() + in, nil
	}
	expr, _, err = cutZone(strings.TrimSpace(expr), zone)
	if err != nil {
		return "", err
	}
	if text, ok := macros[strings.ToLower(expr)]; ok {
		expr = text
	}
	f, perr := parseCron(expr)
	if perr != nil {
		return "", perr
	}
	if seed != nil {
		f.settle(*seed)
	}
	return f.describe() + in, nil
}

// durationText is 1h30m rather than 1h30m0s.
func durationText(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if d%u.unit == 0 {
			return every(int(d/u.unit), u.name)
		}
	}
	return d.String()
}

// every is "day" for 1 and "3 days" for 3.
func every(n int, unit string) string {
	if n == 1 {
		return unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

func (f *cronFields) describe() string {
	text := f.timeText()
	date := f.dateText()
	if date == "" && strings.HasPrefix(text, "at ") && !strings.Contains(text, " every ") {
		date = " every day"
	}
	text += date
	if f.hashed() {
		text += ", where H depends on the job"
	}
	return text
}

func allValues(ts []term) bool {
	return !slices.ContainsFunc(ts, func(t term) bool { return t.kind != termValue })
}

func isZero(ts []term) bool { return len(ts) == 1 && ts[0].kind == termValue && ts[0].a == 0 }

// anyStep is the n of */n, 1 for *, and 0 for everything else.
func anyStep(ts []term) int {
	if ts[0].kind != termAny {
		return 0
	}
	return max(ts[0].step, 1)
}

func (f *cronFields) timeText() string {
	sec, minute, hour := f[fSecond], f[fMinute], f[fHour]
	if allValues(sec) && allValues(minute) && allValues(hour) && len(sec)*len(minute)*len(hour) <= 8 {
		var list []string
		for _, h := range hour {
			for _, m := range minute {
				for _, s := range sec {
					list = append(list, clockText(int64(h.a*3600+m.a*60+s.a), 0))
				}
			}
		}
		slices.Sort(list)
		return "at " + and(slices.Compact(list))
	}
	var parts []string
	lead := func(field string) { // the first part says "at minute 5", the ones after it "of hour 3"
		word := "of "
		if len(parts) == 0 {
			word = "at "
		}
		parts = append(parts, word+field)
	}
	if n := anyStep(sec); n > 0 {
		parts = append(parts, "every "+every(n, "second"))
	} else if !isZero(sec) {
		lead(fieldText("second", sec))
	}
	nm, nh := anyStep(minute), anyStep(hour)
	switch {
	case nm > 0 && len(parts) == 0:
		parts = append(parts, "every "+every(nm, "minute"))
		if 60%nm != 0 {
			parts = append(parts, "from the start of each hour")
		}
	case nm == 1 && anyStep(sec) > 0:
	case nm > 0:
		parts = append(parts, "of every "+nth(nm)+"minute")
	case isZero(minute) && len(parts) == 0 && nh > 0:
		if 24%nh != 0 {
			return "every " + every(nh, "hour") + " from midnight"
		}
		return "every " + every(nh, "hour")
	default:
		lead(fieldText("minute", minute))
	}
	switch {
	case nh == 1 && nm > 0:
	case nh > 0:
		parts = append(parts, "of every "+nth(nh)+"hour")
	case nm > 0 && len(hour) == 1 && hour[0].kind == termRange && hour[0].step == 0:
		parts = append(parts, fmt.Sprintf("from %02d:00 to %02d:59", hour[0].a, hour[0].b))
	default:
		lead(fieldText("hour", hour))
	}
	return strings.Join(parts, " ")
}

// fieldText is "minutes 0 and 30", "hours 9 to 17".
func fieldText(noun string, ts []term) string {
	list := make([]string, len(ts))
	for i, t := range ts {
		list[i] = t.text()
	}
	if len(ts) > 1 || ts[0].kind == termRange || ts[0].kind == termHash && ts[0].step > 0 {
		noun += "s"
	}
	return noun + " " + and(list)
}

func (t term) text() string {
	switch t.kind {
	case termRange:
		text := fmt.Sprintf("%d to %d", t.a, t.b)
		if t.step > 1 {
			text += fmt.Sprintf(" by %d", t.step)
		}
		return text
	case termHash:
		if t.step > 0 {
			return fmt.Sprintf("H by %d", t.step)
		}
		return "H"
	}
	return strconv.Itoa(t.a)
}

// dateText begins with a space; it is "" for every day.
func (f *cronFields) dateText() string {
	dom, month, dow := f[fDom], f[fMonth], f[fDow]
	domAll, dowAll := anyStep(dom) == 1, anyStep(dow) == 1
	if dowAll && allValues(dom) && allValues(month) && len(dom)*len(month) <= 6 {
		var list []string
		for _, m := range month {
			for _, d := range dom {
				list = append(list, fmt.Sprintf("%d %s", d.a, time.Month(m.a)))
			}
		}
		return " on " + and(list)
	}
	text := ""
	switch {
	case domAll && dowAll:
	case domAll:
		text = " on " + dowText(dow)
	case dowAll:
		text = " on " + domText(dom)
	case anyStep(dom) > 0 || anyStep(dow) > 0:
		text = " on " + domText(dom) + " if it is on " + dowText(dow)
	default:
		text = " on " + domText(dom) + " or on " + dowText(dow)
	}
	switch {
	case anyStep(month) == 1:
	case len(month) == 1 && month[0].kind == termRange && month[0].step <= 1:
		text += " from " + monthText(month)
	default:
		text += " in " + monthText(month)
	}
	return text
}

func domText(ts []term) string {
	var days, others []string
	for _, t := range ts {
		switch t.kind {
		case termAny:
			others = append(others, "every "+nth(t.step)+"day of the month")
		case termLast:
			others = append(others, beforeLast(t.a, "last day of the month"))
		case termLastW:
			if t.a == 0 {
				others = append(others, "the last weekday of the month")
			} else {
				others = append(others, "the weekday nearest to "+beforeLast(t.a, "last day of the month"))
			}
		case termNearest:
			others = append(others, fmt.Sprintf("the weekday nearest to day %d of the month", t.a))
		default:
			days = append(days, t.text())
		}
	}
	if days != nil {
		noun := "day "
		if len(days) > 1 || strings.Contains(days[0], " ") {
			noun = "days "
		}
		others = append([]string{noun + and(days) + " of the month"}, others...)
	}
	return and(others)
}

func beforeLast(n int, what string) string {
	if n == 0 {
		return "the " + what
	}
	return fmt.Sprintf("%s before the %s", plural(n, "day"), what)
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

func dowText(ts []term) string {
	var days uint64
	var others []string
	for _, t := range ts {
		switch t.kind {
		case termHash:
			others = append(others, "weekday "+t.text())
		case termNth:
			others = append(others, "the "+nth(t.b)+time.Weekday(t.a).String()+" of the month")
		case termLastDow:
			others = append(others, "the last "+time.Weekday(t.a).String()+" of the month")
		default:
			days |= t.bits(fDow, 0)
		}
	}
	return and(append(weekdayList(uint8(days)), others...))
}

// weekdayList names a set of weekdays, beginning with Monday.
func weekdayList(days uint8) []string {
	switch days {
	case 0x3e:
		return []string{"weekdays"}
	case 0x41:
		return []string{"weekends"}
	case 0x7f:
		return []string{"every day"}
	}
	var list []string
	for i := 1; i <= 7; i++ {
		if days>>(i%7)&1 != 0 {
			list = append(list, time.Weekday(i%7).String())
		}
	}
	return list
}

func monthText(ts []term) string {
	var list []string
	for _, t := range ts {
		switch {
		case t.kind == termAny:
			list = append(list, "every "+nth(t.step)+"month")
		case t.kind == termHash:
			list = append(list, "month "+t.text())
		case t.kind == termRange && t.step <= 1:
			list = append(list, time.Month(t.a).String()+" to "+time.Month(t.b).String())
		default:
			list = append(list, monthList(uint16(t.bits(fMonth, 0)))...)
		}
	}
	return and(list)
}

func monthList(months uint16) []string {
	var list []string
	for m := time.January; m <= time.December; m++ {
		if months>>m&1 != 0 {
			list = append(list, m.String())
		}
	}
	return list
}

// nth is "", "2nd ", "3rd ", ... for "every 2nd hour".
func nth(n int) string {
	if n <= 1 {
		return ""
	}
	return ordinal(n) + " "
}

func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// and joins a list as people do.
func and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

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
