package store

import (
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// What a CA is to who knows the cluster by it: it is forgotten after four others, or when it or a later one is
// distrusted; one that was given up counts for nothing.
func TestStanding(t *testing.T) {
	ca := func(n byte) string { return keys.Hash{n}.String() }
	former := func(n byte) FormerCA { return FormerCA{CA: ca(n), Cert: []byte{n}, Cross: []byte{n, n}} }
	aborted := former(9)
	aborted.Aborted = true
	distrusted := former(4)
	distrusted.Cross = nil
	all := []FormerCA{former(4), former(3), former(2), former(1)}
	for name, test := range map[string]struct {
		s    Security
		want map[byte]string
	}{
		"plain":    {Security{}, map[byte]string{1: ""}},
		"at first": {Security{CA: ca(5)}, map[byte]string{5: CACurrent, 4: CAForgotten}},
		"full": {Security{CA: ca(5), Former: all},
			map[byte]string{5: CACurrent, 4: CAFormer, 2: CAFormer, 1: CALeaving, 7: CAForgotten}},
		"with one that was given up": {Security{CA: ca(5), Former: append([]FormerCA{aborted}, all...)},
			map[byte]string{4: CAFormer, 2: CAFormer, 1: CALeaving, 9: CAForgotten}},
		"while it is replaced": {Security{CA: ca(5), Former: all, Rotation: &Rotation{CA: ca(6)}},
			map[byte]string{6: CACurrent, 5: CACurrent, 4: CAFormer, 1: CALeaving}},
		"while it is distrusted": {Security{CA: ca(5), Former: all, Rotation: &Rotation{CA: ca(6), Distrust: true}},
			map[byte]string{6: CACurrent, 5: CALeaving, 4: CAForgotten, 1: CAForgotten}},
		"after that": {Security{CA: ca(5), Former: []FormerCA{distrusted, former(3)}},
			map[byte]string{5: CACurrent, 4: CAForgotten, 3: CAForgotten}},
	} {
		for n, want := range test.want {
			if got := test.s.Standing(ca(n)); got != want {
				t.Errorf("%s: CA %d is %q, want %q", name, n, got, want)
			}
		}
		if got := test.s.Standing(""); got != "" {
			t.Errorf("%s: none is %q", name, got)
		}
	}
}
