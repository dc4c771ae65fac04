package mask

import (
	"bytes"
	"sort"
	"unicode/utf16"
	"unicode/utf8"
)

// The ways in which a text is read. In each, a value is found however much of it is escaped: programs differ in what
// they leave as it is, in the case of hex digits, and in what JSON escapes that need not be.
const (
	plain     = iota
	percent   // %XX is a byte
	form      // the same, and + is a space
	inJSON    // what may stand in a string of JSON
	textViews // how many there are; base64 is one more
)

// escapes are the bytes that begin an escape.
var escapes = [textViews]string{percent: "%", form: "%+", inJSON: `\`}

// What a byte is to a view that is in no value.
const (
	cold   = iota
	begins // a value begins with it
	escape
)

// view reads a text in one way.
type view struct {
	at   int64 // what is before it was read; what is between it and the end may be a part of an escape
	node int32
	// more is by how much what was read is longer than what it stands for, and longer are the escapes in what node
	// stands for, as far as it matters: those as long as what they stand for are not there.
	more   int64
	longer []escaped
	found  spans
}

// escaped is an escape that is longer than what it stands for.
type escaped struct {
	at, decoded  int64 // where it begins, in the text and in what that stands for
	size, length int8  // of what it stands for, and its own
}

// read goes on at v.at in a text that begins at base. Last says that nothing follows.
func (v *view) read(m *Masker, kind int, text []byte, base int64, last bool) {
	a, class := m.automaton, &m.class[kind]
	i, node := int(v.at-base), v.node
	for i < len(text) {
		if node == 0 {
			for i < len(text) && class[text[i]] == cold {
				i++
			}
			if i == len(text) {
				break
			}
		}
		c := text[i]
		if class[c] == escape {
			decoded, size, length := decode(kind, text[i:], last)
			if length == 0 {
				break
			}
			index := base + int64(i) - v.more
			if length > size {
				v.escape(a, node, escaped{base + int64(i), index, int8(size), int8(length)})
			}
			i += length
			for n, c := range decoded[:size] {
				node = a.next(node, c)
				if found := a.found[node]; found > 0 {
					v.found.add(v.source(index+int64(n+1)-int64(found)), base+int64(i))
				}
			}
			continue
		}
		i++
		if child := a.child[node]; node != 0 && child < a.child[node+1] && a.label[child] == c {
			node = child
		} else {
			node = a.next(node, c)
		}
		if found := a.found[node]; found > 0 {
			v.found.add(v.source(base+int64(i)-v.more-int64(found)), base+int64(i))
		}
	}
	v.at, v.node = base+int64(i), node
	v.forget(a, node, v.at-v.more)
}

// escape notes one that is met at a node.
func (v *view) escape(a *automaton, node int32, e escaped) {
	if node == 0 || len(v.longer) == cap(v.longer) { // seldom, as it may take a while
		v.forget(a, node, e.decoded)
	}
	v.longer = append(v.longer, e)
	v.more += int64(e.length - e.size)
}

// forget drops the escapes before what a node stands for, which ends at a place in the decoded text.
func (v *view) forget(a *automaton, node int32, end int64) {
	if len(v.longer) == 0 {
		return
	}
	if node == 0 {
		v.longer = v.longer[:0]
		return
	}
	begin := end - int64(a.length(node))
	for len(v.longer) > 0 && v.longer[0].decoded+int64(v.longer[0].size) <= begin {
		v.longer = v.longer[1:]
	}
}

// source is where the text has what begins at a place in the decoded text, which is a part of what node stands for.
func (v *view) source(decoded int64) int64 {
	if len(v.longer) == 0 {
		return decoded + v.more
	}
	n := sort.Search(len(v.longer), func(i int) bool { return v.longer[i].decoded > decoded })
	if n == 0 {
		return v.longer[0].at - (v.longer[0].decoded - decoded)
	}
	e := &v.longer[n-1]
	if decoded < e.decoded+int64(e.size) {
		return e.at
	}
	return decoded - e.decoded - int64(e.size) + e.at + int64(e.length)
}

// begin is where a value begins that what was read may be the beginning of, or where it goes on.
func (v *view) begin(a *automaton) int64 {
	if v.node == 0 {
		return v.at
	}
	return v.source(v.at - v.more - int64(a.length(v.node)))
}

// follows says that a view knows what the plain one does: they differ again at the next escape only.
func (v *view) follows(p *view) bool { return v.node == p.node && v.at == p.at && len(v.longer) == 0 }

// follow makes it so.
func (v *view) follow(p *view) { v.node, v.at, v.more, v.longer = p.node, p.at, 0, v.longer[:0] }

func hasEscape(kind int, text []byte) bool {
	for _, c := range []byte(escapes[kind]) {
		if bytes.IndexByte(text, c) >= 0 {
			return true
		}
	}
	return false
}

// decode says what an escape at the beginning of a text stands for: its length is 0 if there may be more of it. What
// is no escape stands for itself.
func decode(kind int, text []byte, last bool) (decoded [utf8.UTFMax]byte, size, length int) {
	switch {
	case kind == inJSON:
		return decodeJSON(text, last)
	case text[0] == '+':
		decoded[0] = ' '
		return decoded, 1, 1
	}
	value, known := hex(text[1:], 2)
	switch {
	case known == 2:
		decoded[0] = byte(value)
		return decoded, 1, 3
	case known == len(text)-1 && !last:
		return decoded, 0, 0
	}
	decoded[0] = text[0]
	return decoded, 1, 1
}

// short are the escapes of JSON of one character, and what they stand for.
var short = [256]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f', '"': '"', '\\': '\\', '/': '/'}

func decodeJSON(text []byte, last bool) (decoded [utf8.UTFMax]byte, size, length int) {
	r, length := unit(text, last)
	switch {
	case length == 0:
		return decoded, 0, 0
	case length < 6:
		decoded[0] = byte(r)
		return decoded, 1, length
	case r >= 0xd800 && r < 0xdc00: // the first half of a pair
		if second, n := unit(text[length:], last); n == 0 {
			return decoded, 0, 0
		} else if pair := utf16.DecodeRune(r, second); n == 6 && pair != utf8.RuneError {
			r, length = pair, 12
		}
	}
	return decoded, utf8.EncodeRune(decoded[:], r), length // half a pair by itself is U+FFFD
}

// unit is what an escape of JSON stands for, or the byte that is none. Of \uXXXX the length is 6, of no other.
func unit(text []byte, last bool) (r rune, length int) {
	switch {
	case len(text) == 0:
		if last {
			return utf8.RuneError, 1
		}
		return 0, 0
	case text[0] != '\\':
	case len(text) == 1:
		if !last {
			return 0, 0
		}
	case short[text[1]] != 0:
		return rune(short[text[1]]), 2
	case text[1] == 'u':
		value, known := hex(text[2:], 4)
		if known == 4 {
			return value, 6
		}
		if known == len(text)-2 && !last {
			return 0, 0
		}
	}
	return rune(text[0]), 1
}

// hex is the value of up to so many hex digits, and how many there are.
func hex(text []byte, digits int) (value rune, known int) {
	for known < digits && known < len(text) {
		c := text[known]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return value, known
		}
		value = value<<4 | rune(c)
		known++
	}
	return value, known
}
