package checker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	cronMonths = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	cronDays   = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
	cronWords  = map[string]string{"@HOURLY": "0 * * * *", "@DAILY": "0 0 * * *", "@MIDNIGHT": "0 0 * * *",
		"@WEEKLY":  "0 0 * * 0",
		"@MONTHLY": "0 0 1 * *", "@YEARLY": "0 0 1 1 *", "@ANNUALLY": "0 0 1 1 *"}
)

// cronField is one field: the values it allows, or for the days a question about a date.
type cronField struct {
	values   map[int]bool
	dates    []func(time.Time) bool
	star     bool
	interval bool // a wildcard, a range or a step
}

func (f *cronField) allows(v int, d time.Time) bool {
	return f.values[v] || slices.ContainsFunc(f.dates, func(ask func(time.Time) bool) bool { return ask(d) })
}

// setCron makes the oracle list what a cron expression names, and says whether it is interval-like.
func (o *oracle) setCron(expr string, seed uint64) (interval bool, err error) {
	text := strings.ToUpper(expr)
	if w, ok := cronWords[text]; ok {
		text = w
	}
	parts := strings.Fields(text)
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 6 {
		return false, fmt.Errorf("%q has %d fields", expr, len(parts))
	}
	bounds := [6]struct {
		lo, hi, hash int
		names        []string
		salt         uint64
	}{{0, 59, 59, nil, saltSecond}, {0, 59, 59, nil, saltMinute}, {0, 23, 23, nil, saltHour}, {1, 31, 28, nil, saltDom},
		{1, 12, 12, cronMonths, saltMonth}, {0, 6, 6, cronDays, saltDow}}
	var f [6]cronField
	for i, part := range parts {
		b := bounds[i]
		if err := f[i].parse(part, i, b.lo, b.hi, b.hash, b.names, seed, b.salt); err != nil {
			return false, fmt.Errorf("%q: %w", expr, err)
		}
		interval = interval || i < 3 && f[i].interval
	}
	dom, dow := &f[3], &f[5]
	o.walls = func(from, to int64) []int64 {
		var out []int64
		for d := time.Unix(from, 0).UTC().Truncate(24 * time.Hour); d.Unix() < to; d = d.AddDate(0, 0, 1) {
			if !f[4].values[int(d.Month())] {
				continue
			}
			byDate, byDay := dom.allows(d.Day(), d), dow.allows(int(d.Weekday()), d)
			if (dom.star || dow.star) && !(byDate && byDay) || !(dom.star || dow.star) && !byDate && !byDay {
				continue
			}
			for h := range 24 {
				if !f[2].values[h] {
					continue
				}
				for m := range 60 {
					if !f[1].values[m] {
						continue
					}
					for s := range 60 {
						if w := d.Unix() + int64(h*3600+m*60+s); f[0].values[s] && w >= from && w < to {
							out = append(out, w)
						}
					}
				}
			}
		}
		return out
	}
	return interval, nil
}

func (f *cronField) parse(text string, field, lo, hi, hash int, names []string, seed, salt uint64) error {
	f.values = map[int]bool{}
	value := func(s string) (int, error) {
		if i := slices.Index(names, s); i >= 0 {
			return lo + i, nil
		}
		return strconv.Atoi(s)
	}
	size := hi - lo + 1
	fill := func(a, b, step int) {
		if field == 5 && a == 7 {
			a, b = 0, b%7
		}
		if a > b {
			b += size
		}
		for v := a; v <= b; v += step {
			f.values[lo+(v-lo)%size] = true
		}
	}
	for _, item := range strings.Split(text, ",") {
		body, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			n, err := strconv.Atoi(stepText)
			if err != nil || n < 1 {
				return fmt.Errorf("step of %q", item)
			}
			step = n
		}
		low, high, isRange := strings.Cut(body, "-")
		switch {
		case body == "*" || body == "?":
			fill(lo, hi, step)
			f.star, f.interval = true, true
		case strings.HasPrefix(body, "H"):
			a, b := lo, hash
			if body != "H" {
				var err error
				if a, err = value(strings.TrimPrefix(low, "H(")); err != nil {
					return err
				}
				if b, err = value(strings.TrimSuffix(high, ")")); err != nil {
					return err
				}
			}
			if stepped {
				fill(a+int(draw(seed, salt, uint64(step))), b, step)
				f.interval = true
			} else {
				v := a + int(draw(seed, salt, uint64(b-a+1)))
				fill(v, v, 1)
			}
		case field == 3 && (strings.HasPrefix(body, "L") || strings.HasSuffix(body, "W")):
			if err := f.dayOfMonth(body); err != nil {
				return err
			}
		case field == 5 && (strings.Contains(body, "#") || strings.HasSuffix(body, "L")):
			if err := f.dayOfWeek(body, value); err != nil {
				return err
			}
		default:
			a, err := value(low)
			if err != nil {
				return err
			}
			b := a
			if isRange {
				if b, err = value(high); err != nil {
					return err
				}
			} else if stepped {
				if b = hi; field == 5 {
					a %= 7
				}
			}
			fill(a, b, step)
			f.interval = f.interval || isRange || stepped
		}
	}
	return nil
}

func monthDays(d time.Time) int {
	return time.Date(d.Year(), d.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// dayOfMonth reads L, L-3, LW, L-3W and 15W.
func (f *cronField) dayOfMonth(body string) error {
	rest, work := strings.CutSuffix(body, "W")
	back, fromEnd := strings.CutPrefix(rest, "L")
	n := 0
	if s := strings.TrimPrefix(back, "-"); s != "" {
		v, err := strconv.Atoi(s)
		if err != nil {
			return err
		}
		n = v
	}
	f.dates = append(f.dates, func(d time.Time) bool {
		day := n
		if fromEnd {
			day = monthDays(d) - n
		}
		if day < 1 || day > monthDays(d) {
			return false
		}
		if work { // the nearest weekday of the same month
			for _, delta := range []int{0, -1, 1, -2, 2} {
				at := time.Date(d.Year(), d.Month(), day+delta, 0, 0, 0, 0, time.UTC)
				if wd := at.Weekday(); at.Month() == d.Month() && wd != time.Saturday && wd != time.Sunday {
					return d.Day() == at.Day()
				}
			}
		}
		return d.Day() == day
	})
	return nil
}

// dayOfWeek reads 5#2 and 5L.
func (f *cronField) dayOfWeek(body string, value func(string) (int, error)) error {
	name, nth, isNth := strings.Cut(body, "#")
	if !isNth {
		name = strings.TrimSuffix(body, "L")
	}
	day, err := value(name)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(nth)
	f.dates = append(f.dates, func(d time.Time) bool {
		if int(d.Weekday()) != day%7 {
			return false
		}
		if isNth {
			return (d.Day()+6)/7 == n
		}
		return d.Day()+7 > monthDays(d)
	})
	return nil
}
