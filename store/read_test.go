package store

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

func TestDueEntriesAreInOrderByLane(t *testing.T) {
	s := newTest(t)
	populate(t, s)
	update(t, s, func(b *Batch) {
		for i := range job.ID(5) {
			addJob(t, b, 10+i, nil, Place{Ready: 4000 - int64(i)*100, At: 3000}, nil)
		}
	})
	scan := func(from DueKey, until int64, n int) (out []string) {
		view(t, s, func(v *View) {
			must(t, v.ScanDue(from, until, func(e DueEntry) bool {
				out = append(out, fmt.Sprintf("%s@%d", e.Job, e.Ready))
				if e.Kind == KindOccurrence && (e.State.Gen != 1 || e.Class != e.State.Class) || e.Kind != KindCleanup && e.Class == 0 {
					t.Errorf("%+v", e)
				}
				return len(out) != n
			}))
		})
		return out
	}
	want := []string{"j_1@2005", "j_e@3600", "j_d@3700", "j_c@3800", "j_b@3900", "j_a@4000"}
	if got := scan(DueKey{Lane: 2}, math.MaxInt64, 0); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := scan(DueKey{Lane: 2}, 3700, 0); !slices.Equal(got, want[:3]) {
		t.Errorf("until is not inclusive: %v", got)
	}
	if got := scan(DueKey{Lane: 2}, math.MaxInt64, 2); !slices.Equal(got, want[:2]) {
		t.Errorf("it did not stop: %v", got)
	}
	from := Place{Lane: 2, Ready: 3700, At: 3000}.Due(13)
	if got := scan(from, math.MaxInt64, 0); !slices.Equal(got, want[2:]) {
		t.Errorf("from is not inclusive: %v", got)
	}
	if got := scan(DueKey{Lane: 1}, math.MaxInt64, 0); !slices.Equal(got, []string{"j_4@500", "j_4@700"}) {
		t.Errorf("%v", got)
	}
	view(t, s, func(v *View) {
		for _, c := range []struct {
			lane        job.Lane
			after, want int64
			ok          bool
		}{{2, 0, 2005, true}, {2, 2004, 2005, true}, {2, 2005, 3600, true}, {2, 4000, 0, false}, {0, 0, 0, false}, {3, 0, 9000, true}, {1, math.MaxInt64, 0, false}} {
			if got, ok := v.NextDue(c.lane, c.after); got != c.want || ok != c.ok {
				t.Errorf("lane %d after %d: %d %v", c.lane, c.after, got, ok)
			}
		}
	})
}

func TestWalks(t *testing.T) {
	s := newTest(t)
	populate(t, s)
	update(t, s, func(b *Batch) {
		for i, n := range []string{"web-1", "web-2", "web-20", "wec"} {
			addJob(t, b, job.ID(20+i), func(s *job.Spec) { s.Name = n }, Place{Parked: true}, nil)
		}
	})
	view(t, s, func(v *View) {
		runs := func(back bool, from job.RunKey, n int) (out []int64) {
			walk := v.EachRun
			if back {
				walk = v.EachRunBack
			}
			must(t, walk(from, func(k job.RunKey, r Row) bool {
				out = append(out, k.At)
				return len(out) != n
			}))
			return out
		}
		all := []int64{500, 501, 1000, 1400, 1500}
		if got := runs(false, job.RunKey{}, 0); !slices.Equal(got, all) {
			t.Errorf("%v", got)
		}
		if got := runs(false, job.RunKey{Job: jobClaimed, At: 1000, Origin: 1}, 2); !slices.Equal(got, all[2:4]) {
			t.Errorf("%v", got)
		}
		back := slices.Clone(all)
		slices.Reverse(back)
		if got := runs(true, job.RunKey{}, 0); !slices.Equal(got, back) {
			t.Errorf("%v", got)
		}
		if got := runs(true, job.RunKey{Job: jobClaimed, At: 1000, Origin: 1}, 0); !slices.Equal(got, back[3:]) {
			t.Errorf("%v", got)
		}
		if got := runs(true, job.RunKey{Job: 1, At: 1 << 50, Origin: 1}, 1); !slices.Equal(got, back[:1]) {
			t.Errorf("%v", got)
		}

		var jobs []job.ID
		must(t, v.EachJob(2, func(id job.ID, d Definition) bool {
			jobs = append(jobs, id)
			return len(jobs) != 5 && d.Version == 1
		}))
		if !slices.Equal(jobs, []job.ID{3, 4, 5, 6, 20}) {
			t.Errorf("%v", jobs)
		}
		names := func(prefix, after string) (out []string) {
			must(t, v.EachName(job.DefaultNamespace, prefix, after, func(n string, _ job.ID) bool { out = append(out, n); return len(out) < 3 }))
			return out
		}
		for _, c := range []struct {
			prefix, after string
			want          []string
		}{
			{"", "", []string{"a", "web-1", "web-2"}}, {"web", "", []string{"web-1", "web-2", "web-20"}}, {"web", "web-2", []string{"web-20"}},
			{"web", "a", []string{"web-1", "web-2", "web-20"}}, {"web", "zzz", nil}, {"", "web-20", []string{"wec"}}, {"no", "", nil},
		} {
			if got := names(c.prefix, c.after); !slices.Equal(got, c.want) {
				t.Errorf("names %q after %q: %v", c.prefix, c.after, got)
			}
		}

		var with []job.ID
		some := func(id job.ID, d Definition) bool {
			if !strings.Contains(d.Spec.Name, "web") {
				t.Errorf("%s is %q", id, d.Spec.Name)
			}
			with = append(with, id)
			return len(with) != 2
		}
		looks, seen := 0, 0
		for after, end := job.ID(0), false; !end; looks++ {
			var err error
			var looked int
			after, looked, end, err = v.JobsWith("web-", after, 2, some)
			must(t, err)
			seen += looked
		}
		if len(with) != 3 || looks < 3 || seen != int(v.C.Jobs) {
			t.Errorf("%v in %d looks at %d of %d jobs", with, looks, seen, v.C.Jobs)
		}

		var seqs []uint64
		note := func(seq uint64, _ Record) bool { seqs = append(seqs, seq); return true }
		must(t, v.EachRecord(1, note))
		must(t, v.EachRecordBack(0, note))
		must(t, v.EachRecordBack(2, note))
		must(t, v.EachRecordBack(99, func(seq uint64, _ Record) bool { seqs = append(seqs, seq); return false }))
		must(t, v.EachOfJob(histClaimed, note))
		must(t, v.EachOfJob(0, note))
		must(t, v.EachOfJob(77, note))
		if !slices.Equal(seqs, []uint64{2, 3, 3, 2, 1, 1, 3, 2, 1}) {
			t.Errorf("%v", seqs)
		}
		var dead []uint64
		must(t, v.EachDead(0, func(seq uint64, d Dead) bool { dead = append(dead, seq); return true }))
		must(t, v.EachDead(3, func(seq uint64, d Dead) bool { dead = append(dead, seq); return true }))
		if !slices.Equal(dead, []uint64{3}) {
			t.Errorf("%v", dead)
		}
		if string(v.Request("r1")) != "outcome" || v.Request("no") != nil || v.Note(jobBad) == "" || v.Note(jobClaimed) != "" {
			t.Error("look-ups by key")
		}
		cal := ""
		must(t, v.EachCalendar(func(ns, n string, data []byte) { cal += ns + "/" + n + string(data) }))
		if cal != "default/c{}" || v.Calendar(job.DefaultNamespace, "x") != nil || v.Calendar("team-a", "c") != nil {
			t.Error(cal)
		}
		if v.Class(1) == "" || v.Class(0) != "" || v.Class(99) != "" {
			t.Error("classes")
		}
		if _, ok, err := v.Record(99); ok || err != nil {
			t.Error(err)
		}
		if _, _, ok, err := v.State(99); ok || err != nil {
			t.Error(err)
		}
	})
}

// A chain that does not lead back is refused instead of being walked for ever.
func TestAChainThatLeadsForwardEnds(t *testing.T) {
	s := newTest(t)
	populate(t, s)
	must(t, s.Close())
	tamper(t, s.Path(), put(bucketHistory, u64(1), (&Record{Prev: 2, Job: jobClaimed}).encode()))
	s = openTest(t, s.Path())
	view(t, s, func(v *View) {
		if err := v.EachOfJob(histClaimed, func(uint64, Record) bool { return true }); err == nil {
			t.Error("it ended without an error")
		}
	})
}

// Open runs are kept sorted as the bucket is, whatever the order in which they come and go, and lists that views have are not changed.
func TestOpenRunsStaySortedAndShared(t *testing.T) {
	s := newTest(t)
	update(t, s, func(b *Batch) {
		addJob(t, b, 1, nil, Place{Parked: true}, func(s *State) { s.Paused = true })
	})
	put := func(b *Batch, at int64, o job.Origin, serial bool) {
		must(t, b.PutRun(job.RunKey{Job: 1, At: at, Origin: o}, nil, &Row{Status: job.RunWaiting, Class: 1, Serial: serial}))
	}
	update(t, s, func(b *Batch) {
		for i, at := range []int64{50, 10, 30, 20, 40} {
			put(b, at, job.Origin(1+i%3), i%2 == 0)
		}
		put(b, 30, 1, false)
		put(b, 30, 1, true) // again
	})
	var held []OpenRef
	view(t, s, func(v *View) { held = v.Open(1) })
	before := slices.Clone(held)
	update(t, s, func(b *Batch) {
		k := job.RunKey{Job: 1, At: 30, Origin: 1}
		row, ok, err := b.Run(k)
		if err != nil || !ok {
			t.Fatal(err)
		}
		must(t, b.DeleteRun(k, &row))
		must(t, b.DeleteRun(k, &row))
		put(b, 5, 1, false)
	})
	if !slices.Equal(held, before) || len(before) != 6 || !before[2].Serial {
		t.Fatalf("%+v", held)
	}
	view(t, s, func(v *View) {
		var at []int64
		for _, r := range v.Open(1) {
			at = append(at, r.At)
		}
		if !slices.Equal(at, []int64{5, 10, 20, 30, 40, 50}) {
			t.Errorf("%v", at)
		}
	})
	rebuilt := openTest(t, copyOf(t, s))
	if !slices.Equal(rebuilt.idx.open[1], s.idx.open[1]) || rebuilt.OpenRunCount() != 6 {
		t.Errorf("%+v, rebuilt %+v", s.idx.open[1], rebuilt.idx.open[1])
	}
}

func copyOf(t testing.TB, s *Store) string {
	t.Helper()
	path := t.TempDir() + "/copy.db"
	must(t, writeFile(path, func(w io.Writer) error {
		c, err := s.CopyTo(w)
		if err == nil && (c.Counters != s.Counters() || c.Size == 0) {
			t.Errorf("%+v", c)
		}
		return err
	}))
	return path
}

// A state is in one place: putting it elsewhere takes it away from where it was.
func TestAStateIsInOnePlace(t *testing.T) {
	s := newTest(t)
	var st State
	update(t, s, func(b *Batch) { st = addJob(t, b, 1, nil, Place{Ready: 10, At: 10}, nil) })
	for i, p := range []Place{{Ready: 20, At: 20}, {Ready: 21, At: 20}, {Ready: 21, At: 20}, {Parked: true}, {Parked: true, Ready: 7}, {Ready: 5, At: 5}} {
		st.Gen++
		p.Lane = st.Lane
		update(t, s, func(b *Batch) {
			must(t, b.PutState(1, &st, p))
			must(t, b.PutState(1, &st, p))
			if got, _, ok, err := b.State(1); err != nil || !ok || got != st {
				t.Errorf("%d: the batch does not see its own change: %+v", i, got)
			}
		})
		sound(t, s)
		view(t, s, func(v *View) {
			if got, at, ok, err := v.State(1); err != nil || !ok || got != st || at.Parked != p.Parked || !p.Parked && at != p {
				t.Errorf("%d: %+v at %+v", i, got, at)
			}
		})
	}
	// Moving within one batch leaves nothing behind either.
	update(t, s, func(b *Batch) {
		for i := range int64(5) {
			must(t, b.PutState(1, &st, Place{Lane: st.Lane, Ready: 100 + i, At: 100}))
		}
	})
	sound(t, s)
	update(t, s, func(b *Batch) {
		must(t, b.DeleteState(1))
		must(t, b.DeleteState(1))
		must(t, b.DeleteState(99))
		must(t, b.DeleteDefinition(1))
		b.C.Jobs--
	})
	sound(t, s)
}

func TestClassesAreNumberedInOrder(t *testing.T) {
	s := newTest(t)
	number := func(b *Batch, text string) uint32 {
		n, err := b.Class(text)
		must(t, err)
		return n
	}
	update(t, s, func(b *Batch) {
		if b.KnownClass("x") || number(b, "x") != 1 || number(b, "y") != 2 || number(b, "x") != 1 || b.ClassCount() != 2 || !b.KnownClass("y") {
			t.Error("in one batch")
		}
	})
	must(t, s.Close())
	s = openTest(t, s.Path())
	update(t, s, func(b *Batch) {
		if number(b, "z") != 3 || number(b, "y") != 2 || !b.KnownClass("x") || b.ClassCount() != 3 {
			t.Error("after a restart")
		}
	})
}

func TestTheIndexIsNeverTheTruth(t *testing.T) {
	s := newTest(t)
	populate(t, s)
	s.idx.set(jobClaimed, packSpot(Place{Ready: 1, At: 1}, nil))
	view(t, s, func(v *View) {
		if _, _, _, err := v.State(jobClaimed); err == nil || !strings.Contains(err.Error(), "not where the index says") {
			t.Errorf("%v", err)
		}
	})
}
