package store

import (
	"fmt"
	"hash/crc32"
	"io"
)

// Copied is a copy of the committed state: what it contains, and what its bytes must be when it arrives elsewhere.
type Copied struct {
	Counters Counters
	Info     Info
	Size     int64
	Sum      uint32 // see NewSum
}

// NewSum is the checksum of a copy: CRC-32C, which processors compute as fast as they read.
func NewSum() Sum { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }

// Sum is a checksum under way.
type Sum interface {
	io.Writer
	Sum32() uint32
}

// CopyTo writes a complete copy of the committed state. Commits go on meanwhile; the copy is of one moment. Pages that those commits
// free are kept until it is done, so w must not be slow: a file, and not a network.
func (s *Store) CopyTo(w io.Writer) (c Copied, err error) {
	s.mu.RLock()
	if s.db == nil {
		s.mu.RUnlock()
		return c, ErrClosed
	}
	tx, err := s.db.Begin(false)
	s.mu.RUnlock()
	if err != nil {
		return c, err
	}
	defer tx.Rollback()
	if c.Counters, c.Info, err = readMeta(tx); err != nil {
		return c, err
	}
	sum := NewSum()
	if c.Size, err = tx.WriteTo(io.MultiWriter(w, sum)); err != nil {
		return c, fmt.Errorf("copy the state: %w", err)
	}
	c.Sum = sum.Sum32()
	return c, nil
}
