package wheel

import (
	"math/rand/v2"
	"testing"
)

const ahead = 10 * 60_000 // how far the scheduler fills it

// times makes the times beforehand: a random number costs as much as an Add.
func times() []int64 {
	r := rand.New(rand.NewPCG(1, 2))
	at := make([]int64, 1<<20)
	for i := range at {
		at[i] = 1 + r.Int64N(ahead)
	}
	return at
}

func full() *Wheel {
	w := New(0)
	for _, at := range times() {
		w.Add(at)
	}
	return w
}

func BenchmarkAdd(b *testing.B) {
	at := times()
	w := New(0)
	for i := 0; b.Loop(); i++ {
		w.Add(at[i%len(at)])
	}
}

// BenchmarkRecur is a tick of one millisecond in a full wheel: what it gives out is due again within ten minutes.
func BenchmarkRecur(b *testing.B) {
	w, at := full(), times()
	i := 0
	for now := int64(1); b.Loop(); now++ {
		n := 0
		w.Advance(now, func(int64) { n++ })
		for range n {
			i++
			w.Add(now + at[i%len(at)])
		}
	}
}

// BenchmarkIdleTick is a millisecond in which nothing is due.
func BenchmarkIdleTick(b *testing.B) {
	w := New(0)
	w.Add(ahead)
	n := int64(0)
	for b.Loop() {
		if n++; n == ahead-1 {
			n = 1
			w.Reset(0)
			w.Add(ahead)
		}
		w.Advance(n, func(int64) { b.Fatal("due") })
	}
}

func BenchmarkNext(b *testing.B) {
	w := New(0)
	w.Add(ahead)
	for b.Loop() {
		w.Next()
	}
}
