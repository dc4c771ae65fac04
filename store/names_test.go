package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// spaces are the namespaces of the names in these tests.
var spaces = []string{job.DefaultNamespace, "team-a", "team-b"}

// namesIn are the keys of all names, from the index and the bucket, in order.
func namesIn(t testing.TB, s *Store) (names []string, byName map[string]job.ID) {
	t.Helper()
	byName = map[string]job.ID{}
	view(t, s, func(v *View) {
		for _, space := range spaces {
			must(t, v.EachName(space, "", "", func(name string, id job.ID) bool {
				key := scoped(space, name)
				names, byName[key] = append(names, key), id
				return true
			}))
		}
	})
	return names, byName
}

// Jobs of several namespaces come, are renamed and go, in batches of any size, while names move to their bucket and the file is opened again at any moment: every name
// leads to its job and to no other, in order, and what batches and views say is the same.
func TestNamesWhileTheyMove(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := quick
		o.RecentNames = []int{-1, 1 + rnd.IntN(30)}[min(rnd.IntN(5), 1)]
		path := filepath.Join(t.TempDir(), "state.db")
		s, err := Open(path, o)
		must(t, err)
		want, named := map[string]job.ID{}, map[job.ID]string{}
		last, moved := job.ID(0), 0
		pick := func() (job.ID, bool) {
			ids := slices.Sorted(maps.Keys(named))
			if len(ids) == 0 {
				return 0, false
			}
			return ids[rnd.IntN(len(ids))], true
		}
		for range 60 {
			b, err := s.Begin()
			must(t, err)
			for range rnd.IntN(20) {
				space, name := spaces[rnd.IntN(len(spaces))], fmt.Sprintf("%03d", rnd.IntN(100))
				key := scoped(space, name)
				other, taken := b.Named(space, name)
				if other != want[key] || taken != (want[key] != 0) {
					t.Fatalf("seed %d: the batch says %s (%v) of %q, it is %s", seed, other, taken, key, want[key])
				}
				id, some := pick()
				switch what := rnd.IntN(6); {
				case taken:
				case what < 4:
					last++
					addJob(t, b, last, func(s *job.Spec) { s.Namespace, s.Name = space, name }, Place{Parked: true},
						func(s *State) { s.Paused = true })
					want[key], named[last] = last, key
				case !some:
				case what == 4: // a new name
					space, old := unscoped(named[id])
					if key = scoped(space, name); want[key] != 0 {
						continue
					}
					must(t, b.DeleteName(space, old, id))
					must(t, b.PutName(space, name, id))
					data := (&Definition{Spec: testSpec(func(s *job.Spec) { s.Namespace, s.Name = space, name }), Version: 2}).Append(nil)
					must(t, b.PutDefinition(id, data))
					delete(want, named[id])
					want[key], named[id] = id, key
				default:
					space, old := unscoped(named[id])
					must(t, b.DeleteName(space, old, id))
					must(t, b.DeleteState(id))
					must(t, b.DeleteDefinition(id))
					b.C.Jobs--
					delete(want, named[id])
					delete(named, id)
				}
			}
			if rnd.IntN(10) == 0 { // what was not committed never was
				b.Rollback()
				must(t, s.Close())
				if s, err = Open(path, o); err != nil {
					t.Fatal(err)
				}
				_, want = namesIn(t, s)
				last = job.ID(s.Counters().NextJob)
				clear(named)
				for name, id := range want {
					named[id] = name
				}
				continue
			}
			must(t, b.Commit())
			moved = max(moved, int(s.idx.names.sweep.settled))
			names, byName := namesIn(t, s)
			if !slices.IsSorted(names) || len(names) != len(want) || !maps.Equal(byName, want) {
				t.Fatalf("seed %d: %v, want %v", seed, byName, want)
			}
			sound(t, s)
		}
		if moved == 0 {
			t.Errorf("seed %d: nothing ever moved", seed)
		}
		was, err := s.Digest()
		must(t, err)
		must(t, s.Close())
		o.RecentNames = 1000
		s, err = Open(path, o)
		must(t, err)
		if is, err := s.Digest(); err != nil || is != was {
			t.Errorf("seed %d: another digest after opening: %v", seed, err)
		}
		must(t, s.Close())
	}
}

// The digest is about what names lead to and not about where they are kept.
func TestDigestDoesNotSeeWhereNamesAre(t *testing.T) {
	var digests []string
	for _, limit := range []int{-1, 3, 100} {
		o := quick
		o.RecentNames = limit
		s, err := Open(filepath.Join(t.TempDir(), "state.db"), o)
		must(t, err)
		for i := range 10 {
			update(t, s, func(b *Batch) {
				addJob(t, b, job.ID(i+1), func(s *job.Spec) { s.Name = fmt.Sprint("job", i*7%10) }, Place{Parked: true}, func(s *State) { s.Paused = true })
			})
		}
		d, err := s.Digest()
		must(t, err)
		digests = append(digests, d)
		if recent := s.idx.names.recent.Len(); (limit < 0) != (recent == 0) || limit == 100 && recent != 10 {
			t.Errorf("limit %d: %d names in memory", limit, recent)
		}
		must(t, s.Close())
	}
	if digests[0] != digests[1] || digests[0] != digests[2] {
		t.Errorf("%q", digests)
	}
}

// A listing begins after a name and ends with its prefix wherever the names are.
func TestEachNameFromBothPlaces(t *testing.T) {
	o := quick
	o.RecentNames = 4
	s, err := Open(filepath.Join(t.TempDir(), "state.db"), o)
	must(t, err)
	defer s.Close()
	for i, name := range []string{"b/3", "a/1", "b/1", "c/1", "b/5", "b/2", "b/4"} {
		for j, space := range spaces[:2] {
			update(t, s, func(b *Batch) {
				addJob(t, b, job.ID(2*i+j+1), func(s *job.Spec) { s.Namespace, s.Name = space, name }, Place{Parked: true},
					func(s *State) { s.Paused = true })
			})
		}
	}
	if n := s.idx.names.recent.Len(); n == 0 || n == 14 {
		t.Fatalf("%d of 14 in memory: nothing to show", n)
	}
	view(t, s, func(v *View) {
		for _, c := range []struct {
			prefix, after string
			limit         int
			want          []string
		}{
			{"b/", "", 9, []string{"b/1", "b/2", "b/3", "b/4", "b/5"}},
			{"b/", "b/2", 2, []string{"b/3", "b/4"}},
			{"b/", "a/1", 1, []string{"b/1"}},
			{"", "b/5", 9, []string{"c/1"}},
			{"d", "", 9, nil},
		} {
			for i, space := range spaces {
				var got []string
				must(t, v.EachName(space, c.prefix, c.after, func(name string, id job.ID) bool {
					if int(id-1)%2 != i {
						t.Errorf("%s in %q is %s", name, space, id)
					}
					got = append(got, name)
					return len(got) < c.limit
				}))
				if i == 2 {
					c.want = nil
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%q after %q in %q: %q, want %q", c.prefix, c.after, space, got, c.want)
				}
			}
		}
	})
}
