package executor

import "sync"

// tailBuffer keeps the last bytes written to it, in constant memory.
type tailBuffer struct {
	mu   sync.Mutex
	ring []byte
	at   int   // where the next byte goes
	full bool  // the ring has wrapped
	n    int64 // bytes written in all
}

// since is what was written from an offset on, as far as it is kept, and where that begins.
func (b *tailBuffer) since(offset int64) (int64, []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.bytesLocked()
	begin := b.n - int64(len(all))
	if offset < begin {
		offset = begin
	}
	return offset, all[min(offset-begin, int64(len(all))):]
}

func newTailBuffer(n int) *tailBuffer { return &tailBuffer{ring: make([]byte, n)} }

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(p)
	b.n += int64(n)
	if n >= len(b.ring) {
		copy(b.ring, p[n-len(b.ring):])
		b.at, b.full = 0, true
		return n, nil
	}
	c := copy(b.ring[b.at:], p)
	if c < n {
		copy(b.ring, p[c:])
	}
	b.full = b.full || b.at+n >= len(b.ring)
	b.at = (b.at + n) % len(b.ring)
	return n, nil
}

// Bytes is what is kept, oldest first.
func (b *tailBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytesLocked()
}

func (b *tailBuffer) bytesLocked() []byte {
	if !b.full {
		return append([]byte(nil), b.ring[:b.at]...)
	}
	return append(append([]byte(nil), b.ring[b.at:]...), b.ring[:b.at]...)
}
