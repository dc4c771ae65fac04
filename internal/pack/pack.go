// Package pack writes and reads the plain part of msgpack without reflection, for what is written and read for every
// run. Callers leave to a library what a Reader gave up on: a value of a kind that was not expected, or a field that is
// not known.
package pack

import (
	"encoding/binary"
	"math"
)

// Map begins a map of n pairs, of which there may be at most 65,535.
func Map(b []byte, n int) []byte { return head(b, 0x80, 0xde, n) }

// Array begins an array.
func Array(b []byte, n int) []byte {
	if n > math.MaxUint16 {
		return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
	}
	return head(b, 0x90, 0xdc, n)
}

func head(b []byte, fix, wide byte, n int) []byte {
	if n < 16 {
		return append(b, fix|byte(n))
	}
	return binary.BigEndian.AppendUint16(append(b, wide), uint16(n))
}

// Str appends a string.
func Str(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, 0xd9, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}

// Bin appends bytes.
func Bin(b, v []byte) []byte {
	switch n := len(v); {
	case n <= math.MaxUint8:
		b = append(b, 0xc4, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xc5), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(n))
	}
	return append(b, v...)
}

// Uint appends a number that is not negative.
func Uint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

// Int appends a number.
func Int(b []byte, v int64) []byte {
	if v >= 0 {
		return Uint(b, uint64(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}

// Bool appends yes or no.
func Bool(b []byte, v bool) []byte {
	if v {
		return append(b, 0xc3)
	}
	return append(b, 0xc2)
}

// Signed appends a number in the form that the library gives to signed ones, which keeps small and large ones apart
// from unsigned.
func Signed(b []byte, v int64) []byte {
	switch {
	case v >= -32 && v <= math.MaxInt8:
		return append(b, byte(v))
	case v >= math.MinInt8 && v < 0:
		return append(b, 0xd0, byte(v))
	case v >= math.MinInt16 && v <= math.MaxInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(v))
	case v >= math.MinInt32 && v <= math.MaxInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}

// Float appends a number with a fraction.
func Float(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

// Nil appends nothing, where there might be something.
func Nil(b []byte) []byte { return append(b, 0xc0) }
