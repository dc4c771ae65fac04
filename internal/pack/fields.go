package pack

import (
	"maps"
	"slices"
)

// Fields writes a map whose head is written at its end: how many fields it has depends on which are worth writing. The
// keys come in the order in which the library sorts them. There are at most 255.
type Fields struct {
	B    []byte
	head int // where the map that is open begins
	n    int // how many fields it has so far
}

// Mark is where an outer map was left.
type Mark struct{ head, n int }

// Begin begins the outermost map behind b.
func Begin(b []byte) Fields { return Fields{B: append(b, 0x80), head: len(b)} }

// End ends it.
func (f *Fields) End() []byte {
	if f.n < 16 {
		f.B[f.head] = 0x80 | byte(f.n)
		return f.B
	}
	f.B = append(f.B, 0, 0)
	copy(f.B[f.head+3:], f.B[f.head+1:len(f.B)-2])
	f.B[f.head], f.B[f.head+1], f.B[f.head+2] = 0xde, 0, byte(f.n)
	return f.B
}

// Open begins a map as the value of a field.
func (f *Fields) Open(key string) Mark {
	f.Key(key)
	m := Mark{f.head, f.n}
	f.head, f.n = len(f.B), 0
	f.B = append(f.B, 0x80)
	return m
}

// Close ends the map that was begun last.
func (f *Fields) Close(m Mark) {
	f.End()
	f.head, f.n = m.head, m.n
}

// Key begins a field.
func (f *Fields) Key(key string) {
	f.n++
	f.B = Str(f.B, key)
}

// Str writes a string.
func (f *Fields) Str(key, v string) {
	f.Key(key)
	f.B = Str(f.B, v)
}

// Int writes a whole number.
func (f *Fields) Int(key string, v int64) {
	f.Key(key)
	f.B = Signed(f.B, v)
}

// SomeStr writes a string that is not empty.
func (f *Fields) SomeStr(key, v string) {
	if v != "" {
		f.Str(key, v)
	}
}

// IntUnless writes a whole number if it is another one than the usual.
func (f *Fields) IntUnless(key string, v, usual int64) {
	if v != usual {
		f.Int(key, v)
	}
}

// Uint writes a whole number that is not negative.
func (f *Fields) Uint(key string, v uint64) {
	f.Key(key)
	f.B = Uint(f.B, v)
}

// Float writes a number with a fraction.
func (f *Fields) Float(key string, v float64) {
	f.Key(key)
	f.B = Float(f.B, v)
}

// Bool writes yes or no.
func (f *Fields) Bool(key string, v bool) {
	f.Key(key)
	f.B = Bool(f.B, v)
}

// Bin writes bytes.
func (f *Fields) Bin(key string, v []byte) {
	f.Key(key)
	f.B = Bin(f.B, v)
}

// Nil writes that there is nothing.
func (f *Fields) Nil(key string) {
	f.Key(key)
	f.B = Nil(f.B)
}

// List writes a list of strings.
func (f *Fields) List(key string, v []string) {
	f.Key(key)
	f.B = Array(f.B, len(v))
	for _, s := range v {
		f.B = Str(f.B, s)
	}
}

// Map writes a map of strings.
func (f *Fields) Map(key string, v map[string]string) {
	f.Key(key)
	f.B = Map(f.B, len(v))
	for _, k := range slices.Sorted(maps.Keys(v)) {
		f.B = Str(Str(f.B, k), v[k])
	}
}

// Given is how many fields are not left out.
func Given(fields ...bool) (n int) {
	for _, f := range fields {
		if f {
			n++
		}
	}
	return n
}
