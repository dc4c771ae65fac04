package schedule

// walls is a set of wall times without a zone: what a cron expression or an RRULE describes.
type walls interface {
	next(w int64) int64 // the first one at or after w, or never
	prev(w int64) int64 // the last one at or before w, or before
}

// clock maps a set of wall times to instants by the rules of requirement J3. It walks the zone's segments; where two
// of them meet, the wall clock either jumps ahead (a gap: wall times that do not exist) or falls back (an overlap:
// wall times that occur twice).
//
//	gap      everything in it fires once, at the boundary, unless skipGap
//	overlap  with both, the new segment fires what the old one has already fired; otherwise it only goes on where the
//	         wall clock of the old one stopped
type clock struct {
	walls   walls
	zone    *zone
	skipGap bool
	both    bool
}

// next is the first fire time at or after lo, in Unix seconds, or never.
func (c *clock) next(lo int64) int64 {
	// from and w remember the last question to walls: there is nothing in [from, w). With it a yearly schedule passes
	// its hundreds of segments without searching the calendar again for each.
	from, w := never, before
	ask := func(x int64) int64 {
		if x < from || x > w {
			from, w = x, c.walls.next(x)
		}
		return w
	}
	z := c.zone
	for i := z.find(lo); i < len(z.segs); i++ {
		seg := z.segs[i]
		lo = max(lo, seg.start)
		if lo > maxUnix {
			break
		}
		x := lo + seg.off
		if i > 0 {
			old := seg.start + z.segs[i-1].off // where the wall clock stood when this segment began
			if !c.skipGap && lo == seg.start && old < x && ask(old) <= x {
				return seg.start
			}
			if !c.both && x < old {
				x = old
			}
		}
		if w := ask(x); w < z.end(i)+seg.off {
			return w - seg.off
		}
	}
	return never
}

// prev is the last fire time at or before hi, in Unix seconds, or before. It mirrors next.
func (c *clock) prev(hi int64) int64 {
	w, upTo := never, before // there is nothing in (w, upTo]
	ask := func(x int64) int64 {
		if x > upTo || x < w {
			upTo, w = x, c.walls.prev(x)
		}
		return w
	}
	z := c.zone
	for i := z.find(hi); i >= 0; i-- {
		seg := z.segs[i]
		hi = min(hi, z.end(i)-1)
		if hi < 0 {
			break
		}
		w := ask(hi + seg.off)
		if i == 0 {
			if w == before {
				return before
			}
			return w - seg.off
		}
		begin, old := seg.start+seg.off, seg.start+z.segs[i-1].off
		if c.both && w >= begin || !c.both && w >= max(begin, old) {
			return w - seg.off
		}
		if !c.skipGap && old <= w && w < begin {
			return seg.start
		}
	}
	return before
}

// gapAt reports whether a fire time is the end of a gap, and the first wall time that the gap swallowed, or never.
func (c *clock) gapAt(unix int64) (from, to, swallowed int64, ok bool) {
	i := c.zone.find(unix)
	seg := c.zone.segs[i]
	if i == 0 || seg.start != unix || seg.off < c.zone.segs[i-1].off {
		return 0, 0, never, false
	}
	from, to = unix+c.zone.segs[i-1].off, unix+seg.off
	if swallowed = c.walls.next(from); swallowed >= to {
		swallowed = never
	}
	return from, to, swallowed, true
}

// passOf says whether the wall time at an instant occurs once (0), or twice and this is the first or the second.
func (z *zone) passOf(unix int64) int {
	i := z.find(unix)
	w := unix + z.segs[i].off
	if i > 0 && w < z.segs[i].start+z.segs[i-1].off {
		return 2
	}
	if i+1 < len(z.segs) && w >= z.segs[i+1].start+z.segs[i+1].off {
		return 1
	}
	return 0
}
