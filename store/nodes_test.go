package store

import (
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

func TestNodeRows(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	n := Node{ID: "n1", Instance: "i", Address: "n1:7400", Version: "v", Level: 1, Slots: 4, Tags: map[string]string{"b": "2", "a": "1"}, JoinedAt: 5}
	update(t, s, func(b *Batch) {
		b.C.Index = 9
		must(t, b.PutNode(n))
		must(t, b.PutNode(Node{ID: "n0", Instance: "j", Address: "n1:7400", Index: 9, Removed: true}))
		if got, ok, err := b.Node("n1"); !ok || err != nil || got.Tags["b"] != "2" {
			t.Errorf("%+v %v %v", got, ok, err)
		}
	})
	must(t, s.View(func(v *View) error {
		if _, ok, err := v.Node("n2"); ok || err != nil {
			t.Error(ok, err)
		}
		ids := ""
		must(t, v.EachNode(func(n Node) { ids += n.ID }))
		if ids != "n0n1" {
			t.Error(ids)
		}
		return nil
	}))
	problems, stats, err := s.Check()
	if err != nil || len(problems) > 0 || stats.Nodes != 1 {
		t.Errorf("%q %+v %v", problems, stats, err)
	}
	was, err := s.Digest()
	must(t, err)
	n.Version = "w"
	update(t, s, func(b *Batch) { must(t, b.PutNode(n)) })
	if is, _ := s.Digest(); is == was {
		t.Error("the digest does not see the rows")
	}
}

// A file that a binary without rows wrote can be opened, read and checked, and gets the bucket when it is opened for writing.
func TestFileFromBeforeTheRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	empty, err := s.Digest()
	must(t, err)
	must(t, s.Close())
	tamper(t, path, func(tx *bolt.Tx) error { return tx.DeleteBucket(bucketNodes) })

	ro, err := Open(path, Options{ReadOnly: true})
	must(t, err)
	must(t, ro.View(func(v *View) error {
		if _, ok, err := v.Node("n1"); ok || err != nil {
			t.Error(ok, err)
		}
		return v.EachNode(func(Node) { t.Error("a row") })
	}))
	if _, err := ro.Digest(); err != nil {
		t.Error(err)
	}
	must(t, ro.Close())
	if problems, _, err := CheckFile(path); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	s = openTest(t, path)
	if d, err := s.Digest(); err != nil || d != empty {
		t.Error("another digest than a new file", err)
	}
	update(t, s, func(b *Batch) { must(t, b.PutNode(Node{ID: "n1", Instance: "i", Address: "a"})) })
}

func TestCheckFindsBadNodes(t *testing.T) {
	for name, c := range map[string]struct {
		key, value, want string
	}{
		"unreadable":   {"n1", "{", "cannot be read"},
		"another id":   {"n1", `{"id":"n2","instance":"i","address":"b"}`, "is about"},
		"no instance":  {"n1", `{"id":"n1","address":"b"}`, "no instance"},
		"future":       {"n1", `{"id":"n1","instance":"i","address":"b","index":77}`, "entry 77"},
		"same address": {"n1", `{"id":"n1","instance":"i","address":"a"}`, "same address"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			s := openTest(t, path)
			update(t, s, func(b *Batch) { must(t, b.PutNode(Node{ID: "n0", Instance: "i", Address: "a"})) })
			must(t, s.Close())
			tamper(t, path, func(tx *bolt.Tx) error { return tx.Bucket(bucketNodes).Put([]byte(c.key), []byte(c.value)) })
			problems, _, err := CheckFile(path)
			if err != nil || len(problems) != 1 || !strings.Contains(problems[0], c.want) {
				t.Errorf("%q %v", problems, err)
			}
		})
	}
}
