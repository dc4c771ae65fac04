package wheel

type entry struct {
	at  uint64
	key uint64
}

const (
	// blockLen trades the waste in the partly filled block of each slot (at
	// most levels × slots blocks, 3.7 MB) against the header's share. With 31
	// entries a block is 512 bytes, whole cache lines, and a slab is 128 KiB,
	// whole pages: at 520 bytes the allocator's rounding cost 0.8 bytes an
	// entry, more than the header does.
	blockLen = 31
	slabLen  = 256
)

// block is a piece of a slot's chain. It has no pointers, so the garbage
// collector never looks inside, however many millions there are.
type block struct {
	next    uint32
	n       uint32
	_       uint64
	entries [blockLen]entry
}

// arena hands out blocks by number, from 1, and takes them back for reuse. A
// slot's chain is pushed and popped at its front.
type arena struct {
	slabs []*[slabLen]block
	used  uint32 // blocks ever handed out
	freed uint32 // chain of blocks given back
}

func (a *arena) block(b uint32) *block {
	b--
	return &a.slabs[b/slabLen][b%slabLen]
}

// push adds an entry to the chain that begins with b and returns its new
// beginning.
func (a *arena) push(b uint32, e entry) uint32 {
	if b != 0 {
		if blk := a.block(b); blk.n < blockLen {
			blk.entries[blk.n] = e
			blk.n++
			return b
		}
	}
	nb := a.alloc()
	blk := a.block(nb)
	blk.next, blk.n = b, 1
	blk.entries[0] = e
	return nb
}

// pop takes an entry from the chain that begins with b and returns the chain's
// new beginning.
func (a *arena) pop(b uint32) (entry, uint32) {
	blk := a.block(b)
	blk.n--
	e := blk.entries[blk.n]
	if blk.n == 0 {
		next := blk.next
		a.free(b)
		b = next
	}
	return e, b
}

func (a *arena) alloc() uint32 {
	if b := a.freed; b != 0 {
		a.freed = a.block(b).next
		return b
	}
	if a.used%slabLen == 0 {
		a.slabs = append(a.slabs, new([slabLen]block))
	}
	a.used++
	return a.used
}

func (a *arena) free(b uint32) {
	a.block(b).next = a.freed
	a.freed = b
}
