package schedule

import "math/bits"

// A wall time is a reading of a clock on the wall, as the number of seconds since 1970-01-01 00:00 on that clock. It
// has no zone: dst.go maps wall times to instants. Days are counted the same way.

const (
	day = 24 * 60 * 60

	minYear = 1970
	maxYear = 2200

	maxUnix = 7_289_654_399 // 2200-12-31T23:59:59Z; a test holds it

	// No wall time has been found. They sit far enough from any real one that adding an offset cannot make them real,
	// and near enough to zero that counting them in milliseconds does not overflow.
	never  = int64(1) << 50
	before = -never
)

// splitDay cuts a wall time into day and second of the day, rounding down: zones west of Greenwich are still in 1969
// when the epoch begins.
func splitDay(w int64) (d, sod int64) {
	d, sod = w/day, w%day
	if sod < 0 {
		d, sod = d-1, sod+day
	}
	return d, sod
}

func floorMod(a, n int64) int64 {
	if a %= n; a < 0 {
		a += n
	}
	return a
}

func floorDiv(a, n int64) int64 {
	q := a / n
	if a%n < 0 {
		q--
	}
	return q
}

// civil is the date of a day, after Howard Hinnant's days_from_civil; it holds for any year after 0.
func civil(d int64) (year, month, dom int) {
	z := d + 719468
	era := z / 146097
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	dom = int(doy-(153*mp+2)/5) + 1
	year = int(yoe + era*400)
	if mp < 10 {
		return year, int(mp) + 3, dom
	}
	return year + 1, int(mp) - 9, dom
}

// dayOf is the inverse of civil.
func dayOf(year, month, dom int) int64 {
	y, m := int64(year), int64(month)
	if m <= 2 {
		y--
		m += 9
	} else {
		m -= 3
	}
	era := y / 400
	yoe := y - era*400
	doy := (153*m+2)/5 + int64(dom) - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

func isLeap(y int) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

func daysIn(year, month int) int {
	if month == 2 {
		if isLeap(year) {
			return 29
		}
		return 28
	}
	return 30 + (month+month>>3)&1
}

func yearLen(year int) int {
	if isLeap(year) {
		return 366
	}
	return 365
}

// weekday is 0 for Sunday, as in cron and in package time.
func weekday(d int64) int { return int(floorMod(d+4, 7)) }

// times is a set of times of the day: every combination of the hours, minutes and seconds whose bits are set. pick,
// where it is not nil, holds the chosen ones instead, sorted (BYSETPOS of an RRULE).
type times struct {
	sec, min uint64
	hour     uint32
	pick     []int32
}

func lowest(m uint64) int64  { return int64(bits.TrailingZeros64(m)) }
func highest(m uint64) int64 { return int64(bits.Len64(m)) - 1 }

func (t *times) first() int64 {
	if t.pick != nil {
		return int64(t.pick[0])
	}
	return lowest(uint64(t.hour))*3600 + lowest(t.min)*60 + lowest(t.sec)
}

func (t *times) last() int64 {
	if t.pick != nil {
		return int64(t.pick[len(t.pick)-1])
	}
	return highest(uint64(t.hour))*3600 + highest(t.min)*60 + highest(t.sec)
}

// next is the first time of the set at or after a second of the day, or never.
func (t *times) next(sod int64) int64 {
	if t.pick != nil {
		for _, p := range t.pick {
			if int64(p) >= sod {
				return int64(p)
			}
		}
		return never
	}
	h, m, s := uint64(sod)/3600, uint64(sod)/60%60, uint64(sod)%60
	if t.hour>>h&1 != 0 {
		if t.min>>m&1 != 0 {
			if r := t.sec >> s; r != 0 {
				return sod + lowest(r)
			}
		}
		if r := t.min >> (m + 1); r != 0 {
			return int64(h)*3600 + (int64(m)+1+lowest(r))*60 + lowest(t.sec)
		}
	}
	if r := t.hour >> (h + 1); r != 0 {
		return (int64(h)+1+lowest(uint64(r)))*3600 + lowest(t.min)*60 + lowest(t.sec)
	}
	return never
}

// prev is the last time of the set at or before a second of the day, or before.
func (t *times) prev(sod int64) int64 {
	if t.pick != nil {
		for i := len(t.pick) - 1; i >= 0; i-- {
			if int64(t.pick[i]) <= sod {
				return int64(t.pick[i])
			}
		}
		return before
	}
	h, m, s := uint64(sod)/3600, uint64(sod)/60%60, uint64(sod)%60
	if t.hour>>h&1 != 0 {
		if t.min>>m&1 != 0 {
			if r := t.sec & (2<<s - 1); r != 0 {
				return int64(h)*3600 + int64(m)*60 + highest(r)
			}
		}
		if r := t.min & (1<<m - 1); r != 0 {
			return int64(h)*3600 + highest(r)*60 + highest(t.sec)
		}
	}
	if r := t.hour & (1<<h - 1); r != 0 {
		return highest(uint64(r))*3600 + highest(t.min)*60 + highest(t.sec)
	}
	return before
}

// size is the number of times in the set.
func (t *times) size() int {
	if t.pick != nil {
		return len(t.pick)
	}
	return bits.OnesCount32(t.hour) * bits.OnesCount64(t.min) * bits.OnesCount64(t.sec)
}

// nth is the i-th time of the set, from 0.
func (t *times) nth(i int) int64 {
	if t.pick != nil {
		return int64(t.pick[i])
	}
	ns, nm := bits.OnesCount64(t.sec), bits.OnesCount64(t.min)
	return nthBit(uint64(t.hour), i/(ns*nm))*3600 + nthBit(t.min, i/ns%nm)*60 + nthBit(t.sec, i%ns)
}

func nthBit(m uint64, i int) int64 {
	for ; i > 0; i-- {
		m &= m - 1
	}
	return lowest(m)
}
