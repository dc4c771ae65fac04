// Package wheel is a hierarchical timing wheel: it holds millions of (time,
// key) pairs and hands them out in time order as time is advanced.
//
// It is a pure data structure: it reads no clock, starts no goroutine and does
// no I/O, so its owner decides what time is. DESIGN.md says why it looks
// the way it does.
package wheel

import (
	"cmp"
	"math/bits"
	"slices"
)

const (
	// slotBits is the width of one level's digit of a time. With ten bits a
	// slot of level 1 is about one second and the level spans 17.5 minutes.
	// The scheduler refills ten minutes ahead, so its entries move exactly
	// once between Add and delivery, and that move handles one second's worth.
	slotBits = 10
	slots    = 1 << slotBits

	// levels × slotBits covers all 64 bits of a time. There is no overflow
	// list because there is no time that does not fit.
	levels = 7
)

// Wheel holds entries until their time. Times are milliseconds.
//
// A Wheel is not safe for concurrent use. It must be made by New.
//
// There is no Remove: cancellation is lazy. The owner ignores what no longer
// matches when it is delivered.
type Wheel struct {
	now   uint64 // as a tick; during a callback, the time being delivered
	len   int
	busy  uint8 // bit L is set when level L holds entries
	level [levels]*level

	arena arena

	// What was already due when it was added waits in arrivals; the next
	// Advance moves it to overdue, sorted, and delivers it from there. They
	// are two lists so that a callback which adds something due now cannot
	// keep its own Advance from ending.
	arrivals overdue
	overdue  overdue
}

// New returns an empty wheel whose time is now.
func New(now int64) *Wheel {
	return &Wheel{now: tick(now)}
}

// Len returns how many entries the wheel holds.
func (w *Wheel) Len() int { return w.len }

// Reset drops every entry, gives the memory back to the garbage collector and
// sets the time, which may go backwards here and only here.
func (w *Wheel) Reset(now int64) { *w = Wheel{now: tick(now)} }

// Add puts key into the wheel, to be delivered at the time at. What is already
// due (at <= now) is delivered by the next Advance; every later time is
// accepted, however far away. The same pair may be added more than once and is
// then delivered as often.
//
// Inside a callback of Advance now is the time being delivered, so an entry
// added there for a later time that Advance has yet to reach is still delivered
// by it, and one for the same time or earlier waits for the next Advance.
func (w *Wheel) Add(at int64, key uint64) {
	e := entry{at: tick(at), key: key}
	w.len++
	if e.at <= w.now {
		w.arrivals.push(e)
		return
	}
	w.place(e)
}

// Advance moves the time to now and calls fn for every entry with at <= now, in
// non-decreasing order of at; entries of one millisecond come in no particular
// order. A now before the wheel's time does nothing.
//
// fn may call Add, Len and Next, but neither Advance nor Reset. An entry is out
// of the wheel before fn sees it; should fn panic, the others are still in it.
func (w *Wheel) Advance(now int64, fn func(at int64, key uint64)) {
	target := tick(now)
	if target < w.now {
		return
	}
	w.deliverOverdue(fn)
	for w.busy != 0 {
		t, lv := w.earliest()
		if t > target {
			break
		}
		// The time must be moved before anything is delivered or re-placed:
		// Add and place decide by the distance from it.
		w.now = t
		if lv == 0 {
			w.deliver(t, fn)
		} else {
			w.cascade(lv, t)
		}
	}
	w.now = target
}

// Next returns a time to sleep until: never later than the earliest entry, and
// exact once that entry has come down to the lowest level. Before, it is the
// start of the entry's slot, where Advance moves it down; at most one such stop
// per level separates an entry from its delivery. ok is false if the wheel is
// empty.
func (w *Wheel) Next() (at int64, ok bool) {
	switch {
	case w.len == 0:
		return 0, false
	case len(w.overdue.entries)+len(w.arrivals.entries) > 0:
		// All of these are due before anything on a level.
		return millis(min(w.overdue.earliest(), w.arrivals.earliest())), true
	}
	t, _ := w.earliest()
	return millis(t), true
}

// place puts an entry due now or later on the lowest level that can tell its
// slot from those of other rounds.
//
// The distance is counted in slots from the current one, not in digits that
// differ from now's: with the latter, all that lies beyond the next multiple of
// 17.5 minutes would pile up in one slot and come down at once.
func (w *Wheel) place(e entry) {
	lv, shift := 0, uint(0)
	for (e.at>>shift)-(w.now>>shift) >= slots {
		lv++
		shift += slotBits
	}
	l := w.level[lv]
	if l == nil {
		l = new(level)
		w.level[lv] = l
	}
	slot := (e.at >> shift) % slots
	b := l.head[slot]
	if b == 0 {
		l.mark(slot)
		w.busy |= 1 << lv
	}
	l.head[slot] = w.arena.push(b, e)
}

// earliest returns the start and the level of the first occupied slot. Some
// level must hold entries. Of slots that start together it returns the one of
// the highest level, so that a millisecond is complete before it is delivered;
// the order of delivery would be right either way.
func (w *Wheel) earliest() (t uint64, lv int) {
	t = ^uint64(0)
	for m := w.busy; m != 0; m &= m - 1 {
		i := bits.TrailingZeros8(m)
		shift := uint(i) * slotBits
		q := w.now >> shift
		q += w.level[i].next(q % slots)
		if start := q << shift; start <= t {
			t, lv = start, i
		}
	}
	return t, lv
}

// deliver hands out the entries of level 0 due at t. It takes them one by one,
// each out of the wheel before fn sees it, so that fn meets a consistent wheel.
func (w *Wheel) deliver(t uint64, fn func(at int64, key uint64)) {
	slot := t % slots
	for l := w.level[0]; l.head[slot] != 0; {
		e, b := w.arena.pop(l.head[slot])
		l.head[slot] = b
		if b == 0 {
			w.clear(0, slot)
		}
		w.len--
		fn(millis(e.at), e.key)
	}
}

// cascade moves the entries of the slot of level lv that starts at t to the
// levels below, where they now fit.
func (w *Wheel) cascade(lv int, t uint64) {
	l := w.level[lv]
	slot := (t >> (uint(lv) * slotBits)) % slots
	b := l.head[slot]
	l.head[slot] = 0
	w.clear(lv, slot)
	for b != 0 {
		blk := w.arena.block(b)
		for _, e := range blk.entries[:blk.n] {
			w.place(e)
		}
		next := blk.next
		w.arena.free(b)
		b = next
	}
}

func (w *Wheel) clear(lv int, slot uint64) {
	if w.level[lv].unmark(slot) {
		w.busy &^= 1 << lv
	}
}

func (w *Wheel) deliverOverdue(fn func(at int64, key uint64)) {
	if len(w.arrivals.entries) > 0 {
		w.overdue.take(&w.arrivals)
	}
	for len(w.overdue.entries) > 0 {
		e := w.overdue.entries[0]
		w.overdue.entries = w.overdue.entries[1:]
		w.len--
		fn(millis(e.at), e.key)
	}
	w.overdue.entries = nil
}

// overdue is a list of entries that were due when they were added.
type overdue struct {
	entries  []entry
	min      uint64
	unsorted bool
}

func (o *overdue) push(e entry) {
	switch n := len(o.entries); {
	case n == 0:
		o.min, o.unsorted = e.at, false
	case e.at < o.entries[n-1].at:
		o.min, o.unsorted = min(o.min, e.at), true
	}
	o.entries = append(o.entries, e)
}

// take moves all of from into o and sorts o. A new leader reads its backlog
// from the due index in time order, and then there is nothing to sort.
func (o *overdue) take(from *overdue) {
	if len(o.entries) == 0 {
		*o = *from
	} else { // a callback panicked and left some
		for _, e := range from.entries {
			o.push(e)
		}
	}
	*from = overdue{}
	if o.unsorted {
		slices.SortFunc(o.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
		o.unsorted = false
	}
}

func (o *overdue) earliest() uint64 {
	switch {
	case len(o.entries) == 0:
		return ^uint64(0)
	case o.unsorted:
		return o.min
	}
	return o.entries[0].at
}

// tick maps a time to an unsigned number that orders the same way, so that
// times before 1970 need no special case in shifts and distances.
func tick(ms int64) uint64     { return uint64(ms) ^ 1<<63 }
func millis(tick uint64) int64 { return int64(tick ^ 1<<63) }
