package schedule

import (
	"cmp"
	"strings"
	"sync"
	"time"
	_ "time/tzdata"
)

// walls is a set of wall times without a zone: what a cron expression or an RRULE describes.
type walls interface {
	next(w int64) int64 // the first one at or after w, or never
	prev(w int64) int64 // the last one at or before w, or before
}

// clock maps a set of wall times to instants by the rules of dst_gap and dst_overlap. It walks the zone's segments;
// where two of them meet, the wall clock either jumps ahead (a gap: wall times that do not exist) or falls back (an
// overlap: wall times that occur twice).
//
//	gap      everything in it has one occurrence, at the boundary; with skipGap that one does not run
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
			if lo == seg.start && old < x && ask(old) <= x {
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
		if old <= w && w < begin {
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

// skipped says that an occurrence stands for wall times in a gap, and not for one of its own.
func (c *clock) skipped(unix int64) bool {
	if !c.skipGap {
		return false
	}
	_, to, swallowed, ok := c.gapAt(unix)
	return ok && swallowed != never && c.walls.next(to) != to
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

// segment is a stretch of time in which a zone's offset does not change; it ends where the next one starts.
type segment struct {
	start int64 // Unix seconds
	off   int64 // seconds east of UTC
}

// zone is a time zone as the list of its segments over the supported years. Inside a segment wall time and real time
// run in parallel, so that the rest of the package is arithmetic.
//
// Next could ask time.Time.ZoneBounds instead, but for years past the zone's table (2037, often 2007) that evaluates
// the rule of the zone anew at every call, calls the end of a year a boundary, and on 31 December of a leap year
// returns an end in the past.
type zone struct {
	name string
	loc  *time.Location
	segs []segment
}

// zones remembers the zones already read, by name. It only ever holds names that exist, and a zone never changes.
var zones sync.Map

func loadZone(name string) (*zone, error) {
	name = cmp.Or(name, "UTC")
	if z, ok := zones.Load(name); ok {
		return z.(*zone), nil
	}
	loc := loadLocation(name)
	if loc == nil {
		remedy := "use an IANA name such as UTC, Europe/London or America/New_York"
		if guess := zoneCase(name); guess != name && loadLocation(guess) != nil {
			remedy = "did you mean " + guess + "?"
		}
		return nil, &Error{"timezone", "unknown time zone " + quote(name), remedy}
	}
	z, _ := zones.LoadOrStore(name, newZone(name, loc))
	return z.(*zone), nil
}

// loadLocation returns nil for what is not the name of a zone. "Local" would make a job depend on the node it is on,
// and the "right/" zones count leap seconds, which Unix time does not have.
func loadLocation(name string) *time.Location {
	if len(name) > 64 || name == "Local" || name == "localtime" || strings.HasPrefix(name, "right/") ||
		strings.HasPrefix(name, "posix/") {
		return nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return loc
}

// zoneCase writes a zone's name with the usual capitals, for a hint.
func zoneCase(name string) string {
	b := []byte(strings.ToLower(strings.ReplaceAll(name, " ", "_")))
	for i, c := range b {
		if (i == 0 || b[i-1] == '/' || b[i-1] == '_' || b[i-1] == '-') && 'a' <= c && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	if s := string(b); s != "Utc" && s != "Gmt" {
		return s
	}
	return strings.ToUpper(name)
}

func newZone(name string, loc *time.Location) *zone {
	z := &zone{name: name, loc: loc}
	t := int64(-2 * day)
	for t <= maxUnix+2*day {
		at := time.Unix(t, 0).In(loc)
		_, off := at.Zone()
		switch n := len(z.segs); {
		case n == 0:
			z.segs = append(z.segs, segment{start: before, off: int64(off)})
		case z.segs[n-1].off != int64(off):
			z.segs = append(z.segs, segment{start: t, off: int64(off)})
		}
		_, end := at.ZoneBounds()
		if end.IsZero() {
			break
		}
		if e := end.Unix(); e > t {
			t = e
		} else {
			t += 60 * 60 // the leap year error described above: no zone changes then
		}
	}
	return z
}

// find is the index of the segment that contains an instant.
func (z *zone) find(unix int64) int {
	lo, hi := 0, len(z.segs)
	for hi-lo > 1 {
		if m := int(uint(lo+hi) >> 1); z.segs[m].start <= unix {
			lo = m
		} else {
			hi = m
		}
	}
	return lo
}

// end is the first instant after segment i.
func (z *zone) end(i int) int64 {
	if i+1 < len(z.segs) {
		return z.segs[i+1].start
	}
	return never
}

// wall is what a clock on the wall shows at an instant.
func (z *zone) wall(unix int64) int64 { return unix + z.segs[z.find(unix)].off }
