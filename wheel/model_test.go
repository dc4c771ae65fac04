package wheel

import (
	"cmp"
	"encoding/binary"
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

// model is a wheel done naively: a sorted list.
type model struct {
	now     int64
	entries []modelEntry
}

type modelEntry struct {
	at    int64
	key   uint64
	later bool // added during an Advance, when it was already due
}

func (m *model) add(at int64, key uint64, advancing bool) {
	e := modelEntry{at, key, advancing && at <= m.now}
	i, _ := slices.BinarySearchFunc(m.entries, e, func(a, b modelEntry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key))
	})
	m.entries = slices.Insert(m.entries, i, e)
}

// first returns the position of the earliest entry this Advance may deliver.
func (m *model) first() int {
	return slices.IndexFunc(m.entries, func(e modelEntry) bool { return !e.later })
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// addTime keeps a model's time in range: a sum that overflows would be a
// mistake of the test.
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

// runModel plays ops on a wheel and on the model and compares every delivery,
// and Len and Next after every step.
func runModel(t fataler, start int64, ops []op) {
	t.Helper()
	w, m := New(start), &model{now: start}
	var key uint64
	for _, o := range ops {
		at := addTime(m.now, o.Delta)
		if !o.Advance {
			key++
			w.Add(at, key)
			m.add(at, key, false)
			checkState(t, w, m)
			continue
		}
		calls := 0
		w.Advance(at, func(got int64, k uint64) {
			calls++
			if got > at {
				t.Fatalf("Advance(%d) delivered %d", at, got)
			}
			i := m.first()
			if i < 0 || m.entries[i].at != got {
				t.Fatalf("Advance(%d) delivered (%d, %d), model has %+v", at, got, k, m.entries)
			}
			i = slices.IndexFunc(m.entries, func(e modelEntry) bool { return !e.later && e.at == got && e.key == k })
			if i < 0 {
				t.Fatalf("Advance(%d) delivered (%d, %d), which the model does not hold", at, got, k)
			}
			m.entries = slices.Delete(m.entries, i, i+1)
			m.now = max(m.now, got)
			checkState(t, w, m)
			// Some entries come back as a recurring job does: soon, far, or late.
			if k%3 == 0 && calls < 200 {
				key++
				back := addTime(got, []int64{-7, 0, 1, 63, 1023, 1024, 70_000, 1 << 21, 1 << 33}[k/3%9])
				w.Add(back, key)
				m.add(back, key, true)
			}
		})
		if at >= m.now {
			m.now = at
			if i := m.first(); i >= 0 && m.entries[i].at <= at {
				t.Fatalf("Advance(%d) left %+v", at, m.entries[i])
			}
		}
		for i := range m.entries {
			m.entries[i].later = false
		}
		checkState(t, w, m)
	}
	// Whatever is left comes out in order.
	var want, got []int64
	for _, e := range m.entries {
		want = append(want, e.at)
	}
	w.Advance(math.MaxInt64, func(at int64, _ uint64) { got = append(got, at) })
	if !slices.Equal(got, want) {
		t.Fatalf("left over: got %v, want %v", got, want)
	}
}

func checkState(t fataler, w *Wheel, m *model) {
	t.Helper()
	if w.Len() != len(m.entries) {
		t.Fatalf("Len = %d, want %d", w.Len(), len(m.entries))
	}
	next, ok := w.Next()
	if ok != (len(m.entries) > 0) {
		t.Fatalf("Next ok = %v with %d entries", ok, len(m.entries))
	}
	if !ok {
		return
	}
	first := m.entries[0].at
	if next > first {
		t.Fatalf("Next = %d, later than the first entry at %d", next, first)
	}
	if first <= m.now && next != first {
		t.Fatalf("Next = %d, the overdue entry is at %d", next, first)
	}
	if first > m.now && next < m.now {
		t.Fatalf("Next = %d lies before now %d, nothing is overdue", next, m.now)
	}
	// An entry sits in a slot no wider than its distance was when it was
	// added; the model forgot that distance, but a slot's start is aligned.
	if next != first && next%slots != 0 {
		t.Fatalf("Next = %d is neither the first entry (%d) nor the start of a slot", next, first)
	}
}

func TestModel(t *testing.T) {
	delta := rapid.OneOf(
		rapid.Int64Range(-5, 5),
		rapid.Int64Range(-2000, 3000),
		rapid.Int64Range(0, 1<<22),
		rapid.Int64Range(0, 1<<34),
		rapid.Int64(),
	)
	ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		return op{Advance: rapid.IntRange(0, 3).Draw(t, "kind") == 0, Delta: delta.Draw(t, "delta")}
	}), 0, 200)
	start := rapid.OneOf(rapid.Just(int64(1_700_000_000_000)), rapid.Int64Range(-5000, 5000), rapid.Int64())
	rapid.Check(t, func(t *rapid.T) {
		runModel(t, start.Draw(t, "start"), ops.Draw(t, "ops"))
	})
}

func FuzzModel(f *testing.F) {
	f.Add(int64(0), []byte{})
	f.Add(int64(1_700_000_000_000), []byte{0, 5, 0, 200, 1, 200, 2, 255, 255, 3, 255, 255})
	f.Add(int64(-1), []byte{4, 1, 2, 3, 4, 5, 6, 7, 8, 5, 0, 0, 1, 0, 0, 0, 0, 0, 6, 9, 7, 9})
	f.Fuzz(func(t *testing.T, start int64, data []byte) {
		runModel(t, start, decodeOps(data))
	})
}

// decodeOps reads ops as one byte for the kind, the sign and the size of the
// distance, and that distance: few bytes make many operations.
func decodeOps(data []byte) []op {
	var ops []op
	for len(data) > 1 && len(ops) < 500 {
		kind := data[0]
		var buf [8]byte
		n := copy(buf[:1<<(kind>>1&3)], data[1:])
		data = data[1+n:]
		d := int64(binary.LittleEndian.Uint64(buf[:]))
		if kind&8 != 0 {
			d = -d
		}
		ops = append(ops, op{Advance: kind&1 != 0, Delta: d})
	}
	return ops
}
