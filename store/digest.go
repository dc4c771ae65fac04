package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

// Digest is a hash over all that the file says: two replicas that applied the same entries have the same one. Where a name is kept does not matter.
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
			if bytes.Equal(name, bucketNames) {
				v := &View{reads: newReads(tx, s.idx)}
				if err := v.EachName("", "", func(name string, id job.ID) bool {
					fmt.Fprintf(h, "%q %d\n", name, id)
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
				if bytes.Equal(name, bucketMeta) && (!counters && bytes.Equal(k, keyCounters) || bytes.Equal(k, keySweep)) {
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
