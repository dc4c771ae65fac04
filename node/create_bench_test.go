package node

import (
	"strconv"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// BenchmarkCreateItem is what the batcher does for one job: its schedule, its first occurrence, its stored form.
func BenchmarkCreateItem(b *testing.B) {
	specs := make([]job.Spec, 1200)
	for i := range specs {
		specs[i] = job.Spec{Name: "9e3779b97f4a7c15-idle-" + strconv.Itoa(i), Type: job.TypeHTTP, Payload: []byte(`{"url":"http://127.0.0.1:9/reports/daily","method":"POST","headers":{"Content-Type":"application/json"},"body":{"account":123456,"kind":"daily"}}`),
			Schedule: strconv.Itoa(i%60) + " " + strconv.Itoa(i%60) + " " + strconv.Itoa(i/60) + " * * *"}
		specs[i].Normalize()
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c := creation{spec: &specs[i%len(specs)]}
		i++
		if _, err := createItem(&c, job.ID(i), 1_800_000_000_000); err != nil {
			b.Fatal(err)
		}
	}
}
