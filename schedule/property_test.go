package schedule

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// collect lists Next from just before from up to to.
func collect(s *Schedule, from, to time.Time) []time.Time {
	var out []time.Time
	after := from.Add(-time.Nanosecond)
	for {
		at, ok := s.Next(after)
		if !ok || at.After(to) {
			return out
		}
		out = append(out, at)
		after = at
	}
}

// checkPrev holds Prev, at every fire time and between any two of them, against the list that Next gave.
func checkPrev(t *rapid.T, s *Schedule, fires []time.Time, to time.Time) {
	for i, at := range fires {
		ask := []time.Time{at, at.Add(time.Nanosecond)}
		end := to
		if i+1 < len(fires) {
			end = fires[i+1].Add(-time.Nanosecond)
			if !fires[i+1].After(at) {
				t.Fatalf("%v does not come after %v", fires[i+1], at)
			}
		}
		ask = append(ask, end, at.Add(end.Sub(at)/2))
		for _, x := range ask {
			if got, ok := s.Prev(x); !ok || !got.Equal(at) {
				t.Fatalf("Prev(%v) = %v, %v, want %v", x, got, ok, at)
			}
		}
	}
}

func diff(t *rapid.T, what string, got, want []time.Time) {
	if !slices.EqualFunc(got, want, time.Time.Equal) {
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || !got[i].Equal(want[i]) {
				t.Fatalf("%s: differs at %d\n got %v\nwant %v", what, i, got[i:min(len(got), i+4)], want[i:min(len(want), i+4)])
			}
		}
	}
}

func testAgainstOracle(t *testing.T, fields int, window time.Duration) {
	for _, c := range changes {
		t.Run(c.zone+" "+c.at[:10], func(t *testing.T) {
			t.Parallel()
			loc, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			at := parseTime(t, c.at)
			rapid.Check(t, func(t *rapid.T) {
				spec := genSpec(t, fields)
				step := spec.step
				if c.zone == "Africa/Monrovia" {
					step = 1 // its minutes do not begin with UTC's
				}
				spec.step = step
				gap := rapid.SampledFrom([]string{"", "run_after", "skip"}).Draw(t, "gap")
				overlap := rapid.SampledFrom([]string{"", "first", "both"}).Draw(t, "overlap")
				shift := time.Duration(rapid.Int64Range(-int64(window)/4, int64(window)/4).Draw(t, "shift")).Truncate(time.Minute)
				from, to := at.Add(shift-window/2), at.Add(shift+window/2)
				s, err := Parse(spec.text, Options{Zone: c.zone, Gap: gap, Overlap: overlap})
				if err != nil {
					t.Skip(err) // day 31 of February and the like
				}
				got := collect(s, from, to)
				diff(t, spec.text, slices.DeleteFunc(slices.Clone(got), s.Skipped), spec.fires(loc, gap, overlap, from, to))
				checkPrev(t, s, got, to)
				n, more := s.Count(from.Add(-time.Nanosecond), to, 10)
				if want := min(len(got), 10); n != want || more != (len(got) > 10) {
					t.Fatalf("Count = %d, %v of %d", n, more, len(got))
				}
			})
		})
	}
}

func TestMinutesAgainstOracle(t *testing.T) { testAgainstOracle(t, 5, 72*time.Hour) }
func TestSecondsAgainstOracle(t *testing.T) { testAgainstOracle(t, 6, 150*time.Minute) }

// TestDatesAgainstOracle is about days, months and years: every day of some years is looked at.
func TestDatesAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &spec{step: day}
		s.second[0], s.minute[0], s.hour[0] = true, true, true
		var dom, dow string
		dom, s.dom, s.domStar = genDom(t)
		dow, s.dow, s.dowStar = genDow(t)
		month, _ := genField(t, "month", 1, 12, func(v int) { s.month[v] = true })
		s.text = "0 0 " + dom + " " + month + " " + dow
		year := rapid.IntRange(1970, 2190).Draw(t, "year")
		from := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, rapid.IntRange(0, 366).Draw(t, "day"))
		to := from.AddDate(9, 0, 0)
		sched, err := Parse(s.text, Options{})
		if err != nil {
			for d := time.Unix(0, 0).UTC(); d.Year() < 2020; d = d.AddDate(0, 0, 1) {
				if s.match(d) {
					t.Fatalf("%s refused (%v) but it fires on %v", s.text, err, d)
				}
			}
			return
		}
		got := collect(sched, from, to)
		diff(t, s.text, got, s.fires(time.UTC, "", "", from, to))
		checkPrev(t, sched, got, to)
	})
}

// TestEvery compares @every with plain counting.
func TestEveryGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := time.Duration(rapid.Int64Range(1000, 40_000_000).Draw(t, "ms")) * time.Millisecond
		o := Options{Seed: rapid.Uint64().Draw(t, "seed"), Zone: "Europe/London"}
		base := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "base"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		if rapid.Bool().Draw(t, "anchored") {
			o.StartAt = base
		}
		s, err := Parse("@every "+step.String(), o)
		if err != nil {
			t.Fatal(err)
		}
		fires := collect(s, base, base.Add(20*step))
		if len(fires) < 20 {
			t.Fatalf("%d fires", len(fires))
		}
		for i, f := range fires {
			if i > 0 && f.Sub(fires[i-1]) != step {
				t.Fatalf("%v after %v", f, fires[i-1])
			}
			if !o.StartAt.IsZero() && f.Sub(base)-f.Sub(base).Truncate(step) >= time.Millisecond {
				t.Fatalf("%v is not on the grid from %v", f, base)
			}
			if phase := f.UnixMilli() % step.Milliseconds(); phase != fires[0].UnixMilli()%step.Milliseconds() {
				t.Fatalf("phase %d", phase)
			}
		}
		checkPrev(t, s, fires, fires[len(fires)-1].Add(step-time.Nanosecond))
		n, more := s.Count(fires[0], fires[9], 100)
		if n != 9 || more {
			t.Fatalf("Count = %d, %v", n, more)
		}
	})
}

// TestBounds holds start_at and end_at against the unbounded list.
func TestBounds(t *testing.T) {
	at := time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		expr := rapid.SampledFrom([]string{"*/20 * * * *", "30 2 * * *", "0 */3 * * *",
			"DTSTART:20260301T003000 RRULE:FREQ=HOURLY;INTERVAL=2"}).Draw(t, "expr")
		all, err := Parse(expr, Options{Zone: "America/New_York"})
		if err != nil {
			t.Fatal(err)
		}
		start := at.Add(time.Duration(rapid.Int64Range(-50*3600e9, 50*3600e9).Draw(t, "start")))
		end := start.Add(time.Duration(rapid.Int64Range(0, 50*3600e9).Draw(t, "length")))
		want := collect(all, start, end)
		s, err := Parse(expr, Options{Zone: "America/New_York", StartAt: start, EndAt: end})
		if err != nil {
			if len(want) > 0 {
				t.Fatalf("refused (%v) but there are %v", err, want)
			}
			return
		}
		got := collect(s, time.Time{}, time.Unix(1<<40, 0))
		diff(t, expr, got, want)
		checkPrev(t, s, got, time.Unix(1<<40, 0))
		if p, ok := s.Prev(got[0].Add(-1)); ok {
			t.Fatalf("Prev before the first is %v", p)
		}
	})
}
