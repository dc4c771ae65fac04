package schedule

import "math/bits"

// rrule is the set of wall times of an RFC 5545 rule. The period (a year, month, week, day, hour, minute or second,
// counted from DTSTART's) is found by arithmetic, so that Next and Prev cost the same however long ago DTSTART was.
// COUNT is turned into an UNTIL when the rule is parsed.
//
// The meaning of the parts is that of python-dateutil and its ports; rrule_parse.go lists where we differ.
type rrule struct {
	freq     frequency
	interval int64
	wkst     int   // first day of the week, 0 is Sunday
	start    int64 // DTSTART
	until    int64 // inclusive; never = none

	month       uint16 // bits 1-12
	mday, nmday uint32 // BYMONTHDAY: bit n from the start, and from the end, of the month
	wday        uint8  // BYDAY without a number
	nth         []nthDay
	nthInYear   bool    // the numbers count weekdays of the year, not of the month
	yday        []int16 // BYYEARDAY
	week, nweek uint64  // BYWEEKNO, from the start and from the end of the year
	times       times   // of the day; for the frequencies below a day, within one unit
	unit        int64   // seconds of an hour, minute or second for those frequencies; otherwise 0
	units       times   // which units of the day the rule allows
	setpos      []int16 // BYSETPOS for WEEKLY, MONTHLY and YEARLY; for the others it is applied to times
	first       int64   // the period that DTSTART is in: year, month number, week number, day or unit
	byWday      bool    // there is a BYDAY
}

type frequency uint8

const (
	yearly frequency = iota
	monthly
	weekly
	daily
	hourly
	minutely
	secondly
)

type nthDay struct {
	wday int8
	n    int8
}

// dayMask is the set of days of a month that pass every date filter, as bits 1-31.
func (r *rrule) dayMask(year, month int, first int64) uint32 {
	if r.month>>month&1 == 0 {
		return 0
	}
	n := daysIn(year, month)
	full := uint32(1)<<(n+1) - 2
	mask := full
	if r.mday|r.nmday != 0 {
		m := r.mday & full
		for neg := r.nmday; neg != 0; neg &= neg - 1 {
			m |= dayBit(n+1-bits.TrailingZeros32(neg), n)
		}
		mask &= m
	}
	if r.byWday {
		m := spreadWeek(r.wday, weekday(first))
		for _, d := range r.nth {
			from, to := first, first+int64(n)
			if r.nthInYear {
				from = dayOf(year, 1, 1)
				to = from + int64(yearLen(year))
			}
			m |= dayBit(int(nthWeekday(d, from, to)-first)+1, n)
		}
		mask &= m
	}
	if r.yday != nil {
		var m uint32
		jan1 := dayOf(year, 1, 1)
		for _, yd := range r.yday {
			d := jan1 + int64(yd) - 1
			if yd < 0 {
				d = jan1 + int64(yearLen(year)) + int64(yd)
			}
			m |= dayBit(int(d-first)+1, n)
		}
		mask &= m
	}
	if r.week|r.nweek != 0 {
		mask &= r.weekMask(first, n)
	}
	return mask
}

// nthWeekday is the n-th such weekday of the days [from, to), counted from the end if n is negative. It may lie
// outside of them.
func nthWeekday(d nthDay, from, to int64) int64 {
	if d.n > 0 {
		d0 := from + int64((int(d.wday)-weekday(from)+7)%7)
		if at := d0 + 7*int64(d.n-1); at < to {
			return at
		}
		return never
	}
	d0 := to - 1 - int64((weekday(to-1)-int(d.wday)+7)%7)
	if at := d0 + 7*int64(d.n+1); at >= from {
		return at
	}
	return before
}

// weekMask is the set of days of a month that lie in the wanted weeks. A week belongs to the year that has its fourth
// day.
func (r *rrule) weekMask(first int64, n int) uint32 {
	var mask uint32
	for d := first; d < first+int64(n); {
		start := d - int64((weekday(d)-r.wkst+7)%7)
		year, month, dom := civil(start + 3)
		doy := int(dayOf(year, month, dom) - dayOf(year, 1, 1))
		no := doy/7 + 1
		left := (yearLen(year) - 1 - doy) / 7 // weeks of that year after this one
		end := min(start+7, first+int64(n))
		if r.week>>no&1 != 0 || r.nweek>>(left+1)&1 != 0 {
			for ; d < end; d++ {
				mask |= 1 << (d - first + 1)
			}
		}
		d = end
	}
	return mask
}

func (r *rrule) next(w int64) int64 {
	if w = max(w, r.start); w > r.until {
		return never
	}
	switch {
	case r.unit != 0:
		w = r.nextUnits(w)
	case r.setpos != nil:
		w = r.nextPos(w)
	default:
		d, sod := splitDay(w)
		at := r.nextDay(d)
		t := r.times.first()
		if at == d {
			if t = r.times.next(sod); t == never {
				at, t = r.nextDay(d+1), r.times.first()
			}
		}
		if at == never {
			return never
		}
		w = at*day + t
	}
	if w > r.until {
		return never
	}
	return w
}

func (r *rrule) prev(w int64) int64 {
	if w = min(w, r.until); w < r.start {
		return before
	}
	switch {
	case r.unit != 0:
		w = r.prevUnits(w)
	case r.setpos != nil:
		w = r.prevPos(w)
	default:
		d, sod := splitDay(w)
		at := r.prevDay(d)
		t := r.times.last()
		if at == d {
			if t = r.times.prev(sod); t == before {
				at, t = r.prevDay(d-1), r.times.last()
			}
		}
		if at == before {
			return before
		}
		w = at*day + t
	}
	if w < r.start {
		return before
	}
	return w
}

// period is the number of the period that a day lies in.
func (r *rrule) period(d int64) int64 {
	switch r.freq {
	case yearly:
		y, _, _ := civil(d)
		return int64(y)
	case monthly:
		y, m, _ := civil(d)
		return int64(y)*12 + int64(m) - 1
	case weekly:
		return floorDiv(d+4-int64(r.wkst), 7)
	}
	return d
}

// days are the first day of a period and the first one after it.
func (r *rrule) days(p int64) (from, to int64) {
	switch r.freq {
	case yearly:
		return dayOf(int(p), 1, 1), dayOf(int(p)+1, 1, 1)
	case monthly:
		y, m := int(p/12), int(p%12)+1
		from = dayOf(y, m, 1)
		return from, from + int64(daysIn(y, m))
	case weekly:
		from = p*7 - 4 + int64(r.wkst)
		return from, from + 7
	}
	return p, p + 1
}

// nextDay is the first day at or after d that lies in a period of the rule and passes its filters.
func (r *rrule) nextDay(d int64) int64 {
	c := monthCursor{r: r}
	for {
		if d = c.next(d, never); d == never {
			return never
		}
		p := r.period(d)
		off := floorMod(p-r.first, r.interval)
		if off == 0 {
			return d
		}
		if p += r.interval - off; p > r.lastPeriod() {
			return never
		}
		d, _ = r.days(p)
	}
}

func (r *rrule) prevDay(d int64) int64 {
	c := monthCursor{r: r}
	for {
		if d = c.prev(d); d == before {
			return before
		}
		p := r.period(d)
		off := floorMod(p-r.first, r.interval)
		if off == 0 {
			return d
		}
		if p -= off; p < r.first {
			return before
		}
		_, d = r.days(p)
		d--
	}
}

func (r *rrule) lastPeriod() int64 { return r.period(maxUnix/day + 3) }

// monthCursor walks the days that pass the date filters. It remembers the month it is in.
type monthCursor struct {
	r           *rrule
	year, month int
	first       int64 // the month's first day
	mask        uint32
	valid       bool
}

func (c *monthCursor) seek(d int64) (dom int) {
	if c.valid && d >= c.first && d < c.first+28 {
		return int(d-c.first) + 1
	}
	year, month, dom := civil(d)
	if !c.valid || year != c.year || month != c.month {
		c.set(year, month)
	}
	return dom
}

func (c *monthCursor) set(year, month int) {
	c.year, c.month, c.valid = year, month, true
	c.first = dayOf(year, month, 1)
	c.mask = c.r.dayMask(year, month, c.first)
}

func (c *monthCursor) has(d int64) bool { return c.mask>>c.seek(d)&1 != 0 }

// next is the first such day at or after d, or never if it would have to look at a month that begins at limit or later.
func (c *monthCursor) next(d, limit int64) int64 {
	dom := c.seek(d)
	mask := c.mask &^ (1<<dom - 1)
	for ; mask == 0; mask = c.mask {
		switch {
		case c.first+int64(daysIn(c.year, c.month)) >= limit || c.year > maxYear:
			return never
		case c.month < 12:
			c.set(c.year, c.month+1)
		default:
			c.set(c.year+1, 1)
		}
	}
	return c.first - 1 + int64(bits.TrailingZeros32(mask))
}

func (c *monthCursor) prev(d int64) int64 {
	dom := c.seek(d)
	mask := c.mask & (2<<dom - 1)
	for ; mask == 0; mask = c.mask {
		switch {
		case c.month > 1:
			c.set(c.year, c.month-1)
		case c.year < minYear:
			return before
		default:
			c.set(c.year-1, 12)
		}
	}
	return c.first - 2 + int64(bits.Len32(mask))
}
