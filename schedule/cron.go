package schedule

import "math/bits"

// cron is a compiled cron expression: sets of bits, so that finding the next or previous match is a few shifts.
type cron struct {
	times
	month uint16 // bits 1-12

	dom     uint32 // bits 1-31
	domL    uint32 // bit n: the n-th day before the last (L is bit 0)
	domW    uint32 // bit n: the weekday nearest to day n
	domLW   uint32 // bit n: the weekday nearest to the n-th day before the last
	dow     uint8  // bits 0-6, 0 is Sunday
	dowL    uint8  // the last such weekday of the month
	dowNth  [6]uint8
	special bool // any of L, W, #

	// A field that begins with * (or is ?) narrows the other one; two fields without it add up. That is the rule of
	// every cron since Vixie's: "0 0 13 * 5" is the 13th and every Friday, "0 0 29 2 */7" a leap day on a Sunday.
	domStar, dowStar bool

	interval bool // a wildcard, range or step in second, minute or hour (J3)
}

// dayMask is the set of matching days of a month with n days whose first one is a wd, as bits 1-31.
func (c *cron) dayMask(n, wd int) uint32 {
	full := uint32(1)<<(n+1) - 2
	dom, dow := c.dom&full, spreadWeek(c.dow, wd)&full
	if c.special {
		for m := c.domL; m != 0; m &= m - 1 {
			dom |= dayBit(n-bits.TrailingZeros32(m), n)
		}
		for m := c.domW; m != 0; m &= m - 1 {
			dom |= nearestWeekday(bits.TrailingZeros32(m), n, wd)
		}
		for m := c.domLW; m != 0; m &= m - 1 {
			dom |= nearestWeekday(n-bits.TrailingZeros32(m), n, wd)
		}
		dow |= spreadWeek(c.dowL, wd) & (full &^ (full >> 7))
		for k := 1; k <= 5; k++ {
			dow |= spreadWeek(c.dowNth[k], wd) & full & (uint32(0x7f) << (7*(k-1) + 1))
		}
	}
	if c.domStar || c.dowStar {
		return dom & dow
	}
	return dom | dow
}

// spreadWeek lays a set of weekdays over a month whose first day is a wd.
func spreadWeek(days uint8, wd int) uint32 {
	d := uint64(days)
	rotated := (d>>wd | d<<(7-wd)) & 0x7f
	return uint32(rotated * (1 | 1<<7 | 1<<14 | 1<<21 | 1<<28) << 1)
}

func dayBit(d, n int) uint32 {
	if d < 1 || d > n {
		return 0
	}
	return 1 << d
}

// nearestWeekday is the day from Monday to Friday nearest to day d of the same month; nothing if there is no day d.
func nearestWeekday(d, n, wd int) uint32 {
	if d < 1 || d > n {
		return 0
	}
	switch (wd + d - 1) % 7 {
	case 6:
		if d--; d < 1 {
			d = 3
		}
	case 0:
		if d++; d > n {
			d = n - 2
		}
	}
	return 1 << d
}

func (c *cron) next(w int64) int64 {
	d, sod := splitDay(w)
	y, m, dom := civil(d)
	first := d - int64(dom) + 1
	if c.month>>m&1 != 0 {
		mask := c.dayMask(daysIn(y, m), weekday(first)) >> dom
		if mask&1 != 0 {
			if t := c.times.next(sod); t != never {
				return d*day + t
			}
		}
		if mask >>= 1; mask != 0 {
			return (d+1+int64(bits.TrailingZeros32(mask)))*day + c.first()
		}
	}
	for {
		if rest := c.month >> (m + 1); rest != 0 {
			m += 1 + bits.TrailingZeros16(rest)
		} else {
			m = bits.TrailingZeros16(c.month)
			if y++; y > maxYear+1 {
				return never
			}
		}
		first = dayOf(y, m, 1)
		if mask := c.dayMask(daysIn(y, m), weekday(first)); mask != 0 {
			return (first-1+int64(bits.TrailingZeros32(mask)))*day + c.first()
		}
	}
}

func (c *cron) prev(w int64) int64 {
	d, sod := splitDay(w)
	y, m, dom := civil(d)
	first := d - int64(dom) + 1
	if c.month>>m&1 != 0 {
		mask := c.dayMask(daysIn(y, m), weekday(first))
		if mask>>dom&1 != 0 {
			if t := c.times.prev(sod); t != before {
				return d*day + t
			}
		}
		if mask &= 1<<dom - 1; mask != 0 {
			return (first-2+int64(bits.Len32(mask)))*day + c.last()
		}
	}
	for {
		if rest := c.month & (1<<m - 1); rest != 0 {
			m = bits.Len16(rest) - 1
		} else {
			m = bits.Len16(c.month) - 1
			if y--; y < minYear-1 {
				return before
			}
		}
		first = dayOf(y, m, 1)
		if mask := c.dayMask(daysIn(y, m), weekday(first)); mask != 0 {
			return (first-2+int64(bits.Len32(mask)))*day + c.last()
		}
	}
}
