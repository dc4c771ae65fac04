package placement

import (
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/store"
)

// Each node leads as many groups as the others, in whatever order the nodes got their replicas of each.
func TestLeadersAreSpreadWhateverTheOrder(t *testing.T) {
	orders := [][]string{{"n1", "n2", "n3"}, {"n1", "n3", "n2"}, {"n1", "n2", "n3"}, {"n2", "n1", "n3"},
		{"n3", "n2", "n1"}, {"n3", "n1", "n2"}}
	leads := map[string]int{}
	for i, order := range orders {
		row := store.GroupRow{Number: uint32(i + 1), Replicas: []store.GroupReplica{{Node: "n0", Leaving: true}}}
		for _, id := range order {
			row.Replicas = append(row.Replicas, store.GroupReplica{Node: id})
		}
		before := slices.Clone(row.Replicas)
		leads[Leader(&row)]++
		if !slices.Equal(row.Replicas, before) {
			t.Errorf("the row was changed: %v", row.Replicas)
		}
	}
	for _, id := range []string{"n1", "n2", "n3"} {
		if leads[id] != 2 {
			t.Errorf("of six groups %s leads %d", id, leads[id])
		}
	}
	if got := Leader(&store.GroupRow{Number: 3}); got != "" {
		t.Errorf("a group without replicas is led by %q", got)
	}
}
