package checker

import "testing"

func TestStates(t *testing.T) {
	for name, tc := range map[string]struct {
		states []Replica
		bad    bool
	}{
		"the same":       {states: []Replica{{Node: "n1", Index: 7, Digest: "x"}, {Node: "n2", Index: 7, Digest: "x"}}},
		"another entry":  {states: []Replica{{Node: "n1", Index: 7, Digest: "x"}, {Node: "n2", Index: 8, Digest: "y"}}},
		"one stopped":    {states: []Replica{{Node: "n1", Index: 7, Digest: "x", Stopped: true}, {Node: "n2", Index: 7, Digest: "y"}}},
		"both take part": {states: []Replica{{Node: "n1", Index: 7, Digest: "x"}, {Node: "n3", Index: 8}, {Node: "n2", Index: 7, Digest: "y"}}, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &checker{in: &Input{States: tc.states}}
			c.states()
			if bad := len(c.rep.Problems) > 0; bad != tc.bad {
				t.Errorf("%+v", c.rep.Problems)
			}
		})
	}
}
