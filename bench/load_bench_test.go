package bench

import (
	"io"
	"testing"
	"time"
)

// BenchmarkLines is what the definitions of a load cost to write.
func BenchmarkLines(b *testing.B) {
	b.ReportAllocs()
	const jobs = 10_000
	for b.Loop() {
		if _, err := io.Copy(io.Discard,
			io.LimitReader(&lines{end: jobs, line: idle(time.Unix(1_800_000_000, 0))}, 1<<40)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/jobs, "ns/job")
}
