package schedule

import (
	"slices"
	"strconv"
	"strings"
)

// The rule follows python-dateutil and its ports, among them teambition/rrule-go, against which the tests compare it,
// except where those are wrong or surprising:
//   - BYDAY=MO,2TU is every Monday and the second Tuesday; there it is nothing.
//   - BYSETPOS counts within the whole week of DTSTART; there only from DTSTART on (but in whole months and years).
//   - BYWEEKNO=-1 and the like are right in the days around the new year.
//   - UNTIL and EXDATE may be dates, and then mean the whole day.

const (
	maxCount    = 10_000 // the last one is found by counting, when the rule is parsed
	maxInterval = 1_000_000_000
)

var (
	frequencies = []string{"YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"}
	ruleDays    = []string{"SU", "MO", "TU", "WE", "TH", "FR", "SA"}
)

// ruleText is an RRULE as written, before the parts that are missing are taken from DTSTART.
type ruleText struct {
	freq                       frequency
	interval, count            int
	until                      string
	wkst                       int
	setpos, month, mday, yday  []int
	week, hour, minute, second []int
	weekdays                   []nthDay
}

func ruleError(format string, args ...any) *Error {
	return scheduleError("see RFC 5545, section 3.3.10", "RRULE: "+format, args...)
}

func parseRuleText(text string) (*ruleText, *Error) {
	t := &ruleText{interval: 1, wkst: 1}
	seen := map[string]bool{}
	for _, part := range strings.Split(text, ";") {
		if part == "" {
			continue
		}
		key, v, _ := strings.Cut(part, "=")
		if v == "" {
			return nil, ruleError("%s has no value", quote(part))
		}
		if seen[key] {
			return nil, ruleError("%s occurs twice", quote(key))
		}
		seen[key] = true
		if err := t.set(key, v); err != nil {
			return nil, err
		}
	}
	switch {
	case !seen["FREQ"]:
		return nil, ruleError("FREQ is missing")
	case seen["COUNT"] && seen["UNTIL"]:
		return nil, ruleError("COUNT and UNTIL exclude each other")
	}
	return t, t.checkWeekdays()
}

func (t *ruleText) set(key, v string) (err *Error) {
	switch key {
	case "FREQ":
		i := slices.Index(frequencies, v)
		if i < 0 {
			return scheduleError("use "+strings.Join(frequencies, ", "), "RRULE: unknown FREQ %s", quote(v))
		}
		t.freq = frequency(i)
	case "INTERVAL":
		t.interval, err = ruleInt(key, v, 1, maxInterval, false)
	case "COUNT":
		if t.count, err = ruleInt(key, v, 1, maxCount, false); err != nil {
			err.Remedy = "for more, use UNTIL"
		}
	case "UNTIL":
		t.until = v
	case "WKST":
		if t.wkst = slices.Index(ruleDays, v); t.wkst < 0 {
			err = ruleError("unknown WKST %s", quote(v))
		}
	case "BYSETPOS":
		t.setpos, err = ruleInts(key, v, 1, 366, true)
	case "BYMONTH":
		t.month, err = ruleInts(key, v, 1, 12, false)
	case "BYMONTHDAY":
		t.mday, err = ruleInts(key, v, 1, 31, true)
	case "BYYEARDAY":
		t.yday, err = ruleInts(key, v, 1, 366, true)
	case "BYWEEKNO":
		t.week, err = ruleInts(key, v, 1, 53, true)
	case "BYHOUR":
		t.hour, err = ruleInts(key, v, 0, 23, false)
	case "BYMINUTE":
		t.minute, err = ruleInts(key, v, 0, 59, false)
	case "BYSECOND":
		t.second, err = ruleInts(key, v, 0, 59, false)
	case "BYDAY":
		t.weekdays, err = ruleWeekdays(v)
	case "DTSTART":
		err = scheduleError("write DTSTART:20270301T090000 before the RRULE", "RRULE: DTSTART is not part of the rule")
	default:
		err = ruleError("%s is not supported", quote(key))
	}
	return err
}

func ruleInt(key, v string, low, high int, negative bool) (int, *Error) {
	n, err := strconv.Atoi(v)
	if a := max(n, -n); err != nil || a < low || a > high || n < 0 && !negative {
		if negative {
			return 0, ruleError("%s: %s is not a number from %d to %d or from -%d to -%d",
				key, quote(v), low, high, high, low)
		}
		return 0, ruleError("%s: %s is not a number from %d to %d", key, quote(v), low, high)
	}
	return n, nil
}

// ruleInts reads a list. It comes back sorted and without repetitions, so that a hostile one costs nothing later.
func ruleInts(key, v string, low, high int, negative bool) ([]int, *Error) {
	var list []int
	for _, item := range strings.Split(v, ",") {
		n, err := ruleInt(key, item, low, high, negative)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func ruleWeekdays(v string) ([]nthDay, *Error) {
	var list []nthDay
	for _, item := range strings.Split(v, ",") {
		d := -1
		if len(item) >= 2 {
			d = slices.Index(ruleDays, item[len(item)-2:])
		}
		if d < 0 {
			return nil, ruleError("BYDAY: %s is not a weekday such as MO, 2TU or -1FR", quote(item))
		}
		n := 0
		if len(item) > 2 {
			var err *Error
			if n, err = ruleInt("BYDAY", item[:len(item)-2], 1, 53, true); err != nil {
				return nil, err
			}
		}
		list = append(list, nthDay{int8(d), int8(n)})
	}
	slices.SortFunc(list, func(a, b nthDay) int { return int(a.wday)*200 + int(a.n) - int(b.wday)*200 - int(b.n) })
	return slices.Compact(list), nil
}

// checkWeekdays holds the numbers in BYDAY to what RFC 5545 allows.
func (t *ruleText) checkWeekdays() *Error {
	for _, d := range t.weekdays {
		switch {
		case d.n == 0:
		case t.freq > monthly:
			return ruleError("BYDAY with a number is for FREQ=MONTHLY and FREQ=YEARLY")
		case t.week != nil:
			return ruleError("BYDAY with a number does not go with BYWEEKNO")
		case (t.freq == monthly || t.month != nil) && max(d.n, -d.n) > 5:
			return ruleError("BYDAY: a month has at most five of a weekday")
		}
	}
	return nil
}

// parseRule completes the rule from DTSTART, as RFC 5545 wants it, and compiles it.
func (s *Schedule) parseRule(set *ruleSet, text string, start int64) error {
	t, perr := parseRuleText(text)
	if perr != nil {
		return perr
	}
	d, sod := splitDay(start)
	_, month, dom := civil(d)
	if t.week == nil && t.yday == nil && t.mday == nil && t.weekdays == nil {
		switch t.freq {
		case yearly:
			if t.month == nil {
				t.month = []int{month}
			}
			t.mday = []int{dom}
		case monthly:
			t.mday = []int{dom}
		case weekly:
			t.weekdays = []nthDay{{wday: int8(weekday(d))}}
		}
	}
	r := &set.rule
	*r = rrule{freq: t.freq, interval: int64(t.interval), wkst: t.wkst, start: start, until: never}
	r.month = uint16(mask(t.month, 0x1ffe))
	for _, n := range t.mday {
		if n > 0 {
			r.mday |= 1 << n
		} else {
			r.nmday |= 1 << -n
		}
	}
	for _, n := range t.week {
		if n > 0 {
			r.week |= 1 << n
		} else {
			r.nweek |= 1 << -n
		}
	}
	for _, n := range t.yday {
		r.yday = append(r.yday, int16(n))
	}
	r.byWday = t.weekdays != nil
	r.nthInYear = t.freq == yearly && t.month == nil
	for _, wd := range t.weekdays {
		if wd.n == 0 {
			r.wday |= 1 << wd.wday
		} else {
			r.nth = append(r.nth, wd)
		}
	}
	r.setTimes(t, sod)
	if r.unit != 0 && !r.meets() {
		return scheduleError("change INTERVAL, DTSTART or the BY parts",
			"the RRULE never fires: its interval never reaches the times of the day that BYHOUR, BYMINUTE and "+
				"BYSECOND allow")
	}
	if !r.setPositions(t) {
		return scheduleError("", "the RRULE never fires: BYSETPOS points beyond the end of every set")
	}
	if err := s.setUntil(set, t.until); err != nil {
		return err
	}
	if t.count > 0 {
		r.until = r.nthFrom(t.count)
	}
	return nil
}

// setTimes decides what the hours, minutes and seconds of the rule are: what is finer than the frequency comes from
// DTSTART where the rule does not say it, and what is coarser is a filter.
func (r *rrule) setTimes(t *ruleText, sod int64) {
	part := func(list []int, level frequency, own int64, all uint64) (fine, coarse uint64) {
		switch {
		case r.freq >= level:
			return 1, mask(list, all)
		case list == nil:
			return 1 << own, 1
		}
		return mask(list, all), 1
	}
	hour, hours := part(t.hour, hourly, sod/3600, 1<<24-1)
	minute, minutes := part(t.minute, minutely, sod/60%60, 1<<60-1)
	second, seconds := part(t.second, secondly, sod%60, 1<<60-1)
	r.times = times{hour: uint32(hour), min: minute, sec: second}
	r.units = times{hour: uint32(hours), min: minutes, sec: seconds}
	switch r.freq {
	case hourly:
		r.unit = 3600
	case minutely:
		r.unit = 60
	case secondly:
		r.unit = 1
	}
	start, _ := splitDay(r.start)
	r.first = r.period(start)
	if r.unit != 0 {
		r.first = floorDiv(r.start, r.unit)
	}
}

// setPositions applies BYSETPOS: at once where every period has the same times, later where it depends on the days.
func (r *rrule) setPositions(t *ruleText) bool {
	if t.setpos == nil {
		return true
	}
	n := r.times.size()
	var pick []int32
	for _, pos := range t.setpos {
		r.setpos = append(r.setpos, int16(pos))
		i := pos - 1
		if pos < 0 {
			i = n + pos
		}
		if i >= 0 && i < n {
			pick = append(pick, int32(r.times.nth(i)))
		}
	}
	if r.freq < daily {
		return true
	}
	r.setpos = nil
	slices.Sort(pick)
	r.times.pick = slices.Compact(pick)
	return len(pick) > 0
}

func (s *Schedule) setUntil(set *ruleSet, text string) error {
	if text == "" {
		return nil
	}
	st, err := parseStamp("UNTIL", text)
	if err != nil {
		return err
	}
	switch {
	case st.isDate:
		set.rule.until = st.wall + day - 1
	case !st.isUTC:
		set.rule.until = st.wall
	default:
		// An instant. In the second pass of a repeated hour the whole first pass lies before it, so the rule may go on
		// to where that ended, and the instant itself is the limit (unless an RDATE comes later).
		i := s.zone.find(st.wall)
		set.rule.until = s.zone.wall(st.wall)
		if i > 0 {
			set.rule.until = max(set.rule.until, s.zone.segs[i].start+s.zone.segs[i-1].off-1)
		}
		if n := len(set.rdate); n == 0 || set.rdate[n-1] <= set.rule.until {
			s.hi = min(s.hi, st.wall*1000)
		}
	}
	return nil
}

// nthFrom is the n-th occurrence, or the last one if there are fewer.
func (r *rrule) nthFrom(n int) int64 {
	last := before
	for w := r.start; n > 0; n-- {
		at := r.next(w)
		if at == never {
			break
		}
		last, w = at, at+1
	}
	return last
}

// mask is a list as bits, or all of them if there is no list.
func mask(list []int, all uint64) uint64 {
	if list == nil {
		return all
	}
	var m uint64
	for _, n := range list {
		m |= 1 << n
	}
	return m
}
