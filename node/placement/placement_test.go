package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/store"
)

// rowOf makes a row from the names of its nodes: "-n1" is leaving.
func rowOf(t *testing.T, number uint32, nodes string) store.GroupRow {
	t.Helper()
	row := store.GroupRow{Number: number, ID: "x", Begin: "n1", State: store.GroupActive}
	for _, id := range strings.Fields(nodes) {
		row.Last++
		name := strings.TrimPrefix(id, "-")
		row.Replicas = append(row.Replicas, store.GroupReplica{Node: name, Number: row.Last, Instance: "of-" + name,
			Leaving: name != id})
	}
	return row
}

func namesOf(row store.GroupRow) string {
	var out []string
	for _, r := range row.Replicas {
		if r.Leaving {
			r.Node = "-" + r.Node
		}
		out = append(out, r.Node)
	}
	return strings.Join(out, " ")
}

// newPlacing has voters, of which some cannot be given a replica ("!n2"), some leave ("-n2"), some have clocks that are
// wrong or not known ("~n2") and some have other replicas ("n2:5").
func newPlacing(nodes string) *Nodes {
	p := &Nodes{Self: "n1", Able: map[string]bool{}, Timely: map[string]bool{}, Instances: map[string]string{},
		Load: map[string]int{}}
	for _, id := range strings.Fields(nodes) {
		name, load, _ := strings.Cut(strings.TrimLeft(id, "!-~"), ":")
		p.Voters = append(p.Voters, name)
		p.Timely[name] = id[0] != '~'
		if load != "" {
			n := 0
			fmt.Sscan(load, &n) //nolint:errcheck // of this test
			p.Load[name] = n
		}
		if id[0] != '-' {
			p.Instances[name] = "of-" + name
			p.Able[name] = id[0] != '!'
		}
	}
	return p
}

// Where the replicas of a group are put, in all steps until there is none left, with what each group confirms taken out.
func TestPlacement(t *testing.T) {
	for name, c := range map[string]struct {
		nodes, row, want string
		size             int
	}{
		"one node":                              {nodes: "n1", row: "n1", want: "n1"},
		"three nodes":                           {nodes: "n1 n2 n3", row: "n1", want: "n1 n2 n3"},
		"it stays where it is":                  {nodes: "n1:9 n2:9 n3:9 n4 n5 n6", row: "n1 n2 n3", want: "n1 n2 n3"},
		"across copysets it stays, too":         {nodes: "n1 n2 n3 n4 n5 n6", row: "n1 n4 n5", want: "n1 n4 n5"},
		"the copyset of its first replica":      {nodes: "n1 n2 n3 n4:7 n5:7 n6:7", row: "n5", want: "n5 n4 n6"},
		"of a copyset that is not whole, least": {nodes: "n1:2 n2:1 n3 n4:3 n5:3", row: "n4", want: "n4 n3 n2"},
		"one of the copyset does not answer":    {nodes: "n1 !n2 n3 n4:4 n5:5 n6:6", row: "n1", want: "n1 n3 n4"},
		"as many as it was told to have":        {nodes: "n1 n2 n3", row: "n2", size: 1, want: "n2"},
		"two as it was told":                    {nodes: "n1 n2 n3 n4", row: "n2", size: 2, want: "n2 n1"},

		"no node for the one that leaves":      {nodes: "n1 -n2 n3", row: "n1 n2 n3", want: "n1 n3"},
		"a spare node for the one that leaves": {nodes: "n1 -n2 n3 n4", row: "n1 n2 n3", want: "n1 n3 n4"},
		"of spare nodes the emptiest":          {nodes: "n1 -n2 n3 n4:2 n5:1 n6:3", row: "n1 n2 n3", want: "n1 n3 n5"},
		"one of its copyset first":             {nodes: "n1:9 -n2 n3 n4 n5 n6", row: "n2 n3 n4", want: "n3 n4 n1"},
		"two leave":                            {nodes: "n1 -n2 -n3 n4 n5 n6", row: "n1 n2 n3", want: "n1 n4 n5"},
		"two leave, one spare node":            {nodes: "n1 -n2 -n3 n4", row: "n1 n2 n3", want: "n1 n4"},
		"the only replica leaves":              {nodes: "-n1 n2", row: "n1", size: 1, want: "n2"},
		"the only replica has no other place":  {nodes: "-n1 !n2", row: "n1", size: 1, want: "n1"},
		"a node that is gone":                  {nodes: "n1 n3 n4", row: "n1 n2 n3", want: "n1 n3 n4"},
		"one that goes already":                {nodes: "n1 n2 n3 n4", row: "n1 -n2 n3", want: "n1 n3 n4"},
		"no second one on a node":              {nodes: "n1 n2 n3", row: "n1 -n2 n3", want: "n1 n3 n2"}, // when the first is gone
	} {
		t.Run(name, func(t *testing.T) {
			p, row := newPlacing(c.nodes), rowOf(t, 1, c.row)
			row.Size = c.size
			last := row.Last
			for range 20 {
				next, ok := p.Next(row)
				if ok {
					old := row
					next.Last = max(next.Last, next.Replicas[len(next.Replicas)-1].Number)
					if why := next.Wrong(&old); why != "" {
						t.Fatalf("%s after %s: %s", namesOf(next), namesOf(old), why)
					}
					row = next
					continue
				}
				i := slices.IndexFunc(row.Replicas, func(r store.GroupReplica) bool { return r.Leaving })
				if i < 0 {
					break
				}
				row.Replicas = slices.Delete(slices.Clone(row.Replicas), i, i+1) // its group confirmed that
			}
			if got := namesOf(row); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			for _, r := range row.Replicas {
				was := slices.ContainsFunc(rowOf(t, 1, c.row).Replicas, func(o store.GroupReplica) bool { return o == r })
				if !was && r.Number <= last {
					t.Errorf("%+v has a number that was used", r)
				}
			}
		})
	}
}

// New groups begin where there is the least, so that nodes that came later get some.
func TestNewGroupsBeginOnTheEmptiestNode(t *testing.T) {
	for nodes, want := range map[string]string{"n1": "n1", "n1:8 n2:8 n3:8 n4 n5 n6": "n4", "n1:8 n2:8 n3:8 n4:1 n5 n6": "n5",
		"n1:8 n2:8 n3:8 !n4 n5 n6": "n5", "-n2 !n3": "n1",
		// Its first leader's clock is the majority's at first.
		"n1:8 n2:4 ~n3": "n2", "n1:8 ~n2 ~n3": "n1", "~n1:8 ~n2": "n1"} {
		if got := newPlacing(nodes).Least(); got != want {
			t.Errorf("%s: %s, want %s", nodes, got, want)
		}
	}
}
