package wire

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestPreviewSaysTheExactTime: @every fires between whole seconds, and what is shown is when it fires.
func TestPreviewSaysTheExactTime(t *testing.T) {
	id := job.ID(5)
	res, err := LocalPreview(PreviewRequest{Schedule: "@every 2s", Count: 3, JobID: &id}, time.Unix(1_800_000_000, 0), nil)
	if err != nil || len(res.Times) != 3 {
		t.Fatal(res, err)
	}
	fraction := false
	for _, p := range res.Times {
		at, err := time.Parse(time.RFC3339Nano, p.At)
		if err != nil || job.At(at) != p.UTC {
			t.Errorf("%q is shown for %s (%v)", p.At, p.UTC, err)
		}
		fraction = fraction || at.Nanosecond() != 0
	}
	if !fraction {
		t.Error("this seed was to fire between whole seconds")
	}
}

// TestPreviewTakesTheZoneFromTheExpression: no zone was given, but the rule has one.
func TestPreviewTakesTheZoneFromTheExpression(t *testing.T) {
	res, err := LocalPreview(PreviewRequest{Schedule: "DTSTART;TZID=Europe/Berlin:20270101T090000\nRRULE:FREQ=DAILY", Count: 1}, time.Unix(1_800_000_000, 0), nil)
	if err != nil || res.Timezone != "Europe/Berlin" {
		t.Errorf("%q %v", res.Timezone, err)
	}
}
