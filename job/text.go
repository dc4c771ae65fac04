package job

import (
	"strconv"
	"unicode/utf8"
)

// text reads JSON without reflection, for what comes by the million: definitions of jobs. It knows how they usually look and gives up
// on everything else (an escape in a string, a null, a number with an exponent), which is then left to package json. So it never
// has to say what is wrong with a text. Once bad is set, everything else it gives is worthless.
type text struct {
	b   []byte
	at  int
	bad bool
}

// maxNesting is how deep it follows a value; recursion must not be as deep as somebody likes.
const maxNesting = 64

func (t *text) space() {
	for t.at < len(t.b) {
		switch t.b[t.at] {
		case ' ', '\t', '\r', '\n':
			t.at++
		default:
			return
		}
	}
}

// peek is the next byte that is not space; 0 at the end.
func (t *text) peek() byte {
	t.space()
	if t.at >= len(t.b) {
		return 0
	}
	return t.b[t.at]
}

// take steps over the next byte that is not space if it is c.
func (t *text) take(c byte) bool {
	if t.peek() != c {
		return false
	}
	t.at++
	return true
}

func (t *text) want(c byte) {
	if !t.take(c) {
		t.bad = true
	}
}

// ended says that all was read, and all was well.
func (t *text) ended() bool { return t.peek() == 0 && t.at >= len(t.b) && !t.bad }

// fields calls fn for every field of an object; fn reads the value and returns the number of the field, by which one that is given twice
// is found. A number below 0 is a field that may be given twice, as the entries of a map.
func (t *text) fields(fn func(key []byte) int) {
	t.want('{')
	if t.bad || t.take('}') {
		return
	}
	var seen uint64
	for {
		key := t.str()
		t.want(':')
		if t.bad {
			return
		}
		if n := fn(key); n >= 0 {
			t.bad = t.bad || seen&(1<<n) != 0
			seen |= 1 << n
		}
		if t.bad || t.take('}') {
			return
		}
		t.want(',')
	}
}

// list calls fn for every element of a list; fn reads it.
func (t *text) list(fn func()) {
	t.want('[')
	if t.bad || t.take(']') {
		return
	}
	for {
		fn()
		if t.bad || t.take(']') {
			return
		}
		t.want(',')
	}
}

// unknown is for a field that is not known.
func (t *text) unknown() int {
	t.bad = true
	return -1
}

// str reads a string without escapes, in the memory that is read from.
func (t *text) str() []byte {
	if t.peek() != '"' {
		t.bad = true
		return nil
	}
	begin, ascii := t.at+1, true
	for i := begin; i < len(t.b); i++ {
		switch c := t.b[i]; {
		case c == '"':
			t.at = i + 1
			s := t.b[begin:i]
			t.bad = t.bad || !ascii && !utf8.Valid(s) // package json would mend it
			return s
		case c == '\\' || c < 0x20:
			t.bad = true
			return nil
		case c >= 0x80:
			ascii = false
		}
	}
	t.bad = true
	return nil
}

func (t *text) bool() bool {
	switch t.peek() {
	case 't':
		t.word("true")
		return true
	case 'f':
		t.word("false")
		return false
	}
	t.bad = true
	return false
}

func (t *text) word(w string) {
	if len(t.b)-t.at < len(w) || string(t.b[t.at:t.at+len(w)]) != w {
		t.bad = true
		return
	}
	t.at += len(w)
}

// int reads a whole number that is not negative.
func (t *text) int() int {
	raw := t.number()
	if len(raw) > 9 {
		t.bad = true
		return 0
	}
	n := 0
	for _, c := range raw {
		if c < '0' || c > '9' {
			t.bad = true
			return 0
		}
		n = 10*n + int(c-'0')
	}
	return n
}

func (t *text) float() float64 {
	f, err := strconv.ParseFloat(string(t.number()), 64)
	t.bad = t.bad || err != nil
	return f
}

// number reads any number as it is written.
func (t *text) number() []byte {
	t.space()
	begin := t.at
	if t.at < len(t.b) && t.b[t.at] == '-' {
		t.at++
	}
	if zero := t.at; t.digits() > 1 && t.b[zero] == '0' {
		t.bad = true
	}
	if t.at < len(t.b) && t.b[t.at] == '.' {
		t.at++
		t.digits()
	}
	if t.at < len(t.b) && (t.b[t.at] == 'e' || t.b[t.at] == 'E') {
		t.at++
		if t.at < len(t.b) && (t.b[t.at] == '+' || t.b[t.at] == '-') {
			t.at++
		}
		t.digits()
	}
	return t.b[begin:t.at]
}

// digits steps over at least one.
func (t *text) digits() int {
	begin := t.at
	for t.at < len(t.b) && t.b[t.at] >= '0' && t.b[t.at] <= '9' {
		t.at++
	}
	t.bad = t.bad || t.at == begin
	return t.at - begin
}

// raw is the value that comes, whatever it is, in the memory that is read from.
func (t *text) raw() []byte {
	t.space()
	begin := t.at
	t.skip(maxNesting)
	return t.b[begin:t.at]
}

// skip steps over a value and sees that it is JSON.
func (t *text) skip(depth int) {
	if t.bad || depth == 0 {
		t.bad = true
		return
	}
	switch c := t.peek(); c {
	case '{', '[':
		t.at++
		if t.take(c + 2) { // } and ] are two behind their beginnings
			return
		}
		for {
			if c == '{' {
				t.skipStr()
				t.want(':')
			}
			t.skip(depth - 1)
			if t.bad || t.take(c+2) {
				return
			}
			t.want(',')
		}
	case '"':
		t.skipStr()
	case 't':
		t.word("true")
	case 'f':
		t.word("false")
	case 'n':
		t.word("null")
	default:
		t.number()
	}
}

// skipStr steps over a string with or without escapes.
func (t *text) skipStr() {
	if t.peek() != '"' {
		t.bad = true
		return
	}
	for i := t.at + 1; i < len(t.b); i++ {
		switch c := t.b[i]; {
		case c == '"':
			t.at = i + 1
			return
		case c < 0x20:
			t.bad = true
			return
		case c == '\\':
			if i++; i >= len(t.b) {
				break
			}
			switch t.b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			default: // \u, or nothing that there is
				t.bad = true
				return
			}
		}
	}
	t.bad = true
}
