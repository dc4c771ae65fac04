package pack

import (
	"encoding/binary"
	"math"
)

// Reader reads what it is asked for. Once something was not as expected, Bad is set and everything else it gives is
// worthless.
type Reader struct {
	B   []byte // what is left
	Bad bool
}

// take cuts n bytes off.
func (r *Reader) take(n int) []byte {
	if r.Bad || n < 0 || n > len(r.B) {
		r.Bad, r.B = true, nil
		return nil
	}
	out := r.B[:n]
	r.B = r.B[n:]
	return out
}

func (r *Reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0xc1 // what msgpack never uses
}

func (r *Reader) big(size int) (n uint64) {
	for _, c := range r.take(size) {
		n = n<<8 | uint64(c)
	}
	return n
}

// Len begins an array.
func (r *Reader) Len() int {
	if len(r.B) > 0 && r.B[0] == 0xdd {
		r.byte()
		n := r.big(4)
		if n > uint64(len(r.B)) { // each element has a byte at least
			r.Bad = true
			return 0
		}
		return int(n)
	}
	return r.head(0x90, 0xdc)
}

func (r *Reader) head(fix, wide byte) int {
	switch c := r.byte(); {
	case c&0xf0 == fix:
		return int(c & 0x0f)
	case c == wide:
		return int(r.big(2))
	}
	r.Bad = true
	return 0
}

// Fields calls fn with each key of a map; fn reads the value.
func (r *Reader) Fields(fn func(key []byte)) {
	for range r.head(0x80, 0xde) {
		key := r.Raw()
		if r.Bad {
			return
		}
		fn(key)
	}
}

// Raw is the bytes of a string, in the memory that is read from.
func (r *Reader) Raw() []byte {
	switch c := r.byte(); {
	case c&0xe0 == 0xa0:
		return r.take(int(c & 0x1f))
	case c == 0xd9:
		return r.take(int(r.big(1)))
	case c == 0xda:
		return r.take(int(r.big(2)))
	case c == 0xdb:
		return r.take(int(r.big(4)))
	}
	r.Bad = true
	return nil
}

// Str reads a string.
func (r *Reader) Str() string { return string(r.Raw()) }

// Bin reads bytes, into memory of their own.
func (r *Reader) Bin() []byte { return append([]byte{}, r.Bytes()...) }

// Bytes reads bytes, in the memory that is read from.
func (r *Reader) Bytes() []byte {
	var n int
	switch c := r.byte(); c {
	case 0xc4:
		n = int(r.big(1))
	case 0xc5:
		n = int(r.big(2))
	case 0xc6:
		n = int(r.big(4))
	default:
		r.Bad = true
		return nil
	}
	return r.take(n)
}

// List reads a list of strings.
func (r *Reader) List() []string {
	var out []string
	for range r.Len() {
		out = append(out, r.Str())
	}
	return out
}

// Strs reads a map of strings.
func (r *Reader) Strs() map[string]string {
	n := r.head(0x80, 0xde)
	if n > len(r.B) {
		r.Bad = true
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		k := r.Str()
		m[k] = r.Str()
	}
	return m
}

// Int reads a number.
func (r *Reader) Int() int64 {
	switch c := r.byte(); {
	case c < 0x80:
		return int64(c)
	case c >= 0xe0:
		return int64(int8(c))
	case c >= 0xcc && c <= 0xcf:
		n := r.big(1 << (c - 0xcc))
		r.Bad = r.Bad || n > math.MaxInt64
		return int64(n)
	case c >= 0xd0 && c <= 0xd3:
		size := 1 << (c - 0xd0)
		shift := 64 - 8*size
		return int64(r.big(size)<<shift) >> shift
	}
	r.Bad = true
	return 0
}

// Uint reads a number that is not negative.
func (r *Reader) Uint() uint64 {
	if len(r.B) > 0 && r.B[0] == 0xcf {
		r.byte()
		return r.big(8)
	}
	n := r.Int()
	r.Bad = r.Bad || n < 0
	return uint64(n)
}

// Bool reads yes or no.
func (r *Reader) Bool() bool {
	switch r.byte() {
	case 0xc2:
		return false
	case 0xc3:
		return true
	}
	r.Bad = true
	return false
}

// Float reads a number with a fraction.
func (r *Reader) Float() float64 {
	if r.byte() != 0xcb {
		r.Bad = true
		return 0
	}
	b := r.take(8)
	if b == nil {
		return 0
	}
	return math.Float64frombits(binary.BigEndian.Uint64(b))
}

// Nil says whether nothing comes, and then steps over it.
func (r *Reader) Nil() bool {
	if len(r.B) > 0 && r.B[0] == 0xc0 {
		r.B = r.B[1:]
		return true
	}
	return false
}

// maxNesting is how deep Skip follows a value; what is read does not decide how deep the recursion is.
const maxNesting = 32

// Skip steps over the value of a field that is not known.
func (r *Reader) Skip() { r.skip(maxNesting) }

func (r *Reader) skip(depth int) {
	if depth == 0 || len(r.B) == 0 {
		r.Bad = true
		return
	}
	n, size := 0, 0 // how many values are inside, how many bytes
	switch c := r.B[0]; {
	case c&0xf0 == 0x80 || c == 0xde:
		n = 2 * r.head(0x80, 0xde)
	case c&0xf0 == 0x90 || c == 0xdc || c == 0xdd:
		n = r.Len()
	case c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb:
		r.Raw()
	case c >= 0xc4 && c <= 0xc6:
		r.Bytes()
	case c == 0xca || c == 0xcb:
		size = 1 + 4<<(c-0xca)
	case c >= 0xcc && c <= 0xd3:
		size = 1 + 1<<(c&3) // of cc and of d0 on alike
	case c < 0x80 || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3:
		size = 1
	default:
		r.Bad = true // a kind that definitions have never had
	}
	r.take(size)
	for ; n > 0 && !r.Bad; n-- {
		r.skip(depth - 1)
	}
}
