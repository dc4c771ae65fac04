package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime/debug"

	"github.com/cespare/xxhash/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

// Frozen is the file as it was at one moment, while commits go on. Room that those free is not used again before it is
// closed, so that comes soon.
type Frozen struct{ tx *bolt.Tx }

// Freeze opens the file as it is now.
func (s *Store) Freeze() (*Frozen, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return nil, ErrClosed
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &Frozen{tx}, nil
}

// Close lets it go.
func (f *Frozen) Close() { _ = f.tx.Rollback() } //nolint:errcheck // of a transaction that only reads

// Cursor is a place in the file: a key, or the first one after it.
type Cursor struct {
	Bucket string
	Key    []byte
}

func (c Cursor) String() string {
	if c.Bucket == "" {
		return "the beginning"
	}
	return fmt.Sprintf("key %x of bucket %s", c.Key, c.Bucket)
}

// Sum is a hash over all that stands in the file from a place on, until that are so many bytes. Replicas that applied
// the same entries have the same. next is where it ends, nil at the end of the file. Which names are in their bucket is
// each replica's own business, so names are held against the definitions instead. An error says that something cannot
// be read, or does not fit together.
func (f *Frozen) Sum(from Cursor, limit int) (sum uint64, next *Cursor, err error) {
	at := from
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil { // bbolt panics on pages that make no sense
			err = fmt.Errorf("bucket %s, after key %x: %v", at.Bucket, at.Key, r)
		}
	}()
	var d xxhash.Digest
	d.Reset()
	size := func(n int) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		_, _ = d.Write(b[:]) // it never fails
	}
	s, err := readSweep(f.tx)
	if err != nil {
		return 0, nil, err
	}
	top := f.tx.Cursor()
	for name, v := top.Seek([]byte(from.Bucket)); name != nil; name, v = top.Next() {
		b := f.tx.Bucket(name)
		if v != nil || b == nil {
			return 0, nil, fmt.Errorf("%q is no bucket", name)
		}
		size(len(name))
		_, _ = d.Write(name)
		if bytes.Equal(name, bucketNames) {
			continue
		}
		at = Cursor{Bucket: string(name)}
		if at.Bucket == from.Bucket {
			at.Key = from.Key
		}
		var last []byte
		c := b.Cursor()
		for k, v := c.Seek(at.Key); k != nil; k, v = c.Next() {
			if bytes.Equal(name, bucketMeta) && bytes.Equal(k, keySweep) {
				continue
			}
			if limit <= 0 {
				return d.Sum64(), &Cursor{at.Bucket, bytes.Clone(k)}, nil
			}
			limit -= len(k) + len(v)
			size(len(k))
			size(len(v))
			_, _ = d.Write(k)
			_, _ = d.Write(v)
			if bytes.Compare(k, at.Key) < 0 || last != nil && bytes.Compare(k, last) <= 0 || !bytes.Equal(b.Get(k), v) {
				return 0, nil, fmt.Errorf("bucket %s: key %x is not where it is looked for", name, k)
			}
			last = k
			if bytes.Equal(name, bucketJobs) {
				if err := f.nameOf(k, v, s); err != nil {
					return 0, nil, err
				}
			}
		}
	}
	return d.Sum64(), nil, nil
}

// nameOf says whether the name of a job leads to it, if it is where names as old are kept.
func (f *Frozen) nameOf(k, v []byte, s sweep) error {
	def, err := DecodeDefinition(v)
	if err != nil || len(k) != 8 {
		return fmt.Errorf("bucket %s: the definition under key %x cannot be read", bucketJobs, k)
	}
	if def.Spec.Name == "" {
		return nil
	}
	key := scoped(def.Spec.Namespace, def.Spec.Name)
	if in := f.tx.Bucket(bucketNames).Get([]byte(key)); s.has(key, job.ID(parseU64(k))) && !bytes.Equal(in, k) {
		return fmt.Errorf("bucket %s: %q does not lead to its job %s", bucketNames, key, job.ID(parseU64(k)))
	}
	return nil
}
