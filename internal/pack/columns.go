package pack

import (
	"encoding/binary"
	"errors"
)

// Columns of a command, one entry an item. They are stored as differences, each a varint: neighbours in a batch are
// sorted by time, so most take one or two bytes instead of nine, and reading them takes no reflection.
type (
	Times   []int64  // milliseconds
	Numbers []uint64 // jobs, fences
	Gens    []uint32
	Indexes []uint16
)

// MarshalBinary makes the stored form.
func (c Times) MarshalBinary() ([]byte, error) { return packed(c), nil }

// UnmarshalBinary reads it.
func (c *Times) UnmarshalBinary(b []byte) error { return unpack(b, (*[]int64)(c)) }

// MarshalBinary makes the stored form.
func (c Numbers) MarshalBinary() ([]byte, error) { return packed(c), nil }

// UnmarshalBinary reads it.
func (c *Numbers) UnmarshalBinary(b []byte) error { return unpack(b, (*[]uint64)(c)) }

// MarshalBinary makes the stored form.
func (c Gens) MarshalBinary() ([]byte, error) { return packed(c), nil }

// UnmarshalBinary reads it.
func (c *Gens) UnmarshalBinary(b []byte) error { return unpack(b, (*[]uint32)(c)) }

// MarshalBinary makes the stored form.
func (c Indexes) MarshalBinary() ([]byte, error) { return packed(c), nil }

// UnmarshalBinary reads it.
func (c *Indexes) UnmarshalBinary(b []byte) error { return unpack(b, (*[]uint16)(c)) }

type whole interface {
	int64 | uint64 | uint32 | uint16
}

func packed[T whole](col []T) []byte {
	b := make([]byte, 0, 3*len(col)+8)
	last := int64(0)
	for _, v := range col {
		b = binary.AppendVarint(b, int64(v)-last) // wraps around, here and back
		last = int64(v)
	}
	return b
}

var errColumn = errors.New("pack: a column cannot be read")

func unpack[T whole](b []byte, col *[]T) error {
	n := 0
	for _, c := range b { // a varint ends with the byte that has no high bit
		if c < 0x80 {
			n++
		}
	}
	*col = nil
	if n == 0 && len(b) == 0 {
		return nil
	}
	out := make([]T, 0, n)
	last := int64(0)
	for len(b) > 0 {
		d, used := binary.Varint(b)
		if used <= 0 {
			return errColumn
		}
		b = b[used:]
		last += d
		if int64(T(last)) != last {
			return errColumn
		}
		out = append(out, T(last))
	}
	*col = out
	return nil
}
