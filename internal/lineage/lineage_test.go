package lineage

import (
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	own := Cluster{ID: "c", Epoch: 2, Recovery: "a"}
	for name, c := range map[string]struct {
		other Cluster
		want  Relation
		says  string
	}{
		"the same":                                   {own, Same, ""},
		"another cluster":                            {Cluster{ID: "d", Epoch: 2, Recovery: "a"}, Stranger, "in cluster c"},
		"another cluster of a later epoch":           {Cluster{ID: "d", Epoch: 3}, Stranger, "in cluster c"},
		"no cluster":                                 {Cluster{}, Stranger, `n2 in ""`},
		"from before the recovery":                   {Cluster{ID: "c", Epoch: 1}, Earlier, "node n2 was not part"},
		"from before it, of a recovery of its own":   {Cluster{ID: "c", Epoch: 1, Recovery: "z"}, Earlier, "node n2 was not part"},
		"of a later recovery":                        {Cluster{ID: "c", Epoch: 3, Recovery: "b"}, Later, "node n1 was not part"},
		"of another recovery to the same epoch":      {Cluster{ID: "c", Epoch: 2, Recovery: "b"}, Rival, "both recovered"},
		"at the same epoch, which no recovery began": {Cluster{ID: "c", Epoch: 2}, Rival, "both recovered"},
	} {
		if got := own.Compare(c.other); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		text, remedy := Differ("n1", own, "n2", c.other)
		if c.says == "" && text+remedy != "" || !strings.Contains(text, c.says) || (text == "") != (remedy == "") {
			t.Errorf("%s: %q %q", name, text, remedy)
		}
		back := map[Relation]Relation{Earlier: Later, Later: Earlier}
		want, other := back[c.want]
		if !other {
			want = c.want
		}
		if got := c.other.Compare(own); got != want {
			t.Errorf("%s, seen by the other: %v", name, got)
		}
	}
}
