package wheel

import (
	"math"
	"slices"
	"testing"
	"unsafe"
)

const start = 1_700_000_000_123

// New returns an empty wheel whose time is now.
func New(now int64) *Wheel { return &Wheel{now: now} }

// drain advances w to now and returns what is given out.
func drain(w *Wheel, now int64) (got []int64) {
	w.Advance(now, func(at int64) { got = append(got, at) })
	return got
}

func TestGivesOutEachTimeOnceAndInOrder(t *testing.T) {
	w := New(start)
	for _, d := range []int64{Span - 1, 64, 1, 63, 4096, 64, 1 << 18, 1} {
		if !w.Add(start + d) {
			t.Errorf("a time %d ms ahead does not fit", d)
		}
	}
	if w.Len() != 6 {
		t.Errorf("Len = %d", w.Len())
	}
	if got, want := drain(w, start+63), []int64{start + 1, start + 63}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if at, ok := w.Next(); at != start+64 || !ok {
		t.Errorf("Next = %d, %v", at, ok)
	}
	if got, want := drain(w, start+10*Span), []int64{start + 64, start + 4096, start + 1<<18, start + Span - 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, ok := w.Next(); ok || w.Len() != 0 {
		t.Error("something is left")
	}
}

// A time that does not fit is refused: it would stand for an earlier one.
func TestRefusesWhatIsTooFarAhead(t *testing.T) {
	w := New(start)
	if w.Add(start+Span) || w.Len() != 0 {
		t.Error("a time beyond the wheel was taken")
	}
	drain(w, start+1)
	if !w.Add(start + Span) {
		t.Error("it fits now")
	}
	if got := drain(w, start+Span); !slices.Equal(got, []int64{start + Span}) {
		t.Errorf("%v", got)
	}
}

func TestWhatIsLateComesFirst(t *testing.T) {
	w := New(1000)
	for _, at := range []int64{1001, 900, -5, 1000, 900, 900} {
		w.Add(at)
	}
	if at, ok := w.Next(); at != -5 || !ok {
		t.Errorf("Next = %d, %v", at, ok)
	}
	if got, want := drain(w, 1000), []int64{-5, 900, 1000}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	w.Add(3) // late again: it is given out again
	if got, want := drain(w, 1001), []int64{3, 1001}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestBackwardsOnlyByReset(t *testing.T) {
	w := New(start)
	w.Add(start + 5)
	w.Add(start - 5)
	if got := drain(w, start-1); got != nil {
		t.Errorf("%v", got)
	}
	w.Reset(start - 100)
	if w.Len() != 0 {
		t.Error("Reset left something")
	}
	w.Add(start)
	if got := drain(w, start); !slices.Equal(got, []int64{start}) {
		t.Errorf("%v", got)
	}
}

// However much is due, the wheel takes what it took when it was empty.
func TestMemoryIsConstant(t *testing.T) {
	if size := unsafe.Sizeof(Wheel{}); size > 136<<10 {
		t.Errorf("a wheel takes %d bytes", size)
	}
	w := New(start)
	// The least of several: the runtime allocates for itself now and then, and what the wheel does it does every time.
	least := math.Inf(1)
	for range 5 {
		least = min(least, testing.AllocsPerRun(1, func() {
			for at := int64(start); at < start+Span; at++ {
				w.Add(at + 1)
				w.Add(at + 1)
			}
		}))
	}
	if least != 0 {
		t.Errorf("%v allocations", least)
	}
	if w.Len() != Span-1 {
		t.Errorf("Len = %d", w.Len())
	}
	if got := len(drain(w, start+2*Span)); got != Span-1 {
		t.Errorf("%d times", got)
	}
}
