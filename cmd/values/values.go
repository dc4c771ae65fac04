// Package values reads what flags are set to, as people write it.
package values

import (
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Instant reads a time as people give it: RFC 3339, "+90s", "in 10m", "now", or a date and time without an offset in a
// zone.
func Instant(flag, s string, now time.Time, loc *time.Location) (time.Time, error) {
	text := strings.TrimSpace(s)
	rest, relative := strings.CutPrefix(text, "+")
	if !relative {
		rest, relative = strings.CutPrefix(strings.ToLower(text), "in ")
	}
	if relative {
		d, err := time.ParseDuration(strings.ReplaceAll(strings.TrimSpace(rest), " ", ""))
		if err != nil || d < 0 {
			return time.Time{}, job.Invalid(flag, "use a duration such as +90s or \"in 10m\"", "%q is not a time", s)
		}
		return now.Add(d), nil
	}
	if strings.EqualFold(text, "now") {
		return now, nil
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
	}
	return time.Time{}, job.Invalid(flag, "use RFC 3339 as in 2027-03-01T09:00:00Z, +90s or \"in 10m\"",
		"%q is not a time", s)
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
