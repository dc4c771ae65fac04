package wheel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

const year = 365 * 24 * 3600 * 1000

// drain advances w to now and returns the keys in the order of delivery.
func drain(w *Wheel, now int64) []uint64 {
	var got []uint64
	w.Advance(now, func(_ int64, key uint64) { got = append(got, key) })
	return got
}

func TestDeliversInOrderAcrossLevels(t *testing.T) {
	const start = 1_700_000_000_123
	w := New(start)
	var want []uint64
	// Around every level's boundary: the last time it holds, and the next.
	for i, d := range []int64{1, 1022, 1023, 1024, 1025, 1 << 20, 1<<20 + 1, 1 << 30, 1 << 40, 1 << 50, 1 << 60} {
		w.Add(start+d, uint64(i))
		want = append(want, uint64(i))
	}
	if got := drain(w, math.MaxInt64); !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	if w.Len() != 0 {
		t.Errorf("Len = %d after everything was delivered", w.Len())
	}
}

func TestExtremeTimes(t *testing.T) {
	w := New(math.MinInt64)
	for i, at := range []int64{math.MaxInt64, 0, math.MinInt64, -1, math.MinInt64 + 1, math.MaxInt64 - 1} {
		w.Add(at, uint64(i))
	}
	if at, ok := w.Next(); at != math.MinInt64 || !ok {
		t.Errorf("Next = %d, %v", at, ok)
	}
	if got, want := drain(w, math.MaxInt64), []uint64{2, 4, 3, 1, 5, 0}; !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	w.Add(math.MaxInt64, 7)
	if got := drain(w, math.MaxInt64); !slices.Equal(got, []uint64{7}) {
		t.Errorf("delivered %v at the end of time", got)
	}
}

func TestOverdueIsSortedAndComesFirst(t *testing.T) {
	w := New(1000)
	w.Add(1001, 4)
	w.Add(900, 2)
	w.Add(-5, 1)
	w.Add(1000, 3)
	if at, ok := w.Next(); at != -5 || !ok {
		t.Errorf("Next = %d, %v; want -5", at, ok)
	}
	if got := drain(w, 1000); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("delivered %v", got)
	}
	if got := drain(w, 1001); !slices.Equal(got, []uint64{4}) {
		t.Errorf("delivered %v", got)
	}
}

func TestBackwardsIsNoOp(t *testing.T) {
	w := New(1000)
	w.Add(900, 1)
	if got := drain(w, 999); got != nil {
		t.Errorf("delivered %v while going backwards", got)
	}
	w.Add(1500, 2)
	if got := drain(w, 1600); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("delivered %v", got)
	}
}

func TestAddFromCallback(t *testing.T) {
	w := New(0)
	w.Add(10, 0)
	var got []int64
	fn := func(at int64, key uint64) {
		got = append(got, at)
		w.Add(at+10, key) // reached by this Advance while at+10 <= 100
		if at == 50 {
			w.Add(50, 99) // due already: must not keep this Advance from ending
			w.Add(3, 98)
		}
	}
	w.Advance(100, fn)
	if want := []int64{10, 20, 30, 40, 50, 60, 70, 80, 90, 100}; !slices.Equal(got, want) {
		t.Fatalf("delivered at %v, want %v", got, want)
	}
	if got := drain(w, 100); !slices.Equal(got, []uint64{98, 99}) {
		t.Errorf("next Advance delivered %v", got)
	}
	if at, _ := w.Next(); at != 110 || w.Len() != 1 {
		t.Errorf("Next = %d, Len = %d", at, w.Len())
	}
}

func TestPanicInCallbackLosesNothingElse(t *testing.T) {
	w := New(0)
	for key := range uint64(100) {
		w.Add(int64(key%2)*5-1, key) // half overdue, half in one slot
	}
	seen := map[uint64]int{}
	for w.Len() > 0 {
		func() {
			defer func() { _ = recover() }()
			w.Advance(10, func(_ int64, key uint64) {
				if seen[key]++; key%7 == 0 {
					panic("bad job")
				}
			})
		}()
	}
	for key := range uint64(100) {
		if seen[key] != 1 {
			t.Errorf("key %d delivered %d times", key, seen[key])
		}
	}
}

func TestReset(t *testing.T) {
	w := New(5000)
	for i := range int64(1000) {
		w.Add(i*i*i, uint64(i))
	}
	w.Reset(10)
	if _, ok := w.Next(); ok || w.Len() != 0 {
		t.Error("not empty after Reset")
	}
	w.Add(20, 1) // in the past of the old wheel, in the future of this one
	if at, ok := w.Next(); at != 20 || !ok {
		t.Errorf("Next = %d, %v", at, ok)
	}
	if got := drain(w, year); !slices.Equal(got, []uint64{1}) {
		t.Errorf("delivered %v", got)
	}
}

// A user who sleeps until Next and calls Advance must not wake more often per
// entry than there are levels.
func TestSleepingOnNext(t *testing.T) {
	for d := int64(1); d < 1<<50; d = d*3 + 1 {
		w := New(12345)
		w.Add(12345+d, 1)
		wakes, done := 0, int64(0)
		for ; done == 0; wakes++ {
			next, _ := w.Next()
			w.Advance(next, func(int64, uint64) { done = next })
		}
		if done != 12345+d || wakes > levels {
			t.Errorf("entry %d ms away: delivered at %d after %d wakes", d, done-12345, wakes)
		}
	}
}

// The bound is 17 bytes an entry and 4 MiB for partly filled blocks, whatever
// the distribution: for a million entries 21 bytes each, for more, less.
func TestMemoryIsReusedAndBounded(t *testing.T) {
	const n = 1 << 18
	const bound = 17*n + 4<<20
	footprint := func(w *Wheel) uintptr {
		size := uintptr(len(w.arena.slabs)) * unsafe.Sizeof(*w.arena.slabs[0])
		for _, l := range w.level {
			if l != nil {
				size += unsafe.Sizeof(*l)
			}
		}
		return size
	}
	for _, span := range []int64{1000, 600_000, 24 * 3600_000, 100 * year} {
		r := rand.New(rand.NewPCG(1, uint64(span)))
		w := New(0)
		for key := range uint64(n) {
			w.Add(1+r.Int64N(span), key)
		}
		if b := footprint(w); b > bound {
			t.Errorf("over %d ms: %d bytes for %d entries", span, b, n)
		}
		// Each entry comes back as a recurring job's does.
		for step := range int64(12) {
			w.Advance((step+1)*span/10, func(at int64, key uint64) { w.Add(at+1+r.Int64N(span), key) })
		}
		if b := footprint(w); b > bound || w.Len() != n {
			t.Errorf("over %d ms after turnover: %d bytes, Len %d", span, b, w.Len())
		}
	}
}
