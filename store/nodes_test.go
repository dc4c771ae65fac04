package store

import (
	"path/filepath"
	"testing"
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
