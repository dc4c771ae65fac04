package crontab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// field is one of the five, with cron's bounds.
type field struct {
	name      string
	low, high int
	names     []string
}

var fields = [5]field{
	{"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day of month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun"}},
}

const (
	minute = iota
	hour
	dayOfMonth
	month
	dayOfWeek
)

// set is what cron makes of a field.
type set struct {
	values []int    // in order
	random []string // what cron draws by chance, as H
	star   bool     // it begins with *, of which cron makes more than of a full range
	plain  bool     // the text means the same in a schedule of Carillon
	text   string
}

// times is when cron runs a line.
type times struct {
	expression string
	wild       bool // cron's wildcard jobs: minute or hour begin with *
	notes      []string
}

func readFields(texts [5]string) (times, error) {
	var t times
	var sets [5]set
	for i, text := range texts {
		if text == "" {
			return t, fmt.Errorf("there are not five fields and a command")
		}
		var err error
		if sets[i], err = fields[i].read(text); err != nil {
			return t, fmt.Errorf("%s: %w", fields[i].name, err)
		}
	}
	t.wild = sets[minute].star || sets[hour].star
	parts := make([]string, len(sets))
	for i := range sets {
		parts[i] = sets[i].expression(fields[i])
	}
	// Both days restricted means either; a field that begins with * is not restricted, whatever follows.
	if dom, dow := &sets[dayOfMonth], &sets[dayOfWeek]; dom.star && !dow.star || dow.star && !dom.star {
		stepped, i := dom, dayOfMonth
		if dow.star {
			stepped, i = dow, dayOfWeek
		}
		if parts[i][0] != '*' {
			return t, fmt.Errorf("%s: because of %q, cron runs only on days that both fields allow, which a "+
				"schedule here cannot express: test the day in the command", fields[i].name, stepped.text)
		}
	}
	for i, s := range sets {
		if s.random != nil {
			t.notes = append(t.notes, fmt.Sprintf(
				"%s: cron draws %s anew at each start; Carillon derives "+
					"a fixed value from the job", fields[i].name, s.text))
		}
	}
	t.expression = strings.Join(parts, " ")
	return t, nil
}

// read reads a list of ranges, as get_list and get_range of cronie do.
func (f field) read(text string) (set, error) {
	s := set{text: text, star: text[0] == '*', plain: true}
	for item := range strings.SplitSeq(text, ",") {
		if err := f.readItem(&s, item); err != nil {
			return s, fmt.Errorf("%q %w", item, err)
		}
	}
	if strings.Contains(text, ",") && s.star {
		s.plain = false // a list with a wildcard is refused by a schedule
	}
	slices.Sort(s.values)
	s.values = slices.Compact(s.values)
	if f.high == 7 && slices.Contains(s.values, 7) { // both are Sunday
		s.values = slices.DeleteFunc(s.values, func(v int) bool { return v == 7 })
		if !slices.Contains(s.values, 0) {
			s.values = slices.Insert(s.values, 0, 0)
		}
	}
	if len(s.values) == 0 && s.random == nil {
		return s, fmt.Errorf("%q is a range that runs backwards: cron never runs the line", text)
	}
	return s, nil
}

func (f field) readItem(s *set, item string) error {
	if item == "" {
		return fmt.Errorf("is empty")
	}
	body, stepText, stepped := strings.Cut(item, "/")
	low, high, step := f.low, f.high, 1
	if stepped {
		n, err := strconv.Atoi(stepText)
		if err != nil || n <= 0 || n > 1<<20 {
			return fmt.Errorf("has a step that is not a number from 1 up")
		}
		step = n
		s.plain = s.plain && step <= f.size() // a schedule refuses a longer one; cron takes the first value
	}
	a, b, ranged := strings.Cut(body, "-")
	from, to, random := strings.Cut(body, "~")
	switch {
	case body == "*":
	case random:
		return f.readRandom(s, from, to, step, stepped)
	case ranged:
		var err error
		if low, err = f.number(a); err != nil {
			return err
		}
		if high, err = f.number(b); err != nil {
			return err
		}
		if low > high && high == 0 && f.high == 7 && !stepped { // fri-sun
			high = 7
		}
		if low > high {
			s.plain = false // a schedule goes around the end of the field; cron has nothing
		}
	case stepped:
		// Vixie's cron takes 5/15 for 5, cronie refuses the line; a schedule here takes it for 5-59/15.
		return fmt.Errorf("has a step without a range, which cron does not treat as steps: write %s-%d/%s, or just "+
			"%s", body,
			f.high, stepText, body)
	default:
		n, err := f.number(body)
		if err != nil {
			return err
		}
		low, high = n, n
	}
	for v := low; v <= high; v += step {
		s.values = append(s.values, v)
	}
	return nil
}

// readRandom reads what cronie and OpenBSD draw by chance: ~, 5~, ~10, 5~10, on OpenBSD with a step.
func (f field) readRandom(s *set, from, to string, step int, stepped bool) error {
	low, high := f.low, f.high
	if f.high == 7 {
		high = 6
	}
	var err error
	if from != "" {
		if low, err = f.number(from); err != nil {
			return err
		}
	}
	if to != "" {
		if high, err = f.number(to); err != nil {
			return err
		}
	}
	if low > high {
		return fmt.Errorf("has a range that runs backwards")
	}
	text := "H"
	if from != "" || to != "" {
		text = fmt.Sprintf("H(%d-%d)", low, high)
	}
	if stepped {
		text += "/" + strconv.Itoa(min(step, high-low+1))
	}
	s.plain = false
	s.random = append(s.random, text)
	return nil
}

// size is how many different values there are: 0 and 7 are one day.
func (f field) size() int {
	if f.high == 7 {
		return 7
	}
	return f.high - f.low + 1
}

func (f field) number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || text[0] == '+' || text[0] == '-' {
		if n = slices.Index(f.names, strings.ToLower(text)); n < 0 {
			return 0, fmt.Errorf("has %q, which is not a value of the field", text)
		}
		return n + f.low, nil
	}
	if n < f.low || n > f.high {
		return 0, fmt.Errorf("has %d, which is not within %d-%d", n, f.low, f.high)
	}
	return n, nil
}

// expression is the field in a schedule of Carillon: as it was written where that means the same.
func (s set) expression(f field) string {
	if s.star && len(s.values) == f.size() {
		return "*"
	}
	if s.plain {
		return s.text
	}
	parts := slices.Clone(s.random)
	for _, v := range s.values {
		parts = append(parts, strconv.Itoa(v))
	}
	return strings.Join(parts, ",")
}
