package store

import (
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// A sample has jobs of every part, none twice, and follows no pattern of the numbers; numbers that are not used weigh
// nothing.
func TestSampleJobs(t *testing.T) {
	s := newTest(t)
	view(t, s, func(v *View) {
		if got := v.SampleJobs(10); got != nil {
			t.Errorf("%v of no jobs", got)
		}
	})
	const many = 6000
	update(t, s, func(b *Batch) {
		for i := range many {
			id := job.ID(1 + i)
			if i >= many/2 { // of a cluster that was restored
				id = 1<<40 + job.ID(i)
			}
			addJob(t, b, id, nil, Place{Parked: true}, nil)
		}
		for i := range 1000 {
			must(t, b.DeleteState(job.ID(1000+i)))
			must(t, b.DeleteDefinition(job.ID(1000+i)))
		}
	})
	view(t, s, func(v *View) {
		if got := v.SampleJobs(many); len(got) != many-1000 || !slices.IsSorted(got) || got[0] != 1 {
			t.Errorf("%d of all jobs, from %v", len(got), got[:1])
		}
		const n = 500
		got := v.SampleJobs(n)
		if len(got) != n || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != n {
			t.Fatalf("%d jobs: %v", len(got), got)
		}
		if !slices.Equal(got, v.SampleJobs(n)) {
			t.Error("it is another one the second time")
		}
		restored, last := 0, make([]int, 10)
		for _, id := range got {
			if _, ok, err := v.Definition(id); !ok || err != nil {
				t.Errorf("%s: %v %v", id, ok, err)
			}
			if id > 1<<40 {
				restored++
			}
			last[id%10]++
		}
		if restored != n*3/5 {
			t.Errorf("%d of %d are from after the restore", restored, n)
		}
		if slices.Min(last) < 25 || slices.Max(last) > 80 { // 50 each; every tenth job is in the parts alike
			t.Errorf("by their last digit: %v", last)
		}
	})
}
