package wire

import (
	"strings"
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

// TestPreviewBeforeThereIsAJob: what depends on the id that a job gets is an example, and says so.
func TestPreviewBeforeThereIsAJob(t *testing.T) {
	now, id := time.Unix(1_800_000_000, 0), job.ID(7)
	for _, expr := range []string{"H * * * *", "@every 10m"} {
		res, err := LocalPreview(PreviewRequest{Schedule: expr, Count: 1}, now, nil)
		if err != nil || !res.ByJob {
			t.Errorf("%s is not said to depend on the job: %v", expr, err)
		}
		if res, err = LocalPreview(PreviewRequest{Schedule: expr, Count: 1, JobID: &id}, now, nil); err != nil || res.ByJob {
			t.Errorf("%s of a job is said to depend on the job: %v", expr, err)
		}
		if strings.Contains(res.Description, "H") {
			t.Errorf("%s of a job is described as %q", expr, res.Description)
		}
	}
	p := PreviewRequest{Schedule: "0 9 * * *", Count: 1, Jitter: job.Duration(time.Hour)}
	res, err := LocalPreview(p, now, nil)
	if err != nil || res.ByJob || res.Times[0].At != "2027-01-15T09:00:00Z" {
		t.Errorf("a jitter that nobody has yet: %+v, %v", res.Times, err)
	}
	p.JobID = &id
	if res, err = LocalPreview(p, now, nil); err != nil || res.Times[0].At == "2027-01-15T09:00:00Z" {
		t.Errorf("the jitter of a job is missing: %+v, %v", res.Times, err)
	}
}
