package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Digest is a hash over every key and value: two replicas that applied the same entries have the same one.
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
		for _, name := range allBuckets {
			fmt.Fprintf(h, "bucket %s\n", name)
			bucket := tx.Bucket(name)
			if bucket == nil { // as good as empty
				continue
			}
			err := bucket.ForEach(func(k, v []byte) error {
				if !counters && bytes.Equal(name, bucketMeta) && bytes.Equal(k, keyCounters) {
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
