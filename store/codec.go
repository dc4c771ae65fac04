package store

import "encoding/binary"

// writer and reader are the codec of the small records: fixed order, no reflection. A reader that runs out sets bad and
// returns zeros, so that a decoder checks once at its end.
type writer struct{ b []byte }

func (w *writer) u8(v uint8)    { w.b = append(w.b, v) }
func (w *writer) u16(v uint16)  { w.b = binary.BigEndian.AppendUint16(w.b, v) }
func (w *writer) u32(v uint32)  { w.b = binary.BigEndian.AppendUint32(w.b, v) }
func (w *writer) u64(v uint64)  { w.b = binary.BigEndian.AppendUint64(w.b, v) }
func (w *writer) i64(v int64)   { w.u64(uint64(v)) }
func (w *writer) uvar(v uint64) { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) ivar(v int64)  { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) str(s string)  { w.uvar(uint64(len(s))); w.b = append(w.b, s...) }
func (w *writer) flag(v bool)   { w.u8(b2u(v)) }

func b2u(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}

type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || len(r.b) < n {
		r.bad = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) i64() int64 { return int64(r.u64()) }

func (r *reader) uvar() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) ivar() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// str copies: bytes from bbolt die with their transaction.
func (r *reader) str() string {
	n := r.uvar()
	if n > uint64(len(r.b)) {
		r.bad = true
		return ""
	}
	return string(r.take(int(n)))
}

func (r *reader) flag() bool { return r.u8() != 0 }

// end is nil if everything was there and nothing is left over.
func (r *reader) end() error {
	if r.bad || len(r.b) != 0 {
		return ErrCorrupt
	}
	return nil
}
