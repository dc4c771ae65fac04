package memberrows

import (
	"testing"

	"github.com/carillon-scheduler/carillon/store"
)

func TestKeptRows(t *testing.T) {
	var k Cache
	// known says whether a row is kept, and has it read otherwise.
	known := func(id string, while func()) bool {
		kept := true
		row, ok, err := k.Row(id, func() (store.Node, bool, error) {
			kept = false
			if while != nil {
				while()
			}
			return store.Node{ID: id}, true, nil
		})
		if err != nil || !ok || row.ID != id {
			t.Errorf("%+v %t %v", row, ok, err)
		}
		return kept
	}
	if known("n1", nil) {
		t.Error("nothing was kept, and something is known")
	}
	if !known("n1", nil) {
		t.Error("it is not kept")
	}
	k.Changed(&store.Changes{}) // of something else
	if !known("n1", nil) {
		t.Error("forgotten without a reason")
	}
	known("n2", func() { k.Changed(&store.Changes{Nodes: true}) }) // between the reading of a row and its keeping
	for _, id := range []string{"n1", "n2"} {
		if known(id, nil) {
			t.Errorf("%s is known from before the change", id)
		}
	}
	k.Changed(&store.Changes{Reset: true})
	if known("n1", nil) {
		t.Error("n1 is known from the file that was replaced")
	}
}

func TestAllRows(t *testing.T) {
	var k Cache
	reads := 0
	all := func(while func()) {
		rows, err := k.All(func() (map[string]store.Node, error) {
			reads++
			while()
			return map[string]store.Node{"n1": {ID: "n1"}}, nil
		})
		if err != nil || len(rows) != 1 {
			t.Errorf("%v %v", rows, err)
		}
		delete(rows, "n1") // what is given out is a copy
	}
	nothing := func() {}
	all(func() { k.Changed(&store.Changes{Nodes: true}) })
	all(nothing)
	all(nothing)
	if reads != 2 {
		t.Errorf("read %d times: once while it changed, and once after", reads)
	}
}
