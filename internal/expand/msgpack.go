package expand

import (
	"errors"
)

var (
	errShort = errors.New("it ends in the middle of a value")
	errArray = errors.New("a list stands where a map belongs")
)

// Msgpack refuses a message whose values would take more memory than Most of its size if it were read into v, which is
// of the type or a pointer to it, and one that is not whole: the decoder makes values before it finds out.
func Msgpack(data []byte, v any) error {
	w := packWalk{b: data, count: newCount(len(data))}
	w.value(asMsgpack.of(v), maxDepth)
	if w.bad != nil {
		return w.bad
	}
	return w.result()
}

type packWalk struct {
	b   []byte // what is left
	bad error
	count
}

func (w *packWalk) take(n uint64) []byte {
	if n > uint64(len(w.b)) {
		w.bad, w.b = errShort, nil
		return nil
	}
	out := w.b[:n]
	w.b = w.b[n:]
	return out
}

func (w *packWalk) big(size uint64) (n uint64) {
	for _, c := range w.take(size) {
		n = n<<8 | uint64(c)
	}
	return n
}

// head reads what a value is: how many bytes follow that are its own, or how many values in a list or map.
func (w *packWalk) head() (bytes, values uint64, isMap, isList bool) {
	first := w.take(1)
	if first == nil {
		return 0, 0, false, false
	}
	switch c := first[0]; {
	case c < 0x80 || c >= 0xe0 || c >= 0xc0 && c <= 0xc3:
	case c < 0x90:
		return 0, uint64(c & 0x0f), true, false
	case c < 0xa0:
		return 0, uint64(c & 0x0f), false, true
	case c < 0xc0:
		return uint64(c & 0x1f), 0, false, false
	case c <= 0xc6:
		return w.big(1 << (c - 0xc4)), 0, false, false
	case c <= 0xc9: // an extension has a byte for its type
		return 1 + w.big(1<<(c-0xc7)), 0, false, false
	case c <= 0xcb:
		return 4 << (c - 0xca), 0, false, false
	case c <= 0xd3:
		return 1 << (c & 3), 0, false, false
	case c <= 0xd8:
		return 1 + 1<<(c-0xd4), 0, false, false
	case c <= 0xdb:
		return w.big(1 << (c - 0xd9)), 0, false, false
	case c <= 0xdd:
		return 0, w.big(2 << (c - 0xdc)), false, true
	default:
		return 0, w.big(2 << (c - 0xde)), true, false
	}
	return 0, 0, false, false
}

func (w *packWalk) value(s *shape, depth int) {
	for s != nil && s.kind == pointer {
		w.spend(s.elem.size)
		s = s.elem
	}
	if depth == 0 {
		w.fail(true)
		return
	}
	bytes, n, isMap, isList := w.head()
	if n > uint64(len(w.b)) { // each has a byte at least
		w.bad = errShort
		return
	}
	w.take(bytes)
	if s == nil {
		s = &skipped
	}
	if !isMap && !isList {
		switch s.kind {
		case text, opaque:
			w.spend(int64(bytes+7) &^ 7)
		case free:
			w.spend(anything.size + int64(bytes+7)&^7)
		}
		return
	}
	switch s.kind {
	case record:
		if isList {
			w.bad = errArray
			return
		}
		w.record(s, n, depth)
	case table, list, free:
		w.elements(s, n, isMap, depth)
	default: // of the wrong kind, or not known; bytes may be a list of numbers
		if isMap {
			n *= 2
		}
		if s.kind == opaque {
			w.spend(int64(n))
		}
		for ; n > 0 && w.going(); n-- {
			w.value(nil, depth-1)
		}
	}
}

var skipped = shape{kind: plain}

func (w *packWalk) going() bool { return w.bad == nil && w.err == nil }

func (w *packWalk) record(s *shape, n uint64, depth int) {
	for ; n > 0 && w.going(); n-- {
		key := w.key()
		w.enter(key)
		w.value(s.field(key), depth-1)
		if w.going() {
			w.leave()
		}
	}
}

// key is the name of a field; nil: it is no string.
func (w *packWalk) key() []byte {
	if len(w.b) > 0 && (w.b[0]&0xe0 == 0xa0 || w.b[0] >= 0xd9 && w.b[0] <= 0xdb || w.b[0] >= 0xc4 && w.b[0] <= 0xc6) {
		bytes, _, _, _ := w.head()
		return w.take(bytes)
	}
	w.value(nil, maxDepth)
	return nil
}

func (w *packWalk) elements(s *shape, n uint64, isMap bool, depth int) {
	if s.kind == free {
		s = anything
		w.spend(anyValue)
	}
	if isMap && s.kind == list { // the decoder takes it for a list of keys and values
		n, isMap = 2*n, false
	}
	elem := s.elem
	if s.kind == free {
		elem = anything
	}
	for ; n > 0 && w.going(); n-- {
		if isMap {
			w.spend(s.entry)
			w.value(&word, depth-1)
		} else {
			w.spend(elem.size)
		}
		w.value(elem, depth-1)
	}
}

// word is the key of a map.
var word = shape{kind: text}
