package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A cron expression is parsed into fields of terms, which Describe reads and compile turns into bits.

type termKind uint8

const (
	termAny     termKind = iota // * or ?, perhaps with a step
	termValue                   // 5
	termRange                   // 1-5, 1-5/2, 3/10 (to the end of the field); may wrap around: FRI-MON
	termHash                    // H, H(1-5), H/10, H(0-29)/10
	termLast                    // day of month: L, L-3
	termLastW                   // day of month: LW, L-3W
	termNearest                 // day of month: 15W
	termNth                     // day of week: 5#3
	termLastDow                 // day of week: 5L
)

type term struct {
	kind termKind
	a, b int // the values; for L the days before the last; for # the weekday and its number
	step int // 0 = none
}

type fieldSpec struct {
	name     string
	min, max int
	size     int // how many different values there are: steps beyond it make no sense
	names    []string
	salt     uint64
	hashMax  int // H in the day of the month stays within what every month has
	help     string
}

const (
	fSecond = iota
	fMinute
	fHour
	fDom
	fMonth
	fDow
)

var (
	monthNames = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	dayNames   = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

var fieldSpecs = [6]fieldSpec{
	fSecond: {"second", 0, 59, 60, nil, saltSecond, 59, "use 0-59, *, a range 0-30, a step */10, a list 0,30 or H"},
	fMinute: {"minute", 0, 59, 60, nil, saltMinute, 59, "use 0-59, *, a range 0-30, a step */10, a list 0,30 or H"},
	fHour:   {"hour", 0, 23, 24, nil, saltHour, 23, "use 0-23, *, a range 9-17, a step */2, a list 8,20 or H"},
	fDom: {"day of month", 1, 31, 31, nil, saltDom, 28,
		"use 1-31, *, ?, a range 1-7, a list 1,15, L, L-3, 15W, LW or H"},
	fMonth: {"month", 1, 12, 12, monthNames, saltMonth, 12, "use 1-12, JAN-DEC, *, a range, a step */3, a list or H"},
	fDow: {"day of week", 0, 7, 7, dayNames, saltDow, 6,
		"use 0-7 (0 and 7 are Sunday), SUN-SAT, *, ?, a range MON-FRI, a list, 5L (last Friday), 5#2 " +
			"(second Friday) or H"},
}

var macros = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

func scheduleError(remedy, format string, args ...any) *Error {
	return &Error{"schedule", fmt.Sprintf(format, args...), remedy}
}

// quote shows a user's text in an error: short, and without control characters.
func quote(s string) string {
	if len(s) > 40 {
		s = s[:37] + "..."
	}
	return strconv.Quote(s)
}

// cronFields is a parsed expression: second, minute, hour, day of month, month, day of week.
type cronFields [6][]term

func parseCron(expr string) (*cronFields, *Error) {
	parts := strings.Fields(expr)
	var own struct { // most fields have one term: all of them are allocated together
		cronFields
		terms [6]term
	}
	f := &own.cronFields
	for i := range f {
		f[i] = own.terms[i : i : i+1]
	}
	switch len(parts) {
	case 5:
		f[fSecond] = append(f[fSecond], term{kind: termValue})
	case 6:
	case 7:
		return nil, scheduleError("drop the last field and use start_at and end_at",
			"a cron expression with a year field is not supported")
	default:
		return nil, scheduleError(
			"write minute, hour, day of month, month and day of week, as in \"0 9 * * MON-FRI\", with seconds first "+
				"if there are six; for an interval, \"@every 5s\"",
			"a cron expression has 5 or 6 fields, this one has %d", len(parts))
	}
	first := 6 - len(parts)
	for i, text := range parts {
		terms, err := parseField(f[first+i], first+i, strings.ToUpper(text))
		if err != nil {
			return nil, err
		}
		f[first+i] = terms
	}
	return f, nil
}

// parseField appends the terms of a field.
func parseField(terms []term, field int, text string) ([]term, *Error) {
	for more := true; more; {
		var item string
		item, text, more = strings.Cut(text, ",")
		t, why := parseTerm(field, item)
		if why != "" {
			spec := &fieldSpecs[field]
			return nil, scheduleError(spec.help, "%s field: %s %s", spec.name, quote(item), why)
		}
		terms = append(terms, t)
	}
	if len(terms) > 1 {
		for _, t := range terms {
			// "*,5" is everything, yet it would count as a wildcard for one rule and as a list for another.
			if t.kind == termAny {
				spec := &fieldSpecs[field]
				return nil, scheduleError("write it alone", "%s field: * or ? cannot be part of a list", spec.name)
			}
		}
	}
	return terms, nil
}

// parseTerm reads one item of a list. The second result says what is wrong with it, "" if nothing is.
func parseTerm(field int, item string) (term, string) {
	spec := &fieldSpecs[field]
	if item == "" {
		return term{}, "is empty"
	}
	body, stepText, stepped := strings.Cut(item, "/")
	step := 0
	if stepped {
		n, ok := number(stepText)
		if !ok || n == 0 {
			return term{}, "has a step that is not a number from 1 up"
		}
		if n > spec.size {
			return term{}, fmt.Sprintf("has a step beyond the %d values of the field (for longer "+
				"intervals there is @every)", spec.size)
		}
		step = n
	}
	if t, why, ok := parseSpecial(field, body); ok {
		if why == "" && stepped && t.kind != termHash && (t.kind != termAny || body == "?") {
			why = "cannot have a step"
		}
		if why == "" && t.kind == termHash && step > t.b-t.a+1 {
			why = "has a step beyond its range"
		}
		t.step = step
		return t, why
	}
	low, high, isRange := strings.Cut(body, "-")
	a, why := value(spec, low)
	if why != "" {
		return term{}, why
	}
	switch {
	case isRange:
		b, why := value(spec, high)
		return term{termRange, a, b, step}, why
	case stepped:
		end := spec.max
		if field == fDow {
			a, end = a%7, 6
		}
		return term{termRange, a, end, step}, ""
	}
	return term{kind: termValue, a: a, b: a}, ""
}

// parseSpecial reads what is neither a value nor a range; ok is false for those.
func parseSpecial(field int, s string) (t term, why string, ok bool) {
	spec := &fieldSpecs[field]
	switch {
	case s == "*":
		return term{kind: termAny}, "", true
	case s == "?":
		if field != fDom && field != fDow {
			return term{}, "is only for the day fields", true
		}
		return term{kind: termAny}, "", true
	case s == "H":
		return term{kind: termHash, a: spec.min, b: spec.hashMax}, "", true
	case strings.HasPrefix(s, "H("):
		inner, closed := strings.CutSuffix(s[2:], ")")
		low, high, isRange := strings.Cut(inner, "-")
		if !closed || !isRange {
			return term{}, "should look like H(0-29)", true
		}
		a, why := value(spec, low)
		if why != "" {
			return term{}, why, true
		}
		b, why := value(spec, high)
		if why == "" && a > b {
			why = "has a range that runs backwards"
		}
		return term{kind: termHash, a: a, b: b}, why, true
	}
	switch field {
	case fDom:
		if strings.HasPrefix(s, "L") {
			return parseLastDay(s)
		}
		if d, isW := strings.CutSuffix(s, "W"); isW {
			a, why := value(spec, d)
			return term{kind: termNearest, a: a}, why, true
		}
	case fDow:
		if d, nth, isNth := strings.Cut(s, "#"); isNth {
			a, why := value(spec, d)
			n, ok := number(nth)
			if why == "" && (!ok || n < 1 || n > 5) {
				why = "should have a number from 1 to 5 after the #"
			}
			return term{kind: termNth, a: a % 7, b: n}, why, true
		}
		if s == "L" {
			return term{}, "does not say which weekday is meant: 5L is the last Friday of the month, SAT is Saturday",
				true
		}
		if d, isL := strings.CutSuffix(s, "L"); isL {
			a, why := value(spec, d)
			return term{kind: termLastDow, a: a % 7}, why, true
		}
	}
	return term{}, "", false
}

// parseLastDay reads L, LW, L-3 and L-3W.
func parseLastDay(s string) (term, string, bool) {
	t := term{kind: termLast}
	rest, isW := strings.CutSuffix(s[1:], "W")
	if isW {
		t.kind = termLastW
	}
	if rest != "" {
		n, ok := number(strings.TrimPrefix(rest, "-"))
		if !ok || rest[0] != '-' || n > 30 {
			return t, "should look like L, L-3 or LW", true
		}
		t.a = n
	}
	return t, "", true
}

func value(spec *fieldSpec, s string) (int, string) {
	for i, name := range spec.names {
		if s == name {
			return spec.min + i, ""
		}
	}
	n, ok := number(s)
	switch {
	case !ok && len(spec.names) > 0:
		return 0, "is neither a number nor a name"
	case !ok:
		return 0, "is not a number"
	case n < spec.min || n > spec.max:
		return 0, fmt.Sprintf("is out of range %d-%d", spec.min, spec.max)
	}
	return n, ""
}

// number reads a number of at most three digits. strconv.Atoi would also take a sign.
func number(s string) (int, bool) {
	if s == "" || len(s) > 3 {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

// compile turns the fields into bits; the seed decides what H stands for.
func (f *cronFields) compile(seed uint64) *cron {
	c := &cron{}
	var set [6]uint64
	for i := range f {
		for _, t := range f[i] {
			set[i] |= t.bits(i, seed)
			c.addSpecial(t)
			// Lists of fixed values and a plain H name certain times of the day; the rest repeats within it.
			if i <= fHour && (t.kind == termAny || t.kind == termRange || t.kind == termHash && t.step > 0) {
				c.interval = true
			}
		}
	}
	c.sec, c.min, c.hour = set[fSecond], set[fMinute], uint32(set[fHour])
	c.dom, c.month, c.dow = uint32(set[fDom]), uint16(set[fMonth]), uint8(set[fDow])
	c.domStar = f[fDom][0].kind == termAny
	c.dowStar = f[fDow][0].kind == termAny
	return c
}

// hashed says that what the fields match depends on the seed.
func (f *cronFields) hashed() bool {
	return slices.ContainsFunc(f[:], func(ts []term) bool {
		return slices.ContainsFunc(ts, func(t term) bool { return t.kind == termHash })
	})
}

// settle puts in place of each H what it stands for.
func (f *cronFields) settle(seed uint64) {
	for i := range f {
		for j, t := range f[i] {
			if t.kind == termHash {
				f[i][j] = t.settled(i, seed)
			}
		}
	}
}

// settled is what an H stands for: a value, or a range with a step.
func (t term) settled(field int, seed uint64) term {
	salt := fieldSpecs[field].salt
	if t.step == 0 {
		at := t.a + int(spread(seed, salt, uint64(t.b-t.a+1)))
		return term{kind: termValue, a: at, b: at}
	}
	return term{kind: termRange, a: t.a + int(spread(seed, salt, uint64(t.step))), b: t.b, step: t.step}
}

func (t term) bits(field int, seed uint64) uint64 {
	spec := &fieldSpecs[field]
	low, high := spec.min, spec.max
	if field == fDow {
		high = 6
	}
	if t.kind == termHash {
		t = t.settled(field, seed)
	}
	a, b, step := t.a, t.b, max(t.step, 1)
	switch t.kind {
	case termAny:
		a, b = low, high
	case termValue, termRange:
	default:
		return 0
	}
	if field == fDow && a == 7 {
		a, b = 0, b%7
	}
	if a > b { // a range that wraps around: the step goes on counting over the end of the field
		b += high - low + 1
	}
	var m uint64
	for v := a; v <= b; v += step {
		m |= 1 << (low + (v-low)%(high-low+1))
	}
	return m
}

func (c *cron) addSpecial(t term) {
	switch t.kind {
	case termLast:
		c.domL |= 1 << t.a
	case termLastW:
		c.domLW |= 1 << t.a
	case termNearest:
		c.domW |= 1 << t.a
	case termNth:
		c.dowNth[t.b] |= 1 << t.a
	case termLastDow:
		c.dowL |= 1 << t.a
	default:
		return
	}
	c.special = true
}
