package executor

import "sync"

// tailBuffer keeps the last bytes written to it, in constant memory.
type tailBuffer struct {
	mu   sync.Mutex
	ring []byte
	at   int  // where the next byte goes
	full bool // the ring has wrapped
}

func newTailBuffer(n int) *tailBuffer { return &tailBuffer{ring: make([]byte, n)} }

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(p)
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
	if !b.full {
		return append([]byte(nil), b.ring[:b.at]...)
	}
	return append(append([]byte(nil), b.ring[b.at:]...), b.ring[:b.at]...)
}
