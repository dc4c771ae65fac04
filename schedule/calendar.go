package schedule

import (
	"slices"
	"strings"
	"time"
)

// Calendar is a named set of days and hours in which jobs do not fire.
type Calendar struct {
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Timezone  string   `json:"timezone,omitempty"`
	Dates     []string `json:"dates,omitempty"`    // "2026-12-25" or yearly "12-25"
	Weekdays  []string `json:"weekdays,omitempty"` // "sat", "sun"
	Daily     []string `json:"daily,omitempty"`    // "22:00-06:00", wall clock, may cross midnight
	Windows   []Window `json:"windows,omitempty"`  // absolute [from, to)
}

// Window is a stretch of time from From up to but without To.
type Window struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Blackout is a compiled Calendar. It is immutable and safe for concurrent use.
type Blackout struct {
	zone    *zone
	days    []int64    // sorted
	yearly  [13]uint32 // by month, bits 1-31
	weekday uint8
	daily   []span   // of the day
	windows []Window // sorted, not touching each other
}

// span is [from, to) in seconds of the day.
type span struct{ from, to int64 }

// Compile checks a calendar. Field of its *Error is the calendar's field. The name is not looked at.
func (c Calendar) Compile() (*Blackout, error) {
	z, err := loadZone(c.Timezone)
	if err != nil {
		return nil, err
	}
	b := &Blackout{zone: z}
	for _, text := range c.Dates {
		if err := b.addDate(text); err != nil {
			return nil, err
		}
	}
	for _, text := range c.Weekdays {
		d := weekdayByName(text)
		if d < 0 {
			return nil, &Error{"weekdays", "unknown weekday " + quote(text), "use mon, tue, wed, thu, fri, sat or sun"}
		}
		b.weekday |= 1 << d
	}
	for _, text := range c.Daily {
		if err := b.addDaily(text); err != nil {
			return nil, err
		}
	}
	for _, w := range c.Windows {
		if !w.From.Before(w.To) {
			return nil, &Error{"windows", "a window ends before it begins", "from must be before to"}
		}
		b.windows = append(b.windows, Window{w.From.UTC(), w.To.UTC()})
	}
	slices.Sort(b.days)
	b.joinDaily()
	b.joinWindows()
	// A job that never leaves its calendar would look for a next run for ever.
	if b.weekday == 0x7f {
		return nil, &Error{"weekdays",
			"the calendar blocks every day of the week", "pause the jobs instead, or use a window"}
	}
	if len(b.daily) == 1 && b.daily[0] == (span{0, day}) {
		return nil, &Error{"daily",
			"the calendar blocks the whole day, every day", "pause the jobs instead, or use a window"}
	}
	return b, nil
}

// addDate reads "2026-12-25" or "12-25".
func (b *Blackout) addDate(text string) error {
	if t, err := time.Parse("2006-01-02", text); err == nil {
		d, _ := splitDay(t.Unix())
		b.days = append(b.days, d)
		return nil
	}
	// A leap year, so that 02-29 is a date.
	if t, err := time.Parse("2006-01-02", "2000-"+text); err == nil {
		b.yearly[t.Month()] |= 1 << t.Day()
		return nil
	}
	return &Error{"dates", quote(text) + " is not a date", "write 2026-12-25, or 12-25 for every year"}
}

func (b *Blackout) addDaily(text string) error {
	low, high, ok := strings.Cut(text, "-")
	from, ok1 := clockTime(strings.TrimSpace(low))
	to, ok2 := clockTime(strings.TrimSpace(high))
	switch {
	case !ok || !ok1 || !ok2 || from == day:
		return &Error{"daily", quote(text) + " is not a range of times", "write 22:00-06:00"}
	case from == to:
		return &Error{"daily", quote(text) + " is empty", "write 00:00-24:00 for a whole day"}
	case from < to:
		b.daily = append(b.daily, span{from, to})
	default:
		b.daily = append(b.daily, span{from, day})
		if to > 0 {
			b.daily = append(b.daily, span{0, to})
		}
	}
	return nil
}

// clockTime reads 00:00 to 24:00 as a second of the day.
func clockTime(s string) (int64, bool) {
	h, m, ok := strings.Cut(s, ":")
	hour, ok1 := number(h)
	minute, ok2 := number(m)
	if !ok || !ok1 || !ok2 || len(h) > 2 || len(m) != 2 || minute > 59 || hour > 24 || hour == 24 && minute > 0 {
		return 0, false
	}
	return int64(hour)*3600 + int64(minute)*60, true
}

// weekdayByName takes a weekday by its English name or the first three letters of it; -1 if it is none.
func weekdayByName(s string) int {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if name := d.String(); strings.EqualFold(s, name) || strings.EqualFold(s, name[:3]) {
			return int(d)
		}
	}
	return -1
}

func (b *Blackout) joinDaily() {
	slices.SortFunc(b.daily, func(x, y span) int { return int(x.from - y.from) })
	joined := b.daily[:0]
	for _, s := range b.daily {
		if n := len(joined); n > 0 && s.from <= joined[n-1].to {
			joined[n-1].to = max(joined[n-1].to, s.to)
		} else {
			joined = append(joined, s)
		}
	}
	b.daily = joined
}

func (b *Blackout) joinWindows() {
	slices.SortFunc(b.windows, func(x, y Window) int { return x.From.Compare(y.From) })
	joined := b.windows[:0]
	for _, w := range b.windows {
		if n := len(joined); n > 0 && !w.From.After(joined[n-1].To) {
			if w.To.After(joined[n-1].To) {
				joined[n-1].To = w.To
			}
		} else {
			joined = append(joined, w)
		}
	}
	b.windows = joined
}

// Contains reports whether a job may not fire at a time.
func (b *Blackout) Contains(t time.Time) bool {
	// The last window that has begun is the only one that can contain t.
	i, found := slices.BinarySearchFunc(b.windows, t, func(w Window, t time.Time) int { return w.From.Compare(t) })
	if found || i > 0 && t.Before(b.windows[i-1].To) {
		return true
	}
	d, sod := splitDay(b.zone.wall(floorDiv(floorMilli(t), 1000)))
	if b.weekday>>weekday(d)&1 != 0 {
		return true
	}
	if _, found := slices.BinarySearch(b.days, d); found {
		return true
	}
	for _, s := range b.daily {
		if s.from <= sod && sod < s.to {
			return true
		}
	}
	if b.yearly == [13]uint32{} {
		return false
	}
	return b.onYearly(d)
}

func (b *Blackout) onYearly(d int64) bool {
	_, month, dom := civil(d)
	return b.yearly[month]>>dom&1 != 0
}

// Until is a time after t before which no job may fire; t itself if one may fire then. More may be forbidden from there
// on: a caller that looks for the end asks again. Each answer leaves a window, a day or a stretch of one behind, except
// around a change of the clocks.
func (b *Blackout) Until(t time.Time) time.Time {
	end := t
	i, found := slices.BinarySearchFunc(b.windows, t, func(w Window, t time.Time) int { return w.From.Compare(t) })
	if found {
		i++
	}
	if i > 0 && t.Before(b.windows[i-1].To) {
		end = b.windows[i-1].To
	}
	unix := floorDiv(floorMilli(t), 1000)
	wall := b.zone.wall(unix)
	d, sod := splitDay(wall)
	left := int64(0) // seconds of wall clock
	for _, s := range b.daily {
		if s.from <= sod && sod < s.to {
			left = s.to - sod
		}
	}
	_, dated := slices.BinarySearch(b.days, d)
	if dated || b.weekday>>weekday(d)&1 != 0 || b.onYearly(d) {
		left = day - sod
	}
	// If the clocks change on the way, the wall clock is not a measure: go only as far as it is.
	for left > 1 && b.zone.wall(unix+left) != wall+left {
		left /= 2
	}
	if to := time.Unix(unix+left, 0); left > 0 && to.After(end) {
		end = to
	}
	return end
}
