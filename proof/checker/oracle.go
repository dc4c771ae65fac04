package checker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/teambition/rrule-go"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// oracle knows the occurrences of one definition. It lists the wall times that an expression names, day by day, and
// puts them on the time line by the rules of dst_gap and dst_overlap. It is slow and shares nothing with package
// schedule but the stable hash, which is part of the stored format.
type oracle struct {
	// wall times in [from, to), seconds since 1970 as if the zone were UTC, sorted
	walls          func(from, to int64) []int64
	loc            *time.Location
	skipGap, both  bool
	every, phase   int64 // @every, in ms
	instant        int64 // a one-off
	manual         bool
	lo, hi         int64 // start_at and end_at
	delay          int64 // jitter, in ms
	cachedFrom, to int64 // what cache covers
	cache          []int64
}

// far is when the oracle stops looking for a next occurrence.
const far = 3 * 366 * 24 * time.Hour

// The salts of the stable hash, as package schedule documents them.
const (
	saltSecond = 1 + iota
	saltMinute
	saltHour
	saltDom
	saltMonth
	saltDow
	saltEvery
	saltJitter
)

// draw is the stable hash (splitmix64's finalizer).
func draw(seed, salt, n uint64) uint64 {
	z := seed + salt*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) % n
}

func newOracle(spec *job.Spec, id job.ID) (*oracle, error) {
	o := &oracle{lo: 0, hi: math.MaxInt64 / 4, skipGap: spec.DSTGap == "skip"}
	if spec.StartAt != 0 {
		o.lo = int64(spec.StartAt)
	}
	if spec.EndAt != 0 {
		o.hi = int64(spec.EndAt)
	}
	if spec.Jitter > 0 {
		o.delay = time.Duration(draw(uint64(id), saltJitter, uint64(spec.Jitter))).Milliseconds()
	}
	expr, zone := strings.TrimSpace(spec.Schedule), spec.Timezone
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		if rest, ok := strings.CutPrefix(expr, prefix); ok {
			zone, expr, _ = strings.Cut(rest, " ")
			expr = strings.TrimSpace(expr)
			break
		}
	}
	var err error
	if zone == "" {
		zone = "UTC"
	}
	if o.loc, err = time.LoadLocation(zone); err != nil {
		return nil, err
	}
	lower := strings.ToLower(expr)
	interval := false
	switch {
	case lower == "@manual":
		o.manual = true
		return o, nil
	case strings.HasPrefix(lower, "@every"):
		d, err := time.ParseDuration(strings.TrimSpace(lower[len("@every"):]))
		if err != nil {
			return nil, err
		}
		o.every = d.Milliseconds()
		if spec.StartAt != 0 {
			o.phase = int64(spec.StartAt) % o.every
		} else {
			o.phase = int64(draw(uint64(id), saltEvery, uint64(o.every)))
		}
		return o, nil
	case strings.Contains(lower, "rrule:"):
		interval, err = o.setRule(expr)
	default:
		if t, e := time.Parse(time.RFC3339, strings.ToUpper(expr)); e == nil {
			o.instant = t.UnixMilli()
			return o, nil
		}
		interval, err = o.setCron(expr, uint64(id))
	}
	o.both = spec.DSTOverlap == "both" || spec.DSTOverlap == "" && interval
	return o, err
}

// setRule lists the wall times of a recurrence by the library.
func (o *oracle) setRule(text string) (interval bool, err error) {
	const layout = "20060102T150405"
	var opt *rrule.ROption
	var start time.Time
	var extra, not []time.Time
	notDay := map[string]bool{}
	wall := func(v string) (time.Time, error) {
		if z, ok := strings.CutSuffix(v, "Z"); ok {
			t, err := time.Parse(layout, z)
			t = t.In(o.loc)
			return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC), err
		}
		if len(v) == 8 {
			return time.Parse(layout[:8], v)
		}
		return time.Parse(layout, v)
	}
	for _, line := range strings.Fields(strings.ReplaceAll(text, `\n`, "\n")) {
		head, value, _ := strings.Cut(line, ":")
		name, params, _ := strings.Cut(strings.ToUpper(head), ";")
		if name == "DTSTART" {
			if _, tz, ok := strings.Cut(head, "TZID="); ok && params != "" {
				if o.loc, err = time.LoadLocation(tz); err != nil {
					return false, err
				}
			} else if strings.HasSuffix(value, "Z") {
				o.loc = time.UTC
			}
			if start, err = wall(value); err != nil {
				return false, err
			}
		}
	}
	for _, line := range strings.Fields(strings.ReplaceAll(text, `\n`, "\n")) {
		head, value, _ := strings.Cut(line, ":")
		name, _, _ := strings.Cut(strings.ToUpper(head), ";")
		switch name {
		case "RRULE":
			if opt, err = rrule.StrToROption(value); err != nil {
				return false, err
			}
		case "RDATE", "EXDATE":
			for _, v := range strings.Split(value, ",") {
				t, err := wall(v)
				switch {
				case err != nil:
					return false, err
				case name == "RDATE":
					extra = append(extra, t)
				case len(v) == 8:
					notDay[v] = true
				default:
					not = append(not, t)
				}
			}
		}
	}
	if opt == nil || start.IsZero() {
		return false, fmt.Errorf("%q has no RRULE or no DTSTART", text)
	}
	if !opt.Until.IsZero() {
		if _, v, ok := strings.Cut(strings.ToUpper(text), "UNTIL="); ok {
			v, _, _ = strings.Cut(v, ";")
			if opt.Until, err = wall(strings.Fields(v)[0]); err != nil {
				return false, err
			}
			if len(strings.Fields(v)[0]) == 8 {
				opt.Until = opt.Until.Add(24*time.Hour - time.Second)
			}
		}
	}
	opt.Dtstart = start
	r, err := rrule.NewRRule(*opt)
	if err != nil {
		return false, err
	}
	o.walls = func(from, to int64) []int64 {
		var out []int64
		add := func(t time.Time) {
			if u := t.Unix(); u >= from && u < to && !slices.Contains(not, t) && !notDay[t.Format(layout[:8])] {
				out = append(out, u)
			}
		}
		for _, t := range r.Between(time.Unix(from, 0).UTC(), time.Unix(to, 0).UTC(), true) {
			add(t)
		}
		for _, t := range extra {
			add(t)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return opt.Freq >= rrule.HOURLY, nil
}

// between are the occurrences in [from, to], in ms.
func (o *oracle) between(from, to int64) []int64 {
	from, to = max(from, o.lo), min(to, o.hi)
	var out []int64
	switch {
	case from > to || o.manual:
	case o.every > 0:
		for t := from + ((o.phase-from)%o.every+o.every)%o.every; t <= to; t += o.every {
			out = append(out, t)
		}
	case o.walls == nil:
		if from <= o.instant && o.instant <= to {
			out = append(out, o.instant)
		}
	default:
		for _, u := range o.fires((from+999)/1000, to/1000) {
			out = append(out, u*1000)
		}
	}
	return out
}

// fires puts wall times onto the time line: instants in [from, to], in seconds.
func (o *oracle) fires(from, to int64) []int64 {
	var out []int64
	// Begin before any change of the clocks that may still matter.
	at := time.Unix(from, 0).Add(-50 * time.Hour).In(o.loc)
	shown := int64(math.MinInt64) // the highest wall time shown so far, plus one
	for at.Unix() <= to {
		_, off := at.Zone()
		_, end := at.ZoneBounds()
		last := to + 1
		if !end.IsZero() {
			last = min(last, end.Unix())
		}
		begin := at.Unix()
		fire := func(u int64) {
			if u >= from && u <= to && (len(out) == 0 || out[len(out)-1] < u) {
				out = append(out, u)
			}
		}
		if shown != math.MinInt64 && begin+int64(off) > shown && len(o.walls(shown, begin+int64(off))) > 0 {
			fire(begin) // with skipGap as well, but then it does not run
		}
		for _, w := range o.walls(begin+int64(off), last+int64(off)) {
			if w < shown && !o.both {
				continue
			}
			fire(w - int64(off))
		}
		shown = max(shown, last+int64(off))
		at = time.Unix(last, 0).In(o.loc)
	}
	return out
}

// skipped says that an occurrence is only there for wall times that do not exist, and that those do not run.
func (o *oracle) skipped(at int64) bool {
	t := time.UnixMilli(at).In(o.loc)
	if begin, _ := t.ZoneBounds(); !o.skipGap || o.walls == nil || !begin.Equal(t) {
		return false
	}
	_, before := t.Add(-time.Millisecond).Zone()
	_, after := t.Zone()
	wall := t.Unix() + int64(after)
	return after > before && len(o.walls(t.Unix()+int64(before), wall)) > 0 && len(o.walls(wall, wall+1)) == 0
}

// running are the occurrences in [from, to] that may run.
func (o *oracle) running(from, to int64) []int64 {
	return slices.DeleteFunc(o.between(from, to), o.skipped)
}

// next is the first occurrence after a time; 0 if there is none that the oracle could find.
func (o *oracle) next(after int64) int64 {
	switch {
	case o.manual:
		return 0
	case o.every == 0 && o.walls == nil:
		if o.instant > after && o.instant >= o.lo && o.instant <= o.hi {
			return o.instant
		}
		return 0
	case o.every > 0:
		lo := max(after+1, o.lo)
		if t := lo + ((o.phase-lo)%o.every+o.every)%o.every; t <= o.hi {
			return t
		}
		return 0
	}
	if o.cache == nil || after < o.cachedFrom || after >= o.to {
		o.cachedFrom = after - 6*3600_000 // the time shortly before will be asked for
		o.to, o.cache = o.cachedFrom, []int64{}
	}
	for step := int64(7 * time.Hour / time.Millisecond); ; step *= 2 {
		if i, _ := slices.BinarySearch(o.cache, after+1); i < len(o.cache) {
			return o.cache[i]
		}
		if o.to-after > far.Milliseconds() || o.to > o.hi {
			return 0
		}
		o.cache = append(o.cache, o.between(o.to+1, o.to+step)...)
		o.to += step
	}
}

// last is the last occurrence in [from, to]; 0 if there is none.
func (o *oracle) last(from, to int64) int64 {
	at := int64(0)
	for t := o.next(from - 1); t != 0 && t <= to; t = o.next(t) {
		at = t
	}
	return at
}

// oneOff says that the definition has a single instant.
func (o *oracle) oneOff() bool { return !o.manual && o.every == 0 && o.walls == nil }

// forbids says whether a calendar forbids an instant, by looking at each of its lines in turn.
func forbids(c *schedule.Calendar, at int64) bool {
	loc, err := time.LoadLocation(c.Timezone)
	if err != nil {
		return false
	}
	t := time.UnixMilli(at).In(loc)
	for _, d := range c.Dates {
		if d == t.Format("2006-01-02") || d == t.Format("01-02") {
			return true
		}
	}
	for _, d := range c.Weekdays {
		if strings.EqualFold(d, t.Format("Mon")) || strings.EqualFold(d, t.Format("Monday")) {
			return true
		}
	}
	minute := t.Hour()*60 + t.Minute()
	for _, d := range c.Daily {
		var h1, m1, h2, m2 int
		if _, err := fmt.Sscanf(strings.ReplaceAll(d, " ", ""), "%d:%d-%d:%d", &h1, &m1, &h2, &m2); err != nil {
			continue
		}
		from, to := h1*60+m1, h2*60+m2
		if from < to && from <= minute && minute < to || from >= to && (minute >= from || minute < to) {
			return true
		}
	}
	for _, w := range c.Windows {
		if !t.Before(w.From) && t.Before(w.To) {
			return true
		}
	}
	return false
}
