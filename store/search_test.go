package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// A search looks at every name once, in order, however it is cut into pieces and whether a name is in its bucket yet.
func TestSearchNames(t *testing.T) {
	s := newTest(t)
	spaces := []string{job.DefaultNamespace, "team-a", "team-ab", "zoo"}
	var all []string
	update(t, s, func(b *Batch) {
		for i := range 40 {
			space, name := spaces[i%len(spaces)], fmt.Sprintf("job-%02d", i)
			addJob(t, b, job.ID(i+1), func(s *job.Spec) { s.Namespace, s.Name = space, name }, Place{Parked: true}, nil)
			all = append(all, NameKey(space, name))
		}
	})
	slices.Sort(all)
	for _, space := range append(spaces, job.AllNamespaces, "nothing") {
		var want []string
		for _, key := range all {
			if namespace, name := unscoped(key); space == job.AllNamespaces || namespace == space {
				want = append(want, name)
			}
		}
		for _, n := range []int{1, 3, 7, 100} {
			var got []string
			at, end := "", false
			for steps := 0; !end && steps < 100; steps++ {
				view(t, s, func(v *View) {
					var err error
					at, end, err = v.SearchNames(space, at, n, func(name string, id job.ID) bool {
						if !strings.HasSuffix(name, fmt.Sprintf("%02d", id-1)) {
							t.Errorf("%s is %s", name, id)
						}
						got = append(got, name)
						return len(got)%5 != 0 // who has enough goes on behind it
					})
					must(t, err)
				})
			}
			if !end || !slices.Equal(got, want) {
				t.Errorf("%s by %d: %q, want %q", space, n, got, want)
			}
		}
	}
}
