// Package values reads what flags are set to, as people write it.
package values

import (
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Side says what a duration or a time of day without a sign or a date means.
type Side int

// The sides.
const (
	Neither Side = iota // a duration needs a sign; a time of day is the next one
	After               // 10m is in ten minutes, 09:00 the next one
	Before              // 10m is ten minutes ago, 09:00 the last one
)

// Instant reads a time as people give it: RFC 3339, "+90s", "in 10m", "-1d", "10m ago", "now", or a date and time, or a
// time of day, without an offset in a zone.
func Instant(flag, s string, now time.Time, loc *time.Location, side Side) (time.Time, error) {
	text := strings.TrimSpace(s)
	if strings.EqualFold(text, "now") {
		return now, nil
	}
	if d, ok := relative(strings.ToLower(text), side); ok {
		return now.Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	if loc != nil {
		for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04",
			"2006-01-02 15:04",
			"2006-01-02"} {
			if t, err := time.ParseInLocation(layout, text, loc); err == nil {
				return t, nil
			}
		}
		for _, layout := range []string{"15:04", "15:04:05"} {
			if t, err := time.Parse(layout, text); err == nil {
				return ofDay(t, now.In(loc), side), nil
			}
		}
	}
	return time.Time{}, job.Invalid(flag,
		"use RFC 3339 as in 2027-03-01T09:00:00Z, +90s, \"in 10m\", \"10m ago\" or a time of day such as 09:00",
		"%q is not a time", s)
}

// relative reads how far from now a time is.
func relative(text string, side Side) (time.Duration, bool) {
	sign := map[Side]time.Duration{After: 1, Before: -1}[side]
	for _, mark := range []struct {
		cut  func(string, string) (string, bool)
		text string
		sign time.Duration
	}{{strings.CutPrefix, "+", 1}, {strings.CutPrefix, "in ", 1}, {strings.CutPrefix, "-", -1},
		{strings.CutSuffix, " ago", -1}} {
		if rest, ok := mark.cut(text, mark.text); ok {
			text, sign = rest, mark.sign
			break
		}
	}
	d, err := span(strings.ReplaceAll(text, " ", ""))
	return sign * d, err == nil && d >= 0 && sign != 0
}

// span is a duration that may begin with weeks and days of 24 hours: 1w2d12h.
func span(text string) (total time.Duration, err error) {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		count, rest, ok := strings.Cut(text, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(count, 10, 12) // ten years of days, and more weeks
		if err != nil {
			return 0, err
		}
		if total, text = total+time.Duration(n)*unit.d, rest; text == "" {
			return total, nil
		}
	}
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		return 0, strconv.ErrSyntax
	}
	d, err := time.ParseDuration(text)
	return total + d, err
}

// ofDay is the next or the last time of a day, in the zone of now.
func ofDay(t, now time.Time, side Side) time.Time {
	at := func(day int) time.Time {
		return time.Date(now.Year(), now.Month(), now.Day()+day, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
	}
	switch today := at(0); {
	case side == Before && today.After(now):
		return at(-1)
	case side != Before && !today.After(now):
		return at(1)
	default:
		return today
	}
}

// Pairs reads repeated k=v flags.
func Pairs(flag string, list []string) (map[string]string, error) {
	var out map[string]string
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, job.Invalid(flag, "write key=value", "%q is not a pair", s)
		}
		if _, twice := out[k]; twice {
			return nil, job.Invalid(flag, "give it once", "%q is given twice", k)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out, nil
}

// Headers reads repeated "Name: value" flags.
func Headers(list []string) (map[string]string, error) {
	var out map[string]string
	for _, s := range list {
		k, v, ok := strings.Cut(s, ":")
		if k = strings.TrimSpace(k); !ok || k == "" {
			return nil, job.Invalid("--header", "write \"Name: value\"", "%q is not a header", s)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = strings.TrimSpace(v)
	}
	return out, nil
}

// Duration reads a flag that is a duration; empty is none.
func Duration(flag, s string) (job.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, job.Invalid(flag, "use a duration such as 90s or 1h30m", "%q is not a duration", s)
	}
	return job.Duration(d), nil
}
