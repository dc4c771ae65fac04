package membership

import (
	"testing"

	"github.com/carillon-scheduler/carillon/store"
)

func TestKeptRows(t *testing.T) {
	var k keptRows
	_, known, gen := k.get("n1")
	if known {
		t.Error("nothing was kept, and something is known")
	}
	k.put("n1", keptRow{store.Node{ID: "n1"}, true}, gen)
	if r, known, _ := k.get("n1"); !known || !r.ok || r.row.ID != "n1" {
		t.Errorf("%+v %t", r, known)
	}
	k.changed(&store.Changes{}) // of something else
	if _, known, _ := k.get("n1"); !known {
		t.Error("forgotten without a reason")
	}
	_, _, gen = k.get("n2")
	k.changed(&store.Changes{Nodes: true}) // between the reading of a row and its keeping
	k.put("n2", keptRow{}, gen)
	for _, id := range []string{"n1", "n2"} {
		if _, known, _ := k.get(id); known {
			t.Errorf("%s is known from before the change", id)
		}
	}
	_, _, gen = k.get("n1")
	k.put("n1", keptRow{}, gen)
	k.changed(&store.Changes{Reset: true})
	if _, known, _ := k.get("n1"); known {
		t.Error("n1 is known from the file that was replaced")
	}
}
