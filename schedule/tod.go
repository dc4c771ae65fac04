package schedule

import "math/bits"

// times is a set of times of the day: every combination of the hours, minutes and seconds whose bits are set. pick,
// where it is not nil, holds the chosen ones instead, sorted (BYSETPOS of an RRULE).
type times struct {
	sec, min uint64
	hour     uint32
	pick     []int32
}

func lowest(m uint64) int64  { return int64(bits.TrailingZeros64(m)) }
func highest(m uint64) int64 { return int64(bits.Len64(m)) - 1 }

func (t *times) first() int64 {
	if t.pick != nil {
		return int64(t.pick[0])
	}
	return lowest(uint64(t.hour))*3600 + lowest(t.min)*60 + lowest(t.sec)
}

func (t *times) last() int64 {
	if t.pick != nil {
		return int64(t.pick[len(t.pick)-1])
	}
	return highest(uint64(t.hour))*3600 + highest(t.min)*60 + highest(t.sec)
}

// next is the first time of the set at or after a second of the day, or never.
func (t *times) next(sod int64) int64 {
	if t.pick != nil {
		for _, p := range t.pick {
			if int64(p) >= sod {
				return int64(p)
			}
		}
		return never
	}
	h, m, s := uint64(sod)/3600, uint64(sod)/60%60, uint64(sod)%60
	if t.hour>>h&1 != 0 {
		if t.min>>m&1 != 0 {
			if r := t.sec >> s; r != 0 {
				return sod + lowest(r)
			}
		}
		if r := t.min >> (m + 1); r != 0 {
			return int64(h)*3600 + (int64(m)+1+lowest(r))*60 + lowest(t.sec)
		}
	}
	if r := t.hour >> (h + 1); r != 0 {
		return (int64(h)+1+lowest(uint64(r)))*3600 + lowest(t.min)*60 + lowest(t.sec)
	}
	return never
}

// prev is the last time of the set at or before a second of the day, or before.
func (t *times) prev(sod int64) int64 {
	if t.pick != nil {
		for i := len(t.pick) - 1; i >= 0; i-- {
			if int64(t.pick[i]) <= sod {
				return int64(t.pick[i])
			}
		}
		return before
	}
	h, m, s := uint64(sod)/3600, uint64(sod)/60%60, uint64(sod)%60
	if t.hour>>h&1 != 0 {
		if t.min>>m&1 != 0 {
			if r := t.sec & (2<<s - 1); r != 0 {
				return int64(h)*3600 + int64(m)*60 + highest(r)
			}
		}
		if r := t.min & (1<<m - 1); r != 0 {
			return int64(h)*3600 + highest(r)*60 + highest(t.sec)
		}
	}
	if r := t.hour & (1<<h - 1); r != 0 {
		return highest(uint64(r))*3600 + highest(t.min)*60 + highest(t.sec)
	}
	return before
}

// size is the number of times in the set.
func (t *times) size() int {
	if t.pick != nil {
		return len(t.pick)
	}
	return bits.OnesCount32(t.hour) * bits.OnesCount64(t.min) * bits.OnesCount64(t.sec)
}

// nth is the i-th time of the set, from 0.
func (t *times) nth(i int) int64 {
	if t.pick != nil {
		return int64(t.pick[i])
	}
	ns, nm := bits.OnesCount64(t.sec), bits.OnesCount64(t.min)
	return nthBit(uint64(t.hour), i/(ns*nm))*3600 + nthBit(t.min, i/ns%nm)*60 + nthBit(t.sec, i%ns)
}

func nthBit(m uint64, i int) int64 {
	for ; i > 0; i-- {
		m &= m - 1
	}
	return lowest(m)
}
