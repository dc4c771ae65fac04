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
		"": {}, "tomorrow": {}, "+-1s": {}, "in": {},
	} {
		got, err := Instant("--at", text, now, zone)
		if want.IsZero() {
			if job.CodeOf(err) != job.CodeInvalid {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		} else if err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := Instant("--at", "2027-03-02", now, nil); err == nil {
		t.Error("a date without a zone is a time")
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
