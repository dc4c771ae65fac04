package schedule

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
