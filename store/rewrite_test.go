package store

import (
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

func TestRewrite(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	db, err := bolt.Open(src, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	write := func(fn func(*bolt.Tx) error) {
		t.Helper()
		if err := db.Update(fn); err != nil {
			t.Fatal(err)
		}
	}
	write(func(tx *bolt.Tx) error {
		for _, name := range []string{"one", "empty"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		b := tx.Bucket([]byte("one"))
		for i := range uint64(5000) {
			if err := b.Put(u64(i), make([]byte, 1000)); err != nil {
				return err
			}
		}
		return b.SetSequence(9)
	})
	write(func(tx *bolt.Tx) error {
		for i := range uint64(4990) {
			if err := tx.Bucket([]byte("one")).Delete(u64(i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	// What one that was cut off left is not in the way.
	if err := os.WriteFile(dst, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := Rewrite(src, dst); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(dst)
	if err != nil || len(after) >= len(before)/10 {
		t.Errorf("%d bytes, before %d: %v", len(after), len(before), err)
	}
	if now, err := os.ReadFile(src); err != nil || string(now) != string(before) {
		t.Errorf("the old file was touched: %v", err)
	}
	db, err = bolt.Open(dst, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket([]byte("one")); b.Stats().KeyN != 10 || b.Sequence() != 9 || b.Get(u64(4995)) == nil || tx.Bucket([]byte("empty")) == nil {
			t.Error("something is missing")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	for name, data := range map[string][]byte{"cut": before[:len(before)/2], "nothing": {}, "text": []byte("this is not a database")} {
		bad, out := filepath.Join(dir, name), filepath.Join(dir, name+".out")
		if err := os.WriteFile(bad, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Rewrite(bad, out); err == nil {
			t.Errorf("%s was rewritten", name)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s left a file", name)
		}
	}
	// A disk that is full, or a directory that is not there, leaves the old file alone.
	if err := Rewrite(src, filepath.Join(dir, "none", "b.db")); err == nil {
		t.Error("written into nothing")
	}
}

// Two files that differ anywhere have different digests.
func TestDigestAllTellsApart(t *testing.T) {
	seen := map[[32]byte]string{}
	for name, fill := range map[string]func(*bolt.Tx) error{
		"empty":      func(*bolt.Tx) error { return nil },
		"bucket":     func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("a")); return err },
		"other name": func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("b")); return err },
		"sequence": func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte("a"))
			if err == nil {
				err = b.SetSequence(1)
			}
			return err
		},
		"key":   putInto("a", "k", "v"),
		"value": putInto("a", "k", "w"),
		"moved": putInto("a", "kv", ""),
	} {
		db, err := bolt.Open(filepath.Join(t.TempDir(), "x.db"), 0o600, &bolt.Options{NoSync: true})
		if err == nil {
			err = db.Update(fill)
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := digestAll(db)
		db.Close()
		if other, twice := seen[d]; twice || err != nil {
			t.Errorf("%s and %s are the same (%v)", name, other, err)
		}
		seen[d] = name
	}
}

func putInto(bucket, k, v string) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte(bucket))
		if err == nil {
			err = b.Put([]byte(k), []byte(v))
		}
		return err
	}
}
