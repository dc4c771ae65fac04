package wheel

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// op is one step of a model test.
type op struct {
	Advance bool
	Delta   int64 // from the current time
}

// model is a wheel done naively.
type model struct {
	now   int64
	times map[int64]bool
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// addTime keeps a model's time in range: a sum that overflows would be a mistake of the test.
func addTime(t, d int64) int64 {
	switch s := t + d; {
	case d > 0 && s < t:
		return math.MaxInt64
	case d < 0 && s > t:
		return math.MinInt64
	default:
		return s
	}
}

// runModel plays ops on a wheel and on the model, and compares what is given out and, after every step, Next.
func runModel(t fataler, start int64, ops []op) {
	t.Helper()
	w, m := New(start), &model{start, map[int64]bool{}}
	for _, o := range ops {
		at := addTime(m.now, o.Delta)
		if o.Advance {
			var want []int64
			if at >= m.now {
				m.now = at
				for _, x := range slices.Sorted(maps.Keys(m.times)) {
					if x <= at {
						want = append(want, x)
						delete(m.times, x)
					}
				}
			}
			if got := drain(w, at); !slices.Equal(got, want) {
				t.Fatalf("Advance(%d) from %d gave %v, want %v", at, w.now, got, want)
			}
		} else {
			fits := at < m.now || uint64(at)-uint64(m.now) < Span
			if got := w.Add(at); got != fits {
				t.Fatalf("Add(%d) at %d = %v", at, m.now, got)
			}
			if fits {
				m.times[at] = true
			}
		}
		at, ok := w.Next()
		if ok != (len(m.times) > 0) || ok && at != slices.Min(slices.Collect(maps.Keys(m.times))) {
			t.Fatalf("Next = %d, %v with %v in the wheel", at, ok, slices.Sorted(maps.Keys(m.times)))
		}
	}
}

// deltas are near the boundaries of words, of the words above them, and of the wheel.
var deltas = rapid.OneOf(
	rapid.Int64Range(-5, 130),
	rapid.Int64Range(1<<12-70, 1<<12+70),
	rapid.Int64Range(1<<18-70, 1<<18+70),
	rapid.Int64Range(Span-70, Span+70),
	rapid.Int64Range(-Span, 2*Span),
	rapid.Int64(),
)

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.OneOf(rapid.Int64Range(-2*Span, 2*Span), rapid.Just(int64(1_700_000_000_123)), rapid.Int64()).Draw(t, "start")
		ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
			return op{rapid.IntRange(0, 3).Draw(t, "kind") == 0, deltas.Draw(t, "delta")}
		}), 1, 200).Draw(t, "ops")
		runModel(t, start, ops)
	})
}

func FuzzModel(f *testing.F) {
	f.Add(int64(0), []byte{0, 1, 0, 0, 1, 2, 0, 0})
	f.Add(int64(math.MaxInt64-3), []byte{0, 9, 0, 0, 1, 9, 0, 0})
	f.Fuzz(func(t *testing.T, start int64, data []byte) {
		var ops []op
		for ; len(data) >= 4 && len(ops) < 1000; data = data[4:] {
			// 24 bits of a signed delta: beyond the wheel both ways.
			ops = append(ops, op{data[0]&1 == 1, int64(int32(binary.LittleEndian.Uint32(data)&^0xff)) >> 8})
		}
		runModel(t, start, ops)
	})
}
