package schedule

// This file has the two kinds of rules that do not go day by day: those below a day, and BYSETPOS.

// nextUnits is next for HOURLY, MINUTELY and SECONDLY.
func (r *rrule) nextUnits(w int64) int64 {
	u := floorDiv(w, r.unit)
	at := r.nextUnit(u)
	if at == u {
		if t := r.times.next(w - u*r.unit); t != never {
			return u*r.unit + t
		}
		at = r.nextUnit(u + 1)
	}
	if at == never {
		return never
	}
	return at*r.unit + r.times.first()
}

func (r *rrule) prevUnits(w int64) int64 {
	u := floorDiv(w, r.unit)
	at := r.prevUnit(u)
	if at == u {
		if t := r.times.prev(w - u*r.unit); t != before {
			return u*r.unit + t
		}
		at = r.prevUnit(u - 1)
	}
	if at == before {
		return before
	}
	return at*r.unit + r.times.last()
}

// nextUnit is the first unit at or after u that is a multiple of the interval away from DTSTART's and passes the
// filters of date and time. Each round jumps over everything that the failing filter rules out.
func (r *rrule) nextUnit(u int64) int64 {
	perDay := day / r.unit
	c := monthCursor{r: r}
	for {
		if off := floorMod(u-r.first, r.interval); off != 0 {
			u += r.interval - off
		}
		d := floorDiv(u, perDay)
		if d > maxUnix/day+2 {
			return never
		}
		if !c.has(d) {
			if d = c.next(d, never); d == never {
				return never
			}
			u = d * perDay
			continue
		}
		sod := (u - d*perDay) * r.unit
		switch t := r.units.next(sod); t {
		case sod:
			return u
		case never:
			u = (d + 1) * perDay
		default:
			u = d*perDay + t/r.unit
		}
	}
}

func (r *rrule) prevUnit(u int64) int64 {
	perDay := day / r.unit
	c := monthCursor{r: r}
	for {
		if u -= floorMod(u-r.first, r.interval); u < r.first {
			return before
		}
		d := floorDiv(u, perDay)
		if !c.has(d) {
			if d = c.prev(d); d == before {
				return before
			}
			u = (d+1)*perDay - 1
			continue
		}
		sod := (u - d*perDay) * r.unit
		switch t := r.units.prev(sod); t {
		case sod:
			return u
		case before:
			u = d*perDay - 1
		default:
			u = d*perDay + t/r.unit
		}
	}
}

// meets reports whether the interval ever reaches a unit of the day that the filters allow. If it does not, as in
// FREQ=HOURLY;INTERVAL=2;BYHOUR=1 from an even hour, the search would look at every unit up to the last year.
func (r *rrule) meets() bool {
	perDay := day / r.unit
	g := gcd(r.interval, perDay)
	if g == 1 {
		return true
	}
	for t := int64(0); t < day; t += r.unit {
		if t = r.units.next(t); t == never {
			break
		}
		if floorMod(t/r.unit-r.first, g) == 0 {
			return true
		}
	}
	return false
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// nextPos is next for BYSETPOS with WEEKLY, MONTHLY and YEARLY: the positions count within the whole period, also in
// the one that DTSTART is in.
func (r *rrule) nextPos(w int64) int64 {
	d, _ := splitDay(w)
	p := r.period(d)
	if off := floorMod(p-r.first, r.interval); off != 0 {
		p += r.interval - off
	}
	for last := r.lastPeriod(); p <= last; p += r.interval {
		best := never
		r.positions(p, func(at int64) {
			if at >= w && at < best {
				best = at
			}
		})
		if best != never {
			return best
		}
	}
	return never
}

func (r *rrule) prevPos(w int64) int64 {
	d, _ := splitDay(w)
	p := r.period(d)
	for p -= floorMod(p-r.first, r.interval); p >= r.first; p -= r.interval {
		best := before
		r.positions(p, func(at int64) {
			if at <= w && at > best {
				best = at
			}
		})
		if best != before {
			return best
		}
	}
	return before
}

// positions calls f with the wall times that BYSETPOS picks from a period, in no order.
func (r *rrule) positions(p int64, f func(at int64)) {
	var days [366]int32
	n := 0
	from, to := r.days(p)
	c := monthCursor{r: r}
	for d := c.next(from, to); d < to; d = c.next(d+1, to) {
		days[n] = int32(d)
		n++
	}
	perDay := r.times.size()
	for _, pos := range r.setpos {
		i := int(pos) - 1
		if pos < 0 {
			i = n*perDay + int(pos)
		}
		if i >= 0 && i < n*perDay {
			f(int64(days[i/perDay])*day + r.times.nth(i%perDay))
		}
	}
}
