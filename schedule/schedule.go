package schedule

import (
	"strings"
	"time"
)

// Kind is the form of a schedule.
type Kind uint8

const (
	Cron    Kind = iota // "0 9 * * MON-FRI", "@daily"
	Every               // "@every 90s"
	RRule               // "DTSTART:... RRULE:..."
	Instant             // "2027-03-01T09:00:00Z"
	Manual              // "@manual"
)

func (k Kind) String() string {
	switch k {
	case Cron:
		return "cron"
	case Every:
		return "every"
	case RRule:
		return "rrule"
	case Instant:
		return "instant"
	case Manual:
		return "manual"
	}
	return "unknown"
}

// Options are the parts of a job's schedule that are not in the expression. The zero value works.
type Options struct {
	Zone    string        // IANA name; "" = UTC
	Gap     string        // dst_gap: "" or "run_after" | "skip"
	Overlap string        // dst_overlap: "" (rule J3) | "first" | "both"
	Seed    uint64        // the job's id: H fields, @every phase and jitter are stable hashes of it
	Jitter  time.Duration // stable delay in [0, Jitter)

	StartAt, EndAt time.Time // zero = none; fire times t satisfy StartAt <= t <= EndAt
}

// Schedule is a parsed schedule. It is immutable and safe for concurrent use.
type Schedule struct {
	kind  Kind
	zone  *zone
	clock clock         // Cron and RRule
	step  int64         // Every: the interval in ms
	at    int64         // Every: the phase of its grid, Instant: the instant; Unix ms
	lo    int64         // no fire time before, Unix ms
	hi    int64         // no fire time after, Unix ms
	delay time.Duration // jitter
	byJob bool          // other seeds have other nominal times
}

const (
	maxExpr  = 64 << 10 // a long list of EXDATEs fits; nothing sensible is longer
	maxEvery = 10 * 366 * 24 * time.Hour
)

// Parse reads a schedule. It refuses, with an *Error, what is malformed and what can never fire.
func Parse(expr string, o Options) (*Schedule, error) {
	if len(expr) > maxExpr {
		return nil, scheduleError("", "the schedule is longer than %d bytes", maxExpr)
	}
	expr = strings.TrimSpace(expr)
	expr, zoneName, err := cutZone(expr, o.Zone)
	if err != nil {
		return nil, err
	}
	s := &Schedule{lo: 0, hi: maxUnix * 1000}
	if s.zone, err = loadZone(zoneName); err != nil {
		return nil, err
	}
	if err := s.setOptions(o); err != nil {
		return nil, err
	}
	if err := s.setExpr(expr, zoneName, o); err != nil {
		return nil, err
	}
	if s.kind != Manual {
		if err := s.mustFire(o); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// cutZone takes a "TZ=Zone " or "CRON_TZ=Zone " prefix off the expression. It must not contradict the job's zone:
// whichever won, a reader of the other one would be wrong by hours.
func cutZone(expr, zone string) (rest, name string, err error) {
	text, ok := strings.CutPrefix(expr, "CRON_TZ=")
	if !ok {
		if text, ok = strings.CutPrefix(expr, "TZ="); !ok {
			return expr, zone, nil
		}
	}
	end := strings.IndexAny(text, " \t\r\n")
	if end < 0 {
		return "", "", scheduleError("write the schedule after the zone, as in \"TZ=Europe/London 0 9 * * *\"",
			"there is only a time zone, no schedule")
	}
	name = text[:end]
	if name == "" {
		return "", "", &Error{"timezone", "the TZ= prefix names no time zone", "use an IANA name such as Europe/London"}
	}
	if zone != "" && zone != name {
		return "", "", &Error{"timezone",
			"the schedule says " + quote(name) + " and the job's timezone says " + quote(zone), "keep one of the two"}
	}
	return strings.TrimSpace(text[end:]), name, nil
}

func (s *Schedule) setOptions(o Options) error {
	switch o.Gap {
	case "", "run_after":
	case "skip":
		s.clock.skipGap = true
	default:
		return &Error{"dst_gap", "unknown value " + quote(o.Gap), "use run_after or skip"}
	}
	switch o.Overlap {
	case "", "first", "both":
	default:
		return &Error{"dst_overlap", "unknown value " + quote(o.Overlap), "use first or both, or leave it out"}
	}
	if o.Jitter < 0 {
		return &Error{"jitter", "jitter is negative", "use a duration such as 30m"}
	}
	if o.Jitter > 0 {
		// Whole milliseconds: a run's identity has no finer time.
		s.delay = time.Duration(spread(o.Seed, saltJitter, uint64(o.Jitter))).Truncate(time.Millisecond)
	}
	if !o.StartAt.IsZero() && !o.EndAt.IsZero() && o.StartAt.After(o.EndAt) {
		return &Error{"end_at", "end_at is before start_at", "choose a later end_at or an earlier start_at"}
	}
	if !o.StartAt.IsZero() {
		s.lo = max(s.lo, ceilMilli(o.StartAt))
	}
	if !o.EndAt.IsZero() {
		s.hi = min(s.hi, floorMilli(o.EndAt))
	}
	return nil
}

// setExpr finds out which form the expression has.
func (s *Schedule) setExpr(expr, zoneName string, o Options) error {
	lower := strings.ToLower(expr)
	switch {
	case expr == "":
		return scheduleError("use a cron expression, @every, an RRULE, an RFC 3339 instant or @manual",
			"the schedule is empty")
	case strings.Contains(lower, "rrule:"):
		return s.setRRule(expr, zoneName, o)
	case strings.Contains(lower, "freq="):
		return scheduleError("write DTSTART:20270301T090000 RRULE:FREQ=...",
			"a recurrence rule needs the words DTSTART: and RRULE:")
	case lower == "@manual":
		s.kind = Manual
		return nil
	case lower == "@every" || strings.HasPrefix(lower, "@every "):
		return s.setEvery(strings.TrimSpace(lower[len("@every"):]), o)
	case lower[0] == '@':
		text, ok := macros[lower]
		if !ok {
			return scheduleError("use @hourly, @daily, @weekly, @monthly, @yearly, @every 90s or @manual",
				"unknown schedule %s", quote(expr))
		}
		return s.setCron(text, o)
	case len(expr) > 4 && expr[4] == '-' && strings.Trim(expr[:4], "0123456789") == "":
		return s.setInstant(expr)
	case expr[0] == '+' || strings.HasPrefix(lower, "in "):
		return scheduleError("write the instant itself, as in 2027-03-01T09:00:00Z (the command line "+
			"does that for you)", "a time relative to now cannot be stored")
	}
	return s.setCron(expr, o)
}

func (s *Schedule) setCron(expr string, o Options) error {
	f, err := parseCron(expr)
	if err != nil {
		return err
	}
	c := f.compile(o.Seed)
	s.kind = Cron
	s.byJob = f.hashed()
	s.setWalls(c, c.interval, o)
	return nil
}

func (s *Schedule) setWalls(w walls, interval bool, o Options) {
	s.clock.walls, s.clock.zone = w, s.zone
	s.clock.both = o.Overlap == "both" || o.Overlap == "" && interval
}

func (s *Schedule) setEvery(text string, o Options) error {
	const remedy = "use a Go duration of at least one second, as in @every 90s or @every 1h30m"
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return scheduleError(remedy, "@every: %s is not a duration", quote(text))
	case d < time.Second:
		return scheduleError(remedy, "@every: %s is shorter than one second", quote(text))
	case d > maxEvery:
		return scheduleError("", "@every: %s is longer than ten years", quote(text))
	case d%time.Millisecond != 0:
		return scheduleError(remedy, "@every: %s is not a whole number of milliseconds", quote(text))
	}
	s.kind = Every
	s.step = d.Milliseconds()
	if o.StartAt.IsZero() {
		// Thousands of jobs created together must not fire together.
		s.at = int64(spread(o.Seed, saltEvery, uint64(s.step)))
		s.byJob = true
	} else {
		s.at = floorMod(ceilMilli(o.StartAt), s.step)
	}
	return nil
}

func (s *Schedule) setInstant(expr string) error {
	t, err := time.Parse(time.RFC3339, strings.ToUpper(expr))
	if err != nil {
		return scheduleError("write it as 2027-03-01T09:00:00Z or 2027-03-01T09:00:00-05:00",
			"%s is not an RFC 3339 instant with an offset", quote(expr))
	}
	if y := t.UTC().Year(); y < minYear || y > maxYear {
		return scheduleError("", "%s is outside the years %d to %d", quote(expr), minYear, maxYear)
	}
	s.kind = Instant
	s.at = floorMilli(t)
	return nil
}

// mustFire refuses a schedule without a single fire time. Such a job would be silent for ever.
func (s *Schedule) mustFire(o Options) error {
	if _, ok := s.next(s.lo); ok {
		return nil
	}
	all := *s
	all.lo, all.hi = 0, maxUnix*1000
	if _, ok := all.next(0); !ok {
		return scheduleError("check day, month and weekday against each other",
			"the schedule never fires: no date matches it")
	}
	if o.EndAt.IsZero() {
		return &Error{"start_at", "the schedule does not fire after start_at", "choose an earlier start_at"}
	}
	return &Error{"end_at", "the schedule does not fire between start_at and end_at", "choose a later end_at"}
}

// Kind is the form of the expression.
func (s *Schedule) Kind() Kind { return s.kind }

// ByJob says that the nominal times depend on the seed: it has an H, or is an @every without a start.
func (s *Schedule) ByJob() bool { return s.byJob }

// Delay is the jitter of this schedule's seed: how long after each nominal time the job really starts.
func (s *Schedule) Delay() time.Duration { return s.delay }

// Next is the first nominal fire time strictly after a time, in UTC. It is false if there is none up to the year 2200.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	ms, ok := s.next(floorMilli(after) + 1)
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(ms).UTC(), true
}

// Prev is the last nominal fire time at or before a time, in UTC.
func (s *Schedule) Prev(at time.Time) (time.Time, bool) {
	ms, ok := s.prev(floorMilli(at))
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(ms).UTC(), true
}

// Skipped says that an occurrence does not run because its wall time does not exist: the clock goes ahead over it, and
// dst_gap is skip. Its instant is where the clock goes on.
func (s *Schedule) Skipped(at time.Time) bool {
	return (s.kind == Cron || s.kind == RRule) && s.clock.skipped(at.Unix())
}

// next is the first fire time at or after ms.
func (s *Schedule) next(ms int64) (int64, bool) {
	ms = max(ms, s.lo)
	if ms > s.hi {
		return 0, false
	}
	switch s.kind {
	case Cron, RRule:
		ms = s.clock.next((ms+999)/1000) * 1000
	case Every:
		ms += floorMod(s.at-ms, s.step)
	case Instant:
		if ms > s.at {
			return 0, false
		}
		ms = s.at
	default:
		return 0, false
	}
	return ms, ms <= s.hi
}

// prev is the last fire time at or before ms.
func (s *Schedule) prev(ms int64) (int64, bool) {
	ms = min(ms, s.hi)
	if ms < s.lo {
		return 0, false
	}
	switch s.kind {
	case Cron, RRule:
		ms = s.clock.prev(ms/1000) * 1000
	case Every:
		ms -= floorMod(ms-s.at, s.step)
	case Instant:
		if ms < s.at {
			return 0, false
		}
		ms = s.at
	default:
		return 0, false
	}
	return ms, ms >= s.lo
}

// Count counts the nominal fire times in (after, until], at most limit of them; more says that there are others.
func (s *Schedule) Count(after, until time.Time, limit int) (n int, more bool) {
	first := floorMilli(after) + 1
	last, ok := s.prev(floorMilli(until))
	if !ok || last < first {
		return 0, false
	}
	limit = max(limit, 0)
	if s.kind == Every {
		at, _ := s.next(first)
		total := (last-at)/s.step + 1
		return int(min(total, int64(limit))), total > int64(limit)
	}
	for {
		at, ok := s.next(first)
		if !ok || at > last {
			return n, false
		}
		if n == limit {
			return n, true
		}
		n++
		first = at + 1
	}
}

// floorMilli is a time in Unix milliseconds, rounded down and kept where arithmetic on it cannot overflow.
func floorMilli(t time.Time) int64 {
	switch sec := t.Unix(); {
	case sec > maxUnix+day:
		return (maxUnix + day) * 1000
	case sec < -day:
		return -day * 1000
	}
	return t.UnixMilli()
}

func ceilMilli(t time.Time) int64 {
	ms := floorMilli(t)
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// Error says what is wrong with one field of a schedule or a calendar, and what to write instead.
type Error struct {
	Field  string // the job's field: "schedule", "timezone", "dst_gap", ...; for a calendar its own field
	Msg    string
	Remedy string
}

func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Remedy
}

// Salts keep the values drawn from one seed independent of each other. The numbers are part of the format: changing
// one moves the fire times of every existing job that uses H, @every or jitter.
const (
	saltSecond uint64 = 1 + iota
	saltMinute
	saltHour
	saltDom
	saltMonth
	saltDow
	saltEvery
	saltJitter
)

// spread draws a number in [0, n) from a seed. Job ids are dense small numbers, so the seed is mixed (splitmix64)
// before the remainder is taken: neighbours must not land next to each other.
func spread(seed, salt, n uint64) uint64 {
	x := seed + salt*0x9e3779b97f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return x % n
}
