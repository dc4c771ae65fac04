package schedule

import (
	"slices"
	"strings"
	"time"
)

// ruleSet is a rule with its RDATEs and without its EXDATEs, all as wall times.
type ruleSet struct {
	rule   rrule
	rdate  []int64 // sorted
	exdate []int64 // sorted
	exday  []int64 // whole days, sorted
}

func (s *ruleSet) next(w int64) int64 {
	for {
		at := s.rule.next(w)
		if i, _ := slices.BinarySearch(s.rdate, w); i < len(s.rdate) {
			at = min(at, s.rdate[i])
		}
		if at == never {
			return never
		}
		// A rule of every second has 86,400 occurrences in one excluded day: leave the day as a whole.
		d, _ := splitDay(at)
		if _, out := slices.BinarySearch(s.exday, d); out {
			w = (d + 1) * day
		} else if _, out := slices.BinarySearch(s.exdate, at); out {
			w = at + 1
		} else {
			return at
		}
	}
}

func (s *ruleSet) prev(w int64) int64 {
	for {
		at := s.rule.prev(w)
		if i, _ := slices.BinarySearch(s.rdate, w+1); i > 0 {
			at = max(at, s.rdate[i-1])
		}
		if at == before {
			return before
		}
		d, _ := splitDay(at)
		if _, out := slices.BinarySearch(s.exday, d); out {
			w = d*day - 1
		} else if _, out := slices.BinarySearch(s.exdate, at); out {
			w = at - 1
		} else {
			return at
		}
	}
}

// property is one line of the text: NAME;PARAM=...:value.
type property struct {
	name, value string
	tzid        string
	isDate      bool // VALUE=DATE
}

// splitProperties is generous about how the lines are separated: by line ends, by the two characters \n (a line end
// that went through JSON or a shell once too often) or by spaces. A piece that does not begin with the name of a
// property continues the one before, which also undoes the folding of long lines.
func splitProperties(text string) ([]property, *Error) {
	var lines []string
	for _, piece := range strings.Fields(strings.ReplaceAll(text, `\n`, "\n")) {
		name := ""
		if i := strings.IndexAny(piece, ":;="); i >= 0 && piece[i] != '=' {
			name = strings.ToUpper(piece[:i])
		}
		switch name {
		case "DTSTART", "RRULE", "EXDATE", "RDATE":
			lines = append(lines, piece)
		case "EXRULE", "BEGIN", "END", "DTEND", "DURATION", "SUMMARY", "UID":
			return nil, scheduleError("use DTSTART, RRULE, RDATE and EXDATE", "%s is not supported", name)
		default:
			if len(lines) == 0 {
				return nil, scheduleError("write DTSTART:20270301T090000 RRULE:FREQ=...",
					"%s is not DTSTART, RRULE, RDATE or EXDATE", quote(piece))
			}
			lines[len(lines)-1] += piece
		}
	}
	props := make([]property, 0, len(lines))
	for _, line := range lines {
		p, err := parseProperty(line)
		if err != nil {
			return nil, err
		}
		props = append(props, p)
	}
	return props, nil
}

func parseProperty(line string) (property, *Error) {
	head, value, ok := strings.Cut(line, ":")
	if !ok {
		return property{}, scheduleError("write the value after a colon", "%s has no value", quote(line))
	}
	name, params, _ := strings.Cut(head, ";")
	p := property{name: strings.ToUpper(name), value: strings.ToUpper(value)}
	for _, param := range strings.Split(params, ";") {
		key, v, _ := strings.Cut(param, "=")
		v = strings.Trim(v, `"`)
		switch key = strings.ToUpper(key); {
		case key == "":
		case key == "TZID" && v != "" && p.name != "RRULE":
			p.tzid = v
		case key == "VALUE" && strings.EqualFold(v, "DATE"):
			p.isDate = true
		case key == "VALUE" && strings.EqualFold(v, "DATE-TIME"):
		default:
			return p, scheduleError("use TZID=Europe/London", "%s: %s is not supported", p.name, quote(param))
		}
	}
	return p, nil
}

// stamp is a date or a date and time of the text.
type stamp struct {
	wall   int64
	isDate bool
	isUTC  bool
}

func parseStamp(name, text string) (stamp, *Error) {
	local, isUTC := strings.CutSuffix(text, "Z")
	layout := "20060102T150405"
	if len(local) == 8 && !isUTC {
		layout = layout[:8]
	}
	// time.Parse alone would also take fractions of a second.
	t, err := time.Parse(layout, local)
	if err != nil || len(local) != len(layout) {
		return stamp{}, scheduleError("write 20270301T090000, with a Z at the end for UTC",
			"%s: %s is not a date and time", name, quote(text))
	}
	if t.Year() < minYear || t.Year() > maxYear {
		return stamp{}, scheduleError("", "%s: %s is outside the years %d to %d", name, quote(text), minYear, maxYear)
	}
	return stamp{t.Unix(), len(local) == 8, isUTC}, nil
}

// setRRule reads the text of a recurrence.
func (s *Schedule) setRRule(text, zoneName string, o Options) error {
	props, perr := splitProperties(text)
	if perr != nil {
		return perr
	}
	set := &ruleSet{}
	rule := ""
	var start *stamp
	for _, p := range props {
		switch {
		case p.name == "RRULE" && rule != "":
			return scheduleError("create one job for each", "there is more than one RRULE")
		case p.name == "RRULE":
			rule = p.value
		case p.name == "DTSTART" && start != nil:
			return scheduleError("keep one", "there is more than one DTSTART")
		case p.name == "DTSTART":
			st, err := parseStamp(p.name, p.value)
			if err != nil {
				return err
			}
			start = &st
			if err := s.setRuleZone(p, st, zoneName); err != nil {
				return err
			}
		}
	}
	if start == nil {
		return scheduleError("write DTSTART:20270301T090000 before the RRULE", "an RRULE needs a DTSTART to count from")
	}
	for _, p := range props {
		if p.name == "RDATE" || p.name == "EXDATE" {
			if err := s.addDates(set, p, *start); err != nil {
				return err
			}
		}
	}
	slices.Sort(set.rdate)
	slices.Sort(set.exdate)
	slices.Sort(set.exday)
	if err := s.parseRule(set, rule, start.wall); err != nil {
		return err
	}
	s.kind = RRule
	s.setWalls(set, set.rule.freq >= hourly, o)
	return nil
}

// setRuleZone takes the zone from DTSTART. As with the TZ= prefix it must not contradict the job's zone.
func (s *Schedule) setRuleZone(p property, st stamp, zoneName string) error {
	name := strings.TrimPrefix(p.tzid, "/")
	switch {
	case st.isUTC && name != "" && name != "UTC":
		return scheduleError("drop the Z or the TZID", "DTSTART: a time in UTC cannot have a TZID")
	case st.isUTC:
		name = "UTC"
		if zoneName != "" && len(s.zone.segs) == 1 && s.zone.segs[0].off == 0 {
			return nil // another name of UTC
		}
	case name == "":
		return nil
	}
	if zoneName != "" && zoneName != name {
		return &Error{"timezone", "DTSTART is in " + quote(name) + " and the job's timezone is " + quote(zoneName),
			"keep one of the two"}
	}
	z, err := loadZone(name)
	if err != nil {
		return err
	}
	s.zone = z
	return nil
}

// toWall is what the schedule's clock shows at a stamp that may be in UTC or in a zone of its own.
func (s *Schedule) toWall(st stamp, tzid string) (int64, error) {
	switch {
	case st.isUTC:
		return s.zone.wall(st.wall), nil
	case tzid != "" && tzid != s.zone.name:
		z, err := loadZone(strings.TrimPrefix(tzid, "/"))
		if err != nil {
			return 0, err
		}
		t := time.Unix(st.wall, 0).UTC()
		at := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, z.loc)
		return s.zone.wall(at.Unix()), nil
	}
	return st.wall, nil
}

func (s *Schedule) addDates(set *ruleSet, p property, start stamp) error {
	for _, text := range strings.Split(p.value, ",") {
		st, perr := parseStamp(p.name, text)
		if perr != nil {
			return perr
		}
		w := st.wall
		if !st.isDate {
			var err error
			if w, err = s.toWall(st, p.tzid); err != nil {
				return err
			}
		}
		switch {
		case p.name == "EXDATE" && st.isDate:
			set.exday = append(set.exday, w/day)
		case p.name == "EXDATE":
			set.exdate = append(set.exdate, w)
		case st.isDate && !start.isDate:
			return scheduleError("write 20270301T090000", "RDATE: %s has no time of day", quote(text))
		default:
			set.rdate = append(set.rdate, w)
		}
	}
	return nil
}
