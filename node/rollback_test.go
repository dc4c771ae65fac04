package node

import (
	"testing"
)

func TestReplicaThatWasPutBack(t *testing.T) {
	t.Parallel()
	type step struct {
		p       progress
		refused bool
	}
	p := func(process string, opened, applied uint64) progress {
		return progress{"i", 1, process, opened, applied}
	}
	for name, steps := range map[string][]step{
		"put back":                     {{p("a", 5, 5), false}, {p("a", 5, 90), false}, {p("b", 40, 40), true}, {p("b", 40, 40), true}, {p("c", 90, 40), false}},
		"put back twice":               {{p("a", 5, 90), false}, {p("b", 90, 90), false}, {p("c", 89, 89), true}},
		"restarted":                    {{p("a", 5, 90), false}, {p("b", 95, 80), false}, {p("b", 95, 120), false}, {p("c", 120, 0), false}},
		"messages overtake each other": {{p("a", 5, 90), false}, {p("a", 5, 7), false}, {p("b", 90, 90), false}, {p("b", 90, 200), false}, {p("b", 90, 91), false}},
		"a late word of the process before": {{p("a", 90, 90), false}, {p("b", 90, 90), false}, {p("a", 90, 90), false}, {p("b", 90, 95), false},
			{p("a", 90, 90), true}, {p("b", 90, 99), false}},
		"another directory": {{p("a", 5, 90), false}, {progress{"j", 1, "b", 0, 0}, false}},
		"another epoch":     {{p("a", 5, 90), false}, {progress{"i", 2, "b", 0, 0}, false}},
	} {
		var r replicas
		for i, s := range steps {
			if err := r.see("n2", s.p); (err != nil) != s.refused {
				t.Errorf("%s, %d: %v", name, i, err)
			}
		}
	}
}
