// Package wheel is a timing wheel: it holds the times, to the millisecond, at which something is due within the next
// minutes, and gives them out in order as time is advanced.
//
// It is a pure data structure: it reads no clock, starts no goroutine and does no I/O. DESIGN.md says why it looks the
// way it does.
package wheel

import (
	"math"
	"math/bits"
	"slices"
)

const (
	spanBits = 20
	// Span is how far ahead of its time a wheel reaches, in milliseconds: about 17 minutes.
	Span = 1 << spanBits
	mask = Span - 1
)

// Wheel is a set of times. It is not safe for concurrent use and must be made by New.
type Wheel struct {
	now  int64
	len  int
	late []int64 // what was due when it was added

	// A slot is a bit, and stands for one of the times after now that are equal to its number modulo Span: there is one
	// such time within Span. A bit of a level above says that a word of the level below is not zero, so the next slot
	// is found in a few steps however empty the wheel is.
	slots [Span / 64]uint64
	sum1  [Span / 64 / 64]uint64
	sum2  [Span / 64 / 64 / 64]uint64
}

// Len returns how many times the wheel holds. One that was due when it was added counts as often as it was added.
func (w *Wheel) Len() int { return w.len + len(w.late) }

// Reset drops everything and sets the time, which may go backwards here and only here.
func (w *Wheel) Reset(now int64) { *w = Wheel{now: now} }

// Add puts a time into the wheel. One that is there already stays there once. What is due (at <= now) is given out by
// the next Advance. It says false for a time that is Span or more ahead, which the wheel cannot hold.
func (w *Wheel) Add(at int64) bool {
	switch {
	case at <= w.now:
		if n := len(w.late); n == 0 || w.late[n-1] != at {
			w.late = append(w.late, at)
		}
		return true
	case uint64(at)-uint64(w.now) >= Span:
		return false
	}
	slot := uint64(at) & mask
	i, bit := slot/64, uint64(1)<<(slot%64)
	if w.slots[i]&bit == 0 {
		w.slots[i] |= bit
		w.sum1[i/64] |= 1 << (i % 64)
		w.sum2[i/64/64] |= 1 << (i / 64 % 64)
		w.len++
	}
	return true
}

// Advance moves the time to now and calls fn for every time in the wheel up to it, once and in order. A now before the
// wheel's time does nothing. fn must not use the wheel.
func (w *Wheel) Advance(now int64, fn func(at int64)) {
	if now < w.now {
		return
	}
	if len(w.late) > 0 {
		slices.Sort(w.late)
		for i, at := range w.late {
			if i == 0 || at != w.late[i-1] {
				fn(at)
			}
		}
		w.late = w.late[:0]
		if cap(w.late) > maxSpareLate {
			w.late = nil
		}
	}
	for w.len > 0 {
		at := w.first()
		if at > now {
			break
		}
		w.now = at
		w.drop(uint64(at) & mask)
		fn(at)
	}
	w.now = now
}

// maxSpareLate is how many late times a wheel keeps room for when it has none.
const maxSpareLate = 1 << 10

// Next returns the earliest time; ok is false if the wheel is empty.
func (w *Wheel) Next() (at int64, ok bool) {
	switch {
	case len(w.late) > 0:
		return slices.Min(w.late), true
	case w.len > 0:
		return w.first(), true
	}
	return math.MaxInt64, false
}

// first returns the earliest time in a slot; there must be one.
func (w *Wheel) first() int64 {
	from := uint64(w.now+1) & mask
	slot, ok := w.next(from)
	if !ok {
		slot, _ = w.next(0) // going round
	}
	return w.now + 1 + int64((slot-from)&mask)
}

// next returns the first occupied slot that is not before from.
func (w *Wheel) next(from uint64) (slot uint64, ok bool) {
	i := from / 64
	if m := w.slots[i] >> (from % 64); m != 0 {
		return from + uint64(bits.TrailingZeros64(m)), true
	}
	i, ok = w.nextWord(i + 1)
	return i*64 + uint64(bits.TrailingZeros64(w.slots[i%uint64(len(w.slots))])), ok
}

// nextWord returns the first word of slots, not before from, that is not zero.
func (w *Wheel) nextWord(from uint64) (uint64, bool) {
	if from == uint64(len(w.slots)) {
		return 0, false
	}
	i := from / 64
	if m := w.sum1[i] >> (from % 64); m != 0 {
		return from + uint64(bits.TrailingZeros64(m)), true
	}
	for i++; i < uint64(len(w.sum1)); i = (i/64 + 1) * 64 {
		if m := w.sum2[i/64] >> (i % 64); m != 0 {
			i += uint64(bits.TrailingZeros64(m))
			return i*64 + uint64(bits.TrailingZeros64(w.sum1[i])), true
		}
	}
	return 0, false
}

func (w *Wheel) drop(slot uint64) {
	w.len--
	i := slot / 64
	if w.slots[i] &^= 1 << (slot % 64); w.slots[i] != 0 {
		return
	}
	if w.sum1[i/64] &^= 1 << (i % 64); w.sum1[i/64] == 0 {
		w.sum2[i/64/64] &^= 1 << (i / 64 % 64)
	}
}
