package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// MaxEntry is the largest entry that may be proposed: larger ones take so long to send that followers miss heartbeats.
const MaxEntry = 512 << 10

// commandVersion is the version byte that this binary writes. Versions of a type are decoded for as long as logs may
// hold them.
const commandVersion = 1

var handle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.Canonical = true
	return h
}()

// ErrTooLarge means that an entry may not be proposed; split it.
var ErrTooLarge = errors.New("fsm: the command is larger than a log entry may be")

// Encode makes a log entry of a command.
func Encode(cmd Command) ([]byte, error) {
	data, err := encode(cmd)
	if err == nil && len(data) > MaxEntry {
		return nil, ErrTooLarge
	}
	return data, err
}

func encode(cmd Command) ([]byte, error) {
	n, ok := numbers[reflect.TypeOf(cmd)]
	if !ok {
		return nil, fmt.Errorf("fsm: %T has no number: add it to commands", cmd)
	}
	if c, ok := cmd.(interface{ append([]byte) []byte }); ok {
		return c.append([]byte{n, commandVersion}), nil
	}
	var buf bytes.Buffer
	buf.WriteByte(n)
	buf.WriteByte(commandVersion)
	if err := codec.NewEncoder(&buf, handle).Encode(cmd); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// UnknownCommandError stops a node: an entry that it cannot read was written by a newer binary.
type UnknownCommandError struct{ Type, Version uint8 }

func (e *UnknownCommandError) Error() string {
	return fmt.Sprintf("fsm: unknown command %d version %d in the log: it was written by a newer carillon; "+
		"start this node with that binary", e.Type, e.Version)
}

// Decode reads a log entry.
func Decode(data []byte) (Command, error) {
	if len(data) < 2 {
		return nil, errors.New("fsm: a command has at least two bytes")
	}
	k := &commands[data[0]]
	if k.make == nil || data[1] != commandVersion {
		return nil, &UnknownCommandError{data[0], data[1]}
	}
	cmd := k.make()
	if c, ok := cmd.(interface{ read([]byte) bool }); ok {
		if c.read(data[2:]) {
			return cmd, nil
		}
		cmd = k.make()
	}
	dec := codec.NewDecoderBytes(data[2:], handle)
	if err := dec.Decode(cmd); err != nil {
		return nil, fmt.Errorf("fsm: command %d: %w", data[0], err)
	}
	if n := dec.NumBytesRead(); n != len(data)-2 {
		return nil, fmt.Errorf("fsm: command %d: %d bytes follow it", data[0], len(data)-2-n)
	}
	if err := cmd.check(); err != nil {
		return nil, fmt.Errorf("fsm: command %d: %w", data[0], err)
	}
	return cmd, nil
}

// The columns of the hot commands. They are stored as differences, each a varint: neighbours in a batch are sorted by
// time, so most take one or two bytes instead of nine, and reading them takes no reflection.
type (
	Times   []int64  // milliseconds
	Numbers []uint64 // jobs, fences
	Gens    []uint32
	Indexes []uint16
)

// MarshalBinary makes the stored form.
func (c Times) MarshalBinary() ([]byte, error) { return pack(c), nil }

// UnmarshalBinary reads it.
func (c *Times) UnmarshalBinary(b []byte) error { return unpack(b, (*[]int64)(c)) }

// MarshalBinary makes the stored form.
func (c Numbers) MarshalBinary() ([]byte, error) { return pack(c), nil }

// UnmarshalBinary reads it.
func (c *Numbers) UnmarshalBinary(b []byte) error { return unpack(b, (*[]uint64)(c)) }

// MarshalBinary makes the stored form.
func (c Gens) MarshalBinary() ([]byte, error) { return pack(c), nil }

// UnmarshalBinary reads it.
func (c *Gens) UnmarshalBinary(b []byte) error { return unpack(b, (*[]uint32)(c)) }

// MarshalBinary makes the stored form.
func (c Indexes) MarshalBinary() ([]byte, error) { return pack(c), nil }

// UnmarshalBinary reads it.
func (c *Indexes) UnmarshalBinary(b []byte) error { return unpack(b, (*[]uint16)(c)) }

type whole interface {
	int64 | uint64 | uint32 | uint16
}

func pack[T whole](col []T) []byte {
	b := make([]byte, 0, 3*len(col)+8)
	last := int64(0)
	for _, v := range col {
		b = binary.AppendVarint(b, int64(v)-last) // wraps around, here and back
		last = int64(v)
	}
	return b
}

var errColumn = errors.New("fsm: a column cannot be read")

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

var errLengths = errors.New("columns of different lengths")

// sameLength checks columns that must have one entry an item. A batch whose columns differ in length is corrupt, and
// reading it by index would take the node down in the middle of an apply.
func sameLength(n int, lens ...int) error {
	for _, l := range lens {
		if l != n {
			return errLengths
		}
	}
	return nil
}

// optional checks columns that may also be left out.
func optional(n int, lens ...int) error {
	for _, l := range lens {
		if l != 0 && l != n {
			return errLengths
		}
	}
	return nil
}

// at is an optional column's entry.
func at[T any](col []T, i int) (v T) {
	if i < len(col) {
		v = col[i]
	}
	return v
}
