package wheel

import "math/bits"

// level is one ring of slots. A slot is a chain of blocks, 0 if empty.
type level struct {
	head [slots]uint32

	// Which slots are occupied, and which words of that: finding the next
	// occupied slot takes two steps however empty the ring is, and that is what
	// makes an idle tick and a jump of a year cost the same.
	occupied [slots / 64]uint64
	words    uint16
}

func (l *level) mark(slot uint64) {
	l.occupied[slot/64] |= 1 << (slot % 64)
	l.words |= 1 << (slot / 64)
}

// unmark reports whether the level is empty now.
func (l *level) unmark(slot uint64) (empty bool) {
	l.occupied[slot/64] &^= 1 << (slot % 64)
	if l.occupied[slot/64] == 0 {
		l.words &^= 1 << (slot / 64)
	}
	return l.words == 0
}

// next returns how many slots after from, going round, the first occupied one
// is: 0 for from itself. The level must not be empty.
func (l *level) next(from uint64) uint64 {
	i := from / 64
	if m := l.occupied[i] >> (from % 64); m != 0 {
		return uint64(bits.TrailingZeros64(m))
	}
	// Rotated so that the word after i comes first; i itself comes last, for
	// its slots before from.
	i += 1 + uint64(bits.TrailingZeros16(bits.RotateLeft16(l.words, -int(i+1))))
	i %= slots / 64
	slot := i*64 + uint64(bits.TrailingZeros64(l.occupied[i]))
	return (slot - from) % slots
}
