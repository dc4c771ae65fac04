package jsontext

import (
	"strconv"
	"unicode/utf8"
)

// Reader knows how JSON usually looks and gives up on everything else: an escape in a string, a null, a number with an
// exponent. Once Bad is set, everything else it gives is worthless.
type Reader struct {
	B   []byte // all of the text
	at  int
	Bad bool
}

// maxNesting is how deep it follows a value; a text does not decide how deep the recursion is.
const maxNesting = 64

func (t *Reader) space() {
	for t.at < len(t.B) {
		switch t.B[t.at] {
		case ' ', '\t', '\r', '\n':
			t.at++
		default:
			return
		}
	}
}

// peek is the next byte that is not space; 0 at the end.
func (t *Reader) peek() byte {
	t.space()
	if t.at >= len(t.B) {
		return 0
	}
	return t.B[t.at]
}

// take steps over the next byte that is not space if it is c.
func (t *Reader) take(c byte) bool {
	if t.peek() != c {
		return false
	}
	t.at++
	return true
}

func (t *Reader) want(c byte) {
	if !t.take(c) {
		t.Bad = true
	}
}

// Ended says that all was read, and all was well.
func (t *Reader) Ended() bool { return t.peek() == 0 && t.at >= len(t.B) && !t.Bad }

// Fields calls fn for every field of an object; fn reads the value and returns the number of the field, below 64, by
// which one that is given twice is found. A number below 0 is a field that may be given twice, as the entries of a map.
func (t *Reader) Fields(fn func(key []byte) int) {
	t.want('{')
	if t.Bad || t.take('}') {
		return
	}
	var seen uint64
	for {
		key := t.Str()
		t.want(':')
		if t.Bad {
			return
		}
		if n := fn(key); n >= 0 {
			t.Bad = t.Bad || seen&(1<<n) != 0
			seen |= 1 << n
		}
		if t.Bad || t.take('}') {
			return
		}
		t.want(',')
	}
}

// List calls fn for every element of a list; fn reads it.
func (t *Reader) List(fn func()) {
	t.want('[')
	if t.Bad || t.take(']') {
		return
	}
	for {
		fn()
		if t.Bad || t.take(']') {
			return
		}
		t.want(',')
	}
}

// Strings is a list of strings.
func (t *Reader) Strings() []string {
	out := []string{}
	t.List(func() { out = append(out, string(t.Str())) })
	return out
}

// Map is an object of strings.
func (t *Reader) Map() map[string]string {
	m := map[string]string{}
	t.Fields(func(key []byte) int {
		m[string(key)] = string(t.Str())
		return -1
	})
	return m
}

// Unknown is for a field that is not known.
func (t *Reader) Unknown() int {
	t.Bad = true
	return -1
}

// Str reads a string without escapes, in the memory that is read from.
func (t *Reader) Str() []byte {
	if t.peek() != '"' {
		t.Bad = true
		return nil
	}
	begin, ascii := t.at+1, true
	for i := begin; i < len(t.B); i++ {
		switch c := t.B[i]; {
		case c == '"':
			t.at = i + 1
			s := t.B[begin:i]
			t.Bad = t.Bad || !ascii && !utf8.Valid(s) // encoding/json would mend it
			return s
		case c == '\\' || c < 0x20:
			t.Bad = true
			return nil
		case c >= 0x80:
			ascii = false
		}
	}
	t.Bad = true
	return nil
}

// Bool reads true or false.
func (t *Reader) Bool() bool {
	switch t.peek() {
	case 't':
		t.word("true")
		return true
	case 'f':
		t.word("false")
		return false
	}
	t.Bad = true
	return false
}

func (t *Reader) word(w string) {
	if len(t.B)-t.at < len(w) || string(t.B[t.at:t.at+len(w)]) != w {
		t.Bad = true
		return
	}
	t.at += len(w)
}

// Int reads a whole number that is not negative.
func (t *Reader) Int() int {
	raw := t.number()
	if len(raw) > 9 {
		t.Bad = true
		return 0
	}
	n := 0
	for _, c := range raw {
		if c < '0' || c > '9' {
			t.Bad = true
			return 0
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// Float reads a number.
func (t *Reader) Float() float64 {
	f, err := strconv.ParseFloat(string(t.number()), 64)
	t.Bad = t.Bad || err != nil
	return f
}

// number reads any number as it is written.
func (t *Reader) number() []byte {
	t.space()
	begin := t.at
	if t.at < len(t.B) && t.B[t.at] == '-' {
		t.at++
	}
	if zero := t.at; t.digits() > 1 && t.B[zero] == '0' {
		t.Bad = true
	}
	if t.at < len(t.B) && t.B[t.at] == '.' {
		t.at++
		t.digits()
	}
	if t.at < len(t.B) && (t.B[t.at] == 'e' || t.B[t.at] == 'E') {
		t.at++
		if t.at < len(t.B) && (t.B[t.at] == '+' || t.B[t.at] == '-') {
			t.at++
		}
		t.digits()
	}
	return t.B[begin:t.at]
}

// digits steps over at least one.
func (t *Reader) digits() int {
	begin := t.at
	for t.at < len(t.B) && t.B[t.at] >= '0' && t.B[t.at] <= '9' {
		t.at++
	}
	t.Bad = t.Bad || t.at == begin
	return t.at - begin
}

// Raw is the value that comes, whatever it is, in the memory that is read from.
func (t *Reader) Raw() []byte {
	t.space()
	begin := t.at
	t.skip(maxNesting)
	return t.B[begin:t.at]
}

// skip steps over a value and sees that it is JSON.
func (t *Reader) skip(depth int) {
	if t.Bad || depth == 0 {
		t.Bad = true
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
			if t.Bad || t.take(c+2) {
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
func (t *Reader) skipStr() {
	if t.peek() != '"' {
		t.Bad = true
		return
	}
	begin, ascii := t.at+1, true
	for i := begin; i < len(t.B); i++ {
		switch c := t.B[i]; {
		case c == '"':
			t.at = i + 1
			t.Bad = t.Bad || !ascii && !utf8.Valid(t.B[begin:i])
			return
		case c >= 0x80:
			ascii = false
		case c < 0x20:
			t.Bad = true
			return
		case c == '\\':
			if i++; i >= len(t.B) {
				break
			}
			switch t.B[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			default: // \u, or nothing that there is
				t.Bad = true
				return
			}
		}
	}
	t.Bad = true
}
