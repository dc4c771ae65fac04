package fsm

import (
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/store"
)

func (w *world) node(id string) (n store.Node, ok bool) {
	w.Helper()
	err := w.st.View(func(v *store.View) (err error) {
		n, ok, err = v.Node(id)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return n, ok
}

func row(id, instance, address string) *PutNode {
	return &PutNode{Node: store.Node{ID: id, Instance: instance, Address: address, Version: "v1", Level: 1}}
}

func TestNodeRowBelongsToOneDirectory(t *testing.T) {
	w := newWorld(t)
	w.want(CodeOK, row("n1", "i1", "a:1"))
	first, ok := w.node("n1")
	if !ok || first.Index == 0 || first.JoinedAt == 0 || first.Instance != "i1" {
		t.Fatalf("%+v", first)
	}
	w.now += 1000
	// Another directory under a known id: raft would let it vote in terms in which the first one voted.
	for _, c := range []*PutNode{row("n1", "i2", "a:1"), row("n1", "i2", "a:2"), row("n2", "i2", "a:1"), row("", "i", "a:3"), row("n3", "", "a:3"), row("n3", "i", ""),
		row(strings.Repeat("x", 256), "i", "a:3")} {
		w.unchanged(CodeRefused, c)
	}
	if o := w.one(row("n1", "i2", "a:2")); !strings.Contains(o.Text, "carillon cluster remove n1") {
		t.Error(o.Text)
	}
	// The same one is refreshed; only a new address moves the index.
	c := row("n1", "i1", "a:1")
	w.unchanged(CodeOK, c)
	c.Node.Version, c.Node.Tags = "v2", map[string]string{"k": "v"}
	w.want(CodeOK, c)
	if n, _ := w.node("n1"); n.Version != "v2" || n.Index != first.Index || n.JoinedAt != first.JoinedAt || n.Tags["k"] != "v" {
		t.Errorf("%+v", n)
	}
	w.want(CodeOK, row("n1", "i1", "a:9"))
	moved, _ := w.node("n1")
	if moved.Address != "a:9" || moved.Index <= first.Index || moved.JoinedAt != first.JoinedAt ||
		moved.Vote != first.Index {
		t.Errorf("%+v", moved)
	}
	// What says whether it may vote has an index of its own.
	vote := moved.Vote
	for _, standby := range []bool{true, false} {
		c := row("n1", "i1", "a:9")
		c.Node.Standby = standby
		w.want(CodeOK, c)
		n, _ := w.node("n1")
		if n.Vote <= vote || n.Index != moved.Index {
			t.Errorf("%+v", n)
		}
		vote = n.Vote
	}
	w.check()
}

func TestRemovedNode(t *testing.T) {
	w := newWorld(t)
	w.want(CodeOK, row("n1", "i1", "a:1"))
	w.unchanged(CodeNotFound, &RemoveNode{ID: "n2"}, &RemoveNode{ID: "n1", Instance: "other"})
	w.want(CodeOK, &RemoveNode{ID: "n1", Instance: "i1"})
	gone, ok := w.node("n1")
	if !ok || !gone.Removed || gone.Index == 0 {
		t.Fatalf("%+v", gone)
	}
	w.unchanged(CodeNotFound, &RemoveNode{ID: "n1"})
	w.unchanged(CodeRefused, row("n1", "i1", "a:1")) // its directory may not come back by itself
	w.want(CodeOK, row("n2", "i2", "a:1"))           // its address is free
	w.want(CodeOK, row("n1", "i3", "a:3"))           // and so is its id, for another directory
	if n, _ := w.node("n1"); n.Removed || n.Instance != "i3" || n.Index <= gone.Index {
		t.Errorf("%+v", n)
	}
	w.check()
}

func TestFeatureLevel(t *testing.T) {
	w := newWorld(t)
	w.unchanged(CodeRefused, &SetLevel{Level: 2}) // no member has said that it can read it
	two := row("n1", "i1", "a:1")
	two.Node.Level = 2
	w.want(CodeOK, two)
	w.want(CodeOK, row("n2", "i2", "a:2"))
	w.unchanged(CodeRefused, &SetLevel{Level: 2}) // n2 cannot read it
	w.unchanged(CodeStale, &SetLevel{Level: 1}, &SetLevel{Level: 0})
	w.want(CodeOK, &RemoveNode{ID: "n2"})
	w.want(CodeOK, &SetLevel{Level: 2})
	if l := w.st.Info().Level; l != 2 {
		t.Fatal(l)
	}
	w.unchanged(CodeRefused, row("n3", "i3", "a:3"))
	w.check()

	if err := CheckLevel(2, 1); err == nil || !strings.Contains(err.Error(), "newer carillon") {
		t.Error(err)
	}
	if CheckLevel(2, 2) != nil || CheckLevel(Level, 0) != nil || CheckLevel(Level+1, 0) == nil {
		t.Error("levels")
	}

	// Neither the log nor a snapshot brings a level to a binary that does not support it.
	_, _, rc, err := Stream(w.st, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.TempDir()+"/state.db", store.Options{NoSync: true, MmapSize: 1 << 24})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var fatal error
	f := New(st, Options{Fatal: func(err error) { fatal = err }, Level: 1})
	if err := f.Restore(rc); err == nil || !strings.Contains(err.Error(), "feature level 2") {
		t.Errorf("restore: %v", err)
	}
	if st.Info().Level != 1 || fatal != nil {
		t.Error("it was restored all the same", fatal)
	}
	if _, err := os.Stat(restoreFile(st.Path())); err == nil {
		t.Error("the snapshot lies around")
	}
	two.Head = Head{Now: T(1), Term: 1}
	f.Apply(&raft.Log{Index: 1, Term: 1, Type: raft.LogCommand, Data: mustEncode(t, two)})
	cmd := &SetLevel{Head: Head{Now: T(1), Term: 1}, Level: 2}
	f.Apply(&raft.Log{Index: 2, Term: 1, Type: raft.LogCommand, Data: mustEncode(t, cmd)})
	if fatal == nil || st.Counters().Index != 1 {
		t.Errorf("%v; the state is at %d", fatal, st.Counters().Index)
	}
}
