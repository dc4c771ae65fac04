package schedule

import (
	"testing"
	"time"
)

// The seeds are in testdata/fuzz.

// FuzzParse: nothing makes Parse panic, and what it accepts has fire times that strictly increase and a Prev that
// agrees with Next.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, expr, zone string, mode uint8, at int64) {
		o := Options{
			Zone:    zone,
			Gap:     []string{"", "skip"}[mode&1],
			Overlap: []string{"", "first", "both", ""}[mode>>1&3],
			Seed:    uint64(mode),
			Jitter:  time.Duration(mode) * time.Second,
		}
		fuzzSchedule(t, expr, o, at)
		if _, err := Describe(expr, zone); err == nil {
			if _, err := Parse(expr, Options{Zone: zone}); err != nil {
				t.Fatalf("described but not parsed: %v", err)
			}
		}
	})
}

// FuzzRRule is FuzzParse for the text of a rule; it also asks near DTSTART, where most rules have something to say.
func FuzzRRule(f *testing.F) {
	f.Fuzz(func(t *testing.T, rule, dates string, start, at int64) {
		start = floorMod(start, maxUnix)
		from := time.Unix(start, 0).UTC()
		expr := "DTSTART:" + from.Format("20060102T150405") + " RRULE:" + rule + " " + dates
		o := Options{Zone: "America/New_York"}
		fuzzSchedule(t, expr, o, at)
		fuzzSchedule(t, expr, o, start)
	})
}

func fuzzSchedule(t *testing.T, expr string, o Options, at int64) {
	s, err := Parse(expr, o)
	if err != nil {
		if err.Error() == "" {
			t.Fatal("an error without a text")
		}
		return
	}
	if s.Delay() < 0 || s.Delay() > o.Jitter {
		t.Fatal(s.Delay())
	}
	after := time.Unix(at, 0)
	for range 5 {
		next, ok := s.Next(after)
		if !ok {
			break
		}
		if !next.After(after) {
			t.Fatalf("%v is not after %v", next, after)
		}
		if prev, ok := s.Prev(next); !ok || !prev.Equal(next) {
			t.Fatalf("Prev(%v) = %v, %v", next, prev, ok)
		}
		if prev, ok := s.Prev(next.Add(-1)); ok && prev.After(after) {
			t.Fatalf("Next(%v) = %v, but there is %v", after, next, prev)
		}
		after = next
	}
	if prev, ok := s.Prev(time.Unix(at, 0)); ok {
		if next, ok := s.Next(prev.Add(-1)); !ok || !next.Equal(prev) {
			t.Fatalf("Prev is %v, but Next finds %v", prev, next)
		}
		if next, ok := s.Next(prev); ok && !next.After(time.Unix(at, 0)) {
			t.Fatalf("Prev is %v, but %v is nearer", prev, next)
		}
	}
	s.Preview(after, 3)
	s.Count(after, after.Add(1000*time.Hour), 3)
}
