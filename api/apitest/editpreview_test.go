package apitest_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// What a dry run says is what the edit does; and it does nothing itself.
func TestPreviewOfAnEditIsWhatItDoes(t *testing.T) {
	n := apitest.Start(t)
	ctx, sc := t.Context(), api.Space{All: true}
	spec := job.Spec{Name: "tick", Type: job.TypeQueue, Schedule: "0 * * * *", Payload: []byte(`{"queue":"q"}`)}
	j, _, err := n.Backend.CreateJob(ctx, spec, api.Request{Key: "1", Space: sc})
	if err != nil {
		t.Fatal(err)
	}
	n.Clock.Advance(150 * time.Minute) // two are due, and no worker takes them
	after := j.Spec
	after.Schedule, after.Timeout = "30 * * * *", job.Duration(time.Minute)
	p, err := n.Backend.PreviewUpdate(ctx, "tick", after, j.Version, api.Read{Space: sc})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Changes) != 2 || p.Changes[0].Field != "schedule" || string(p.Changes[0].To) != `"30 * * * *"` || p.Changes[1].Field != "timeout" ||
		len(p.NextBefore) != 10 || len(p.NextAfter) != 10 || p.Dropped.Occurrences == 0 || p.Dropped.Text == "" || p.Job.Schedule != after.Schedule {
		t.Fatalf("%+v", p)
	}
	if now, err := n.Backend.GetJob(ctx, "tick", api.Read{Space: sc}); err != nil || now.Version != j.Version || now.Schedule != spec.Schedule {
		t.Fatalf("the dry run changed it: %+v %v", now, err)
	}
	if _, err := n.Backend.PreviewUpdate(ctx, "tick", after, 7, api.Read{Space: sc}); job.CodeOf(err) != job.CodeVersionConflict {
		t.Errorf("an old version: %v", err)
	}
	done, err := n.Backend.UpdateJob(ctx, "tick", after, j.Version, api.Request{Key: "2", Space: sc})
	if err != nil || done.NextRunAt != p.NextAfter[0] {
		t.Fatalf("%+v %v, the dry run said %v", done, err, p.NextAfter)
	}
	runs, err := n.Backend.JobRuns(ctx, "tick", wire.RunQuery{Limit: 100}, api.Read{Space: sc})
	if err != nil {
		t.Fatal(err)
	}
	dropped := int64(0)
	for _, r := range runs.Runs {
		dropped += r.Count
	}
	if dropped != p.Dropped.Occurrences {
		t.Errorf("%d were dropped, the dry run said %+v", dropped, p.Dropped)
	}
}
