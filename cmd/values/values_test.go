package values

import (
	"maps"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestInstant(t *testing.T) {
	now := time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC)
	zone := time.FixedZone("east", 3600)
	for text, want := range map[string]time.Time{
		"now": now, "+90s": now.Add(90 * time.Second), "in 10m": now.Add(10 * time.Minute),
		"2027-03-01T10:00:00+01:00": now, "2027-03-01 10:00": now, "2027-03-02": now.Add(14 * time.Hour),
		"+1d": now.Add(24 * time.Hour), "in 1w 2d 3h": now.Add((9*24 + 3) * time.Hour), "-90s": now.Add(-90 * time.Second),
		"10m ago": now.Add(-10 * time.Minute), "11:30": now.Add(90 * time.Minute), "10:00": now.Add(24 * time.Hour),
		"10:00:01": now.Add(time.Second), "09:59": now.Add(24*time.Hour - time.Minute),
		"": {}, "tomorrow": {}, "+-1s": {}, "in": {}, "10m": {}, "1d": {}, "25:00": {}, "+d": {}, "+1d-1h": {}, "--1h": {},
		"+99999999999d": {}, "ago": {}, "+1x": {}, "+": {}, "-": {},
	} {
		got, err := Instant("--at", text, now, zone, Neither)
		if want.IsZero() {
			if job.CodeOf(err) != job.CodeInvalid {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		} else if err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"2027-03-02", "09:00"} {
		if _, err := Instant("--at", text, now, nil, After); err == nil {
			t.Errorf("%s without a zone is a time", text)
		}
	}
	for text, want := range map[string][2]time.Time{
		"10m": {now.Add(10 * time.Minute), now.Add(-10 * time.Minute)}, "1d": {now.Add(24 * time.Hour), now.Add(-24 * time.Hour)},
		"+10m": {now.Add(10 * time.Minute), now.Add(10 * time.Minute)}, "10m ago": {now.Add(-10 * time.Minute), now.Add(-10 * time.Minute)},
		"10:00": {now.Add(24 * time.Hour), now}, "11:00": {now.Add(time.Hour), now.Add(-23 * time.Hour)},
	} {
		for i, side := range []Side{After, Before} {
			if got, err := Instant("--at", text, now, zone, side); err != nil || !got.Equal(want[i]) {
				t.Errorf("%q, %d: %v, %v; want %v", text, side, got, err, want[i])
			}
		}
	}
	// The day after has 23 hours in Berlin: the time of day is what counts.
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	eve := time.Date(2027, 3, 27, 9, 0, 0, 0, berlin)
	if got, err := Instant("--at", "09:00", eve, berlin, After); err != nil || got.Sub(eve) != 23*time.Hour {
		t.Errorf("%v, %v", got, err)
	}
}

func TestPairs(t *testing.T) {
	got, err := Pairs("--tag", []string{"a=1", "b=x=y", "c="})
	if err != nil || !maps.Equal(got, map[string]string{"a": "1", "b": "x=y", "c": ""}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range [][]string{{"a"}, {"=1"}, {"a=1", "a=2"}} {
		if _, err := Pairs("--tag", bad); job.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestHeadersAndDurations(t *testing.T) {
	got, err := Headers([]string{"Accept: text/plain", "X: a:b"})
	if err != nil || !maps.Equal(got, map[string]string{"Accept": "text/plain", "X": "a:b"}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Headers([]string{"nothing"}); job.CodeOf(err) != job.CodeInvalid {
		t.Error(err)
	}
	if d, err := Duration("--jitter", "1h30m"); err != nil || time.Duration(d) != 90*time.Minute {
		t.Errorf("%v, %v", d, err)
	}
	if d, err := Duration("--jitter", ""); err != nil || d != 0 {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := Duration("--jitter", "soon"); job.CodeOf(err) != job.CodeInvalid {
		t.Error(err)
	}
}
