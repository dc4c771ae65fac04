package wheel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

const minute = 60_000

var sizes = []int{1_000_000, 10_000_000}

// spans are how far ahead entries lie: the scheduler's refill window, and two
// that use the upper levels.
var spans = []struct {
	name string
	ms   int64
}{{"10min", 10 * minute}, {"day", 24 * 60 * minute}, {"year", year}}

func forSizes(b *testing.B, fn func(b *testing.B, n int, span int64)) {
	for _, n := range sizes {
		for _, s := range spans {
			b.Run(fmt.Sprintf("n=%dM/span=%s", n/1_000_000, s.name), func(b *testing.B) { fn(b, n, s.ms) })
		}
	}
}

// times makes the times beforehand: a random number costs as much as an Add.
func times(n int, span int64) []int64 {
	r := rand.New(rand.NewPCG(1, 2))
	at := make([]int64, n)
	for i := range at {
		at[i] = 1 + r.Int64N(span)
	}
	return at
}

func fill(w *Wheel, at []int64) {
	for i, t := range at {
		w.Add(t, uint64(i))
	}
}

func perEntry(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
	b.ReportMetric(0, "ns/op")
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkAdd fills an empty wheel, memory from the system included.
func BenchmarkAdd(b *testing.B) {
	forSizes(b, func(b *testing.B, n int, span int64) {
		at := times(n, span)
		w := New(0)
		before := heap()
		for b.Loop() {
			w.Reset(0)
			fill(w, at)
		}
		perEntry(b, n)
		b.ReportMetric(float64(heap()-before)/float64(n), "B/entry")
		runtime.KeepAlive(w)
		runtime.KeepAlive(at) // counted before, so it must be counted after
	})
}

// BenchmarkDrain advances a full wheel by a millisecond at a time until it is
// empty: what an entry costs after it was added, all its moves included.
func BenchmarkDrain(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("n=%dM/span=10min", n/1_000_000), func(b *testing.B) {
			at := times(n, 10*minute)
			for b.Loop() {
				b.StopTimer()
				w := New(0)
				fill(w, at)
				b.StartTimer()
				delivered := 0
				for now := int64(1); now <= 10*minute; now++ {
					w.Advance(now, func(int64, uint64) { delivered++ })
				}
				if delivered != n {
					b.Fatalf("delivered %d of %d", delivered, n)
				}
			}
			perEntry(b, n)
		})
	}
}

// BenchmarkRecur is the steady state: every delivered entry is added again, so
// no memory comes from the system. One op is one millisecond.
func BenchmarkRecur(b *testing.B) {
	forSizes(b, func(b *testing.B, n int, span int64) {
		w := New(0)
		fill(w, times(n, span))
		before := heap()
		now, delivered := int64(0), 0
		for b.Loop() {
			now++
			w.Advance(now, func(at int64, key uint64) {
				delivered++
				w.Add(at+span, key)
			})
		}
		b.ReportMetric(float64(delivered)/float64(b.N), "entries/op")
		b.ReportMetric((float64(heap())-float64(before))/float64(n), "B/entry-growth")
		runtime.KeepAlive(w)
	})
}

// BenchmarkIdleTick is a tick when nothing is due, whatever else is there.
func BenchmarkIdleTick(b *testing.B) {
	for _, n := range append([]int{0}, sizes...) {
		b.Run(fmt.Sprintf("n=%dM", n/1_000_000), func(b *testing.B) {
			const far = 1000 * year // a benchmark of a billion ticks does not get there
			w := New(0)
			for i, t := range times(n, 24*60*minute) {
				w.Add(far+t, uint64(i))
			}
			now := int64(0)
			for b.Loop() {
				now++
				w.Advance(now, nil)
			}
		})
	}
}

// BenchmarkNext is what the owner's loop asks before each sleep.
func BenchmarkNext(b *testing.B) {
	w := New(0)
	for _, s := range spans {
		fill(w, times(1000, s.ms))
	}
	for b.Loop() {
		w.Next()
	}
}

// BenchmarkJumpYear advances an empty wheel by a year at a time.
func BenchmarkJumpYear(b *testing.B) {
	w := New(0)
	w.Add(1, 1)
	now := int64(0)
	for b.Loop() {
		now += year
		w.Advance(now, func(int64, uint64) {})
	}
}

// BenchmarkHotSecond delivers half a million entries due in one second.
func BenchmarkHotSecond(b *testing.B) {
	const n = 500_000
	at := times(n, 1000)
	for b.Loop() {
		b.StopTimer()
		w := New(-5 * minute)
		fill(w, at)
		b.StartTimer()
		w.Advance(1000, func(int64, uint64) {})
	}
	perEntry(b, n)
}
