package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The columns of the hot commands. They are stored as differences, each a varint: neighbours in a batch are sorted by time, so most
// take one or two bytes instead of nine, and reading them takes no reflection.
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

// Columns that must have one entry an item. A batch whose columns differ in length is corrupt, and reading it by index would
// take the node down in the middle of an apply.

func sameLength(name string, n int, lens ...int) error {
	for _, l := range lens {
		if l != n {
			return fmt.Errorf("fsm: %s: columns of different lengths", name)
		}
	}
	return nil
}

func (c *Claim) columns() error {
	n := len(c.Jobs)
	if err := sameLength("claim", n, len(c.Lane), len(c.Kind), len(c.Ready), len(c.At), len(c.Gen), len(c.Next), len(c.NextReady), len(c.Worker),
		len(c.Timeout), len(c.Version)); err != nil {
		return err
	}
	for _, w := range c.Worker {
		if int(w) >= len(c.Workers) {
			return fmt.Errorf("fsm: claim: worker %d of %d", w, len(c.Workers))
		}
	}
	return optional("claim", n, len(c.Keys), len(c.Flags))
}

func (c *Complete) columns() error {
	n := len(c.Jobs)
	if err := sameLength("complete", n, len(c.At), len(c.Origin), len(c.Fence), len(c.Result), len(c.Reason), len(c.RetryAt), len(c.Started), len(c.Ended)); err != nil {
		return err
	}
	return optional("complete", n, len(c.Error), len(c.Output))
}

func (c *Expire) columns() error {
	return sameLength("expire", len(c.Jobs), len(c.At), len(c.Origin), len(c.Fence))
}

func (c *Advance) columns() error {
	return sameLength("advance", len(c.Jobs), len(c.Lane), len(c.Kind), len(c.Ready), len(c.At), len(c.Gen), len(c.Next), len(c.NextReady), len(c.Gaps))
}

func (c *Admit) columns() error {
	n := len(c.Jobs)
	if err := sameLength("admit", n, len(c.Lane), len(c.Ready), len(c.At), len(c.Gen), len(c.Next), len(c.NextReady), len(c.Gaps), len(c.Past), len(c.PastReady)); err != nil {
		return err
	}
	if err := optional("admit", n, len(c.Keys)); err != nil {
		return err
	}
	return optional("admit", n, len(c.Flags))
}

func (c *Cleanup) columns() error {
	return sameLength("cleanup", len(c.Jobs), len(c.Lane), len(c.Ready))
}

func (c *ClaimNotices) columns() error {
	return sameLength("claim notices", len(c.Jobs), len(c.Seqs), len(c.Want), len(c.Try))
}

func (c *SettleNotices) columns() error {
	n := len(c.Jobs)
	if err := sameLength("settle notices", n, len(c.Seqs), len(c.Attempt), len(c.Sent), len(c.Unknown), len(c.Failed), len(c.RetryAt)); err != nil {
		return err
	}
	return optional("settle notices", n, len(c.Error))
}

func (c *Backfill) columns() error { return optional("backfill", len(c.At), len(c.Keys)) }

func optional(name string, n int, lens ...int) error {
	for _, l := range lens {
		if l != 0 && l != n {
			return fmt.Errorf("fsm: %s: columns of different lengths", name)
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
