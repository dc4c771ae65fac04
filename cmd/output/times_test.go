package output

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// A time without its zone is ambiguous on another machine.
func TestTimesHaveTheirZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	change := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC) // 02:30 CEST; an hour later it is 02:30 CET
	noon := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	for want, shown := range map[string]func(*Printer) string{
		"in 5s (13:00:05 CET)": func(p *Printer) string { return p.When(job.At(noon.Add(5 * time.Second))) },
		"2026-10-25 02:30 CEST–02:30 CET": func(p *Printer) string {
			return p.Span(job.At(change), job.At(change.Add(time.Hour)))
		},
		"12:00–13:00 CET": func(p *Printer) string { return p.Span(job.At(noon.Add(-time.Hour)), job.At(noon)) },
	} {
		if got := shown(&Printer{Now: noon, Zone: berlin}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What a target answered must not steer the terminal, and leaves no half of a code either.
func TestShortHasNoEscapeCodes(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[31mboom\x1b[0m":                "boom",
		"a\x1b]0;title\x07b":                 "ab",
		"a\x1b[2J\x1b[Hb":                    "ab",
		"a\u009b31mb":                        "a 31mb",
		"a\x1b(Bb":                           "ab",
		"plain, with [31m in it and \x1b":    "plain, with [31m in it and  ",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;": "link",
	} {
		if got := Short(in, 100); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
