package checker

import (
	"maps"
	"slices"
)

// stampsBehind finds the records whose stamps lie before what had happened by then: before that of an earlier record,
// or before the claim of the attempt that they end, as where the clock was reset. Such a record was committed not later
// than the next one whose stamp is not behind, and not later than it was seen. A leader that holds records results all
// the same, dated by the last stamp.
func (c *checker) stampsBehind() {
	c.behind = map[uint64]int64{}
	stamps, claimed := c.in.Final.Recorded, map[uint64]int64{}
	for i := range c.in.Final.History {
		claimed[c.in.Final.History[i].Seq] = int64(c.in.Final.History[i].ClaimedAt)
	}
	seqs := slices.Sorted(maps.Keys(stamps))
	last := int64(0)
	var found []uint64
	settle := func(at int64) {
		if c.clocksWrong(last, at) {
			for _, seq := range found {
				c.behind[seq] = at
			}
		}
		found = nil
	}
	for _, seq := range seqs {
		if at := int64(stamps[seq]); at < max(last, claimed[seq])-c.clock {
			found = append(found, seq)
		} else {
			settle(max(last, at))
			last = max(last, at)
		}
	}
	settle(int64(c.in.Final.At))
	for seq, seen := range c.in.Final.Seen {
		if at := int64(seen); c.heldAt(int64(stamps[seq]), at) {
			c.behind[seq] = at
		}
	}
}

// heldAt says that a record with a stamp of before the end of an outage was seen first after its beginning: while a
// leader holds there are no other stamps.
func (c *checker) heldAt(stamp, seen int64) bool {
	return slices.ContainsFunc(c.in.Outages, func(o Outage) bool {
		return stamp < int64(o.To) && seen > int64(o.From) && seen > stamp
	})
}
