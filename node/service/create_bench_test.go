package service

import (
	"strconv"
	"testing"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// BenchmarkPrepare is what the batcher does for a job: its schedule, its first occurrence, its stored form, its place
// in a command.
func BenchmarkPrepare(b *testing.B) {
	specs := make([]job.Spec, 1200)
	for i := range specs {
		specs[i] = job.Spec{Name: "9e3779b97f4a7c15-idle-" + strconv.Itoa(i), Type: job.TypeHTTP,
			Payload:  []byte(`{"url":"http://127.0.0.1:9/reports/daily","method":"POST","headers":{"Content-Type":"application/json"},"body":{"account":123456,"kind":"daily"}}`),
			Schedule: strconv.Itoa(i%60) + " " + strconv.Itoa(i%60) + " " + strconv.Itoa(i/60) + " * * *"}
		specs[i].Normalize()
	}
	batch := make([]*creation, 1000)
	e := &forward.Epoch{}
	w := newBatcher(e, &scheduler.Schedules{}, 0)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		for k := range batch {
			batch[k] = &creation{spec: &specs[i%len(specs)], batch: &createBatch{}}
			i++
		}
		cmd, live := w.command(batch, uint64(i), 1_800_000_000_000)
		if len(live) != len(batch) {
			b.Fatal(len(live))
		}
		if _, err := fsm.Encode(cmd); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(batch)), "ns/job")
}
