package expand

import (
	"bytes"
	"encoding/json"
)

// JSON refuses a text whose values would take more memory than Most of its size if it were read into v, which is of the
// type or a pointer to it. Of a text that is not JSON it says nothing.
func JSON(data []byte, v any) error {
	w := jsonWalk{b: data, count: newCount(len(data))}
	w.value(asJSON.of(v), maxDepth)
	return w.result()
}

// jsonWalk goes through a text beside the type that it is to be read into. It takes everything that is JSON, and may
// take more: the decoder looks at the whole of a text before it makes anything of it.
type jsonWalk struct {
	b  []byte
	at int
	count
}

// next is the next byte that means something; 0 at the end, or when enough is known.
func (w *jsonWalk) next() byte {
	for ; w.at < len(w.b) && w.err == nil; w.at++ {
		switch c := w.b[w.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			return c
		}
	}
	return 0
}

func (w *jsonWalk) value(s *shape, depth int) {
	for s != nil && s.kind == pointer && w.next() != 'n' {
		w.spend(s.elem.size)
		s = s.elem
	}
	if depth == 0 {
		w.fail(true)
		return
	}
	c := w.next()
	begin := w.at
	switch {
	case c == 0:
	case s == nil || s.kind == plain && c != '{' && c != '[' && c != '"':
		w.skip()
	case s.kind == opaque:
		w.skip()
		w.spend(int64(w.at-begin) + ofItself)
	case c == '"' && (s.kind == text || s.kind == free):
		ascii := w.text()
		if w.spend(stringSize(w.at-begin-2, ascii)); s.kind == free {
			w.spend(anything.size)
		}
	case c == '[' && (s.kind == list || s.kind == free):
		w.list(s, depth)
	case c == '{' && (s.kind == record || s.kind == table || s.kind == free):
		w.object(s, depth)
	case s.kind == free:
		w.spend(8)
		w.skip()
	default:
		if w.skip(); c != 'n' { // null is nothing
			w.spend(complaint)
		}
	}
}

func (w *jsonWalk) list(s *shape, depth int) {
	elem := s.elem
	if s.kind == free {
		elem = anything
		w.spend(anyValue)
	}
	for w.at++; ; {
		switch w.next() {
		case 0:
			return
		case ']', '}':
			w.at++
			return
		}
		w.spend(elem.size)
		w.value(elem, depth-1)
	}
}

func (w *jsonWalk) object(s *shape, depth int) {
	elem, each := s.elem, s.entry
	if s.kind == free {
		elem, each = anything, anything.entry
		w.spend(anyValue)
	}
	for w.at++; ; {
		switch w.next() {
		case '"':
		case ']', '}':
			w.at++
			return
		default: // the end, or no JSON
			w.at = len(w.b)
			return
		}
		begin := w.at
		ascii := w.text()
		if w.at-begin < 2 {
			return // it has no end
		}
		key := w.b[begin+1 : w.at-1]
		if s.kind != record {
			w.spend(each + stringSize(len(key), ascii))
			w.value(elem, depth-1)
			continue
		}
		if bytes.IndexByte(key, '\\') >= 0 {
			var name string
			if json.Unmarshal(w.b[begin:w.at], &name) == nil {
				key = []byte(name)
			}
		}
		w.enter(key)
		w.value(s.field(key), depth-1)
		if w.err == nil {
			w.leave()
		}
	}
}

// text goes over a string, and says whether it is as long in memory as in the text.
func (w *jsonWalk) text() (ascii bool) {
	ascii = true
	for w.at++; w.at < len(w.b); w.at++ {
		switch c := w.b[w.at]; {
		case c == '"':
			w.at++
			return ascii
		case c == '\\':
			w.at++
		case c >= 0x80:
			ascii = false
		}
	}
	w.at = len(w.b)
	return ascii
}

func stringSize(n int, ascii bool) int64 {
	if !ascii {
		n *= escaped
	}
	return int64(max(n, 0)+7) &^ 7
}

// skip goes over a value of which nothing is kept as values.
func (w *jsonWalk) skip() {
	depth := 0
	for w.at < len(w.b) {
		switch w.b[w.at] {
		case '"':
			if w.text(); depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return // the end of what a number or word stands in
			}
			if depth--; depth == 0 {
				w.at++
				return
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return
			}
		}
		w.at++
	}
}
