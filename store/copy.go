package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
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

// CopyTo writes a complete copy of the committed state. Commits go on meanwhile; the copy is of one moment. Pages that
// those commits free are kept until it is done, so w must not be slow: a file, and not a network.
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

// rewriteTx bounds one transaction of a rewrite, in bytes.
const rewriteTx = 16 << 20

// Rewrite writes everything in the bbolt file src into a new file dst, without the room that deleted things left. Both
// are read through and compared before it returns; dst is durable then, but its name is not. No process may have src
// open. If it fails there is no dst.
func Rewrite(src, dst string) (err error) {
	defer func() {
		if r := recover(); r != nil { // whatever VerifyPages does not look at
			err = Damaged(src, r)
		}
		if err != nil {
			os.Remove(dst)
		}
	}()
	if err := os.Remove(dst); err != nil && !errors.Is(err, os.ErrNotExist) { // of one that was cut off
		return err
	}
	if err := VerifyPages(src); err != nil {
		return err
	}
	from, err := boltOpen(src, Options{}, true)
	if err != nil {
		return err
	}
	defer from.Close()
	// One sync at the end: until then the file is not read.
	to, err := bolt.Open(dst, 0o600,
		&bolt.Options{Timeout: time.Second, NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = bolt.Compact(to, from, rewriteTx)
	if err == nil {
		err = to.Sync()
	}
	err = cmp.Or(err, to.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", dst, err)
	}
	if err := VerifyPages(dst); err != nil {
		return err
	}
	back, err := boltOpen(dst, Options{}, true)
	if err != nil {
		return err
	}
	defer back.Close()
	was, err := digestAll(from)
	if err != nil {
		return err
	}
	is, err := digestAll(back)
	if err != nil {
		return err
	}
	if was != is {
		return fmt.Errorf("%s does not contain what %s does; that one was left as it is", dst, src)
	}
	return nil
}

// digestAll is a hash over every key and value of a file, whatever its buckets are called.
func digestAll(db *bolt.DB) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			fmt.Fprintf(h, "bucket %d %s %d\n", len(name), name, b.Sequence())
			return digestBucket(h, b)
		})
	})
	h.Sum(sum[:0])
	return sum, err
}

func digestBucket(h hash.Hash, b *bolt.Bucket) error {
	return b.ForEach(func(k, v []byte) error {
		fmt.Fprintf(h, "%d %d ", len(k), len(v))
		h.Write(k)
		h.Write(v)
		return nil
	})
}

// Digest is a hash over all that the file says: two replicas that applied the same entries have the same one. Where a
// name is kept does not matter.
func (s *Store) Digest() (string, error) { return s.digest(true) }

// DigestContent leaves out the counters, which every entry moves: an entry that changed nothing does not move it.
func (s *Store) DigestContent() (string, error) { return s.digest(false) }

func (s *Store) digest(counters bool) (string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return "", ErrClosed
	}
	h := sha256.New()
	err := s.db.View(func(tx *bolt.Tx) error {
		for _, name := range slices.Concat(allBuckets, groupBuckets) {
			fmt.Fprintf(h, "bucket %s\n", name)
			if bytes.Equal(name, bucketNames) {
				v := &View{reads: newReads(tx, s.idx)}
				if err := v.eachNameKey("", func(key string, id job.ID) bool {
					fmt.Fprintf(h, "%q %d\n", key, id)
					return true
				}); err != nil {
					return err
				}
				continue
			}
			bucket := tx.Bucket(name)
			if bucket == nil { // as good as empty
				continue
			}
			err := bucket.ForEach(func(k, v []byte) error {
				if bytes.Equal(name, bucketMeta) &&
					(!counters && bytes.Equal(k, keyCounters) || bytes.Equal(k, keySweep)) {
					return nil
				}
				fmt.Fprintf(h, "%d %d ", len(k), len(v))
				h.Write(k)
				h.Write(v)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// Differs says where two replicas differ that should be the same: a few keys of each bucket, with both values. It is
// for those who look into it. Which names are in their bucket already is each replica's own business.
func (s *Store) Differs(other *Store) (out []string, err error) {
	err = s.View(func(v *View) error {
		return other.View(func(w *View) error {
			for _, name := range slices.Concat(allBuckets, groupBuckets) {
				if bytes.Equal(name, bucketNames) {
					continue
				}
				out = append(out, differingKeys(name, v.tx.Bucket(name), w.tx.Bucket(name))...)
			}
			return nil
		})
	})
	return out, err
}

// differingKeys are the first keys of a bucket that are not the same in two files.
func differingKeys(name []byte, a, b *bolt.Bucket) (out []string) {
	const most = 4
	look := func(a, b *bolt.Bucket, swapped bool) {
		if a == nil {
			return
		}
		for c, k, v := cursorOf(a); k != nil && len(out) < most; k, v = c.Next() {
			var w []byte
			if b != nil {
				w = b.Get(k)
			}
			own := bytes.Equal(name, bucketMeta) && bytes.Equal(k, keySweep)
			if own || w != nil && (swapped || bytes.Equal(v, w)) {
				continue
			}
			if swapped {
				v, w = w, v
			}
			out = append(out, fmt.Sprintf("%s %x: %q and %q", name, k, v, w))
		}
	}
	look(a, b, false)
	look(b, a, true)
	return out
}

func cursorOf(b *bolt.Bucket) (c *bolt.Cursor, k, v []byte) {
	c = b.Cursor()
	k, v = c.First()
	return c, k, v
}
