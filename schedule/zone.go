package schedule

import (
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the binary must know the zones on a machine that does not
)

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
	if name == "" {
		name = "UTC"
	}
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
