package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/internal/pack"
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
var ErrTooLarge = errors.New("fsm: the command is too large for a log entry")

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

// The columns of the hot commands.
type (
	Times   = pack.Times
	Numbers = pack.Numbers
	Gens    = pack.Gens
	Indexes = pack.Indexes
)

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
