package insight

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// The first rows are those of all rows sorted, in whatever order they come.
func TestFirsts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		most, all := 1+random.IntN(10), random.Perm(random.IntN(50))
		f := Firsts[int]{Most: most, Compare: cmp.Compare[int]}
		for _, x := range all {
			f.Add(x)
			if len(f.some) >= 2*most {
				t.Fatalf("%d are kept for %d", len(f.some), most)
			}
		}
		got := slices.Clone(f.Rows())
		slices.Sort(all)
		if want := all[:min(most, len(all))]; !slices.Equal(got, want) || f.Omitted != len(all)-len(want) {
			t.Fatalf("the first %d of %v are %v, %d omitted", most, all, got, f.Omitted)
		}
	}
}

func TestQueueCursors(t *testing.T) {
	for _, bad := range []string{"mail", "!", "ZGVmYXVsdA"} {
		if _, err := parseQueueCursor(bad); err == nil {
			t.Errorf("%q is taken for a cursor", bad)
		}
	}
}
