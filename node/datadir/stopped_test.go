package datadir

import (
	"testing"

	"github.com/carillon-scheduler/carillon/internal/lineage"
)

// Why a node takes no part is in node.json, and whatever is written there later leaves it.
func TestStoppedIsWrittenDown(t *testing.T) {
	path := t.TempDir()
	d, err := Open(path, "n1", "test")
	if err == nil {
		err = d.Claim()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SaveCluster(ClusterIdentity{ClusterID: "c", Epoch: 3}); err != nil {
		t.Fatal(err)
	}
	want := Stopped{Reason: StoppedDiffers, Text: "it differs", Remedy: "remove it", At: 1_800_000_000_000,
		Index: 7, Node: "n2"}
	for _, s := range []Stopped{want, {Reason: "another"}} { // the first stays
		if err := d.Stop(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.SaveCluster(ClusterIdentity{ClusterID: "c", Epoch: 4}); err != nil {
		t.Fatal(err)
	}
	if err := d.AddReplica(Replica{Group: 1, GroupID: "g", Number: 5}, nil); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path, "n1", "test")
	if err != nil {
		t.Fatal(err)
	}
	if s := again.StoppedIn(0, lineage.Cluster{ID: "c", Epoch: 4}); len(again.Stopped) != 1 || s == nil || *s != want || again.ClusterID != "c" || again.Epoch != 4 ||
		len(again.Replicas) != 1 {
		t.Errorf("%+v, %+v", again.Stopped, again.Identity)
	}
}
