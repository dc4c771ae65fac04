package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// rewriteTx bounds one transaction of a rewrite, in bytes.
const rewriteTx = 16 << 20

// Rewrite writes everything in the bbolt file src into a new file dst, without the room that deleted things left. Both are read through and
// compared before it returns; dst is durable then, but its name is not. No process may have src open. If it fails there is no dst.
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
	to, err := bolt.Open(dst, 0o600, &bolt.Options{Timeout: time.Second, NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = bolt.Compact(to, from, rewriteTx)
	if err == nil {
		err = to.Sync()
	}
	if cerr := to.Close(); err == nil {
		err = cerr
	}
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
