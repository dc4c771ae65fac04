package scheduler

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// index is a store and a loop that only looks for what is due.
type index struct {
	t       *testing.T
	r       *rand.Rand
	st      *store.Store
	l       *loop
	classes []uint32
	next    job.ID
}

func newIndex(t *testing.T, seed uint64) *index {
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true, MmapSize: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	x := &index{t: t, r: rand.New(rand.NewPCG(seed, 1)), st: st}
	x.batch(func(b *store.Batch) error {
		for i := range 4 {
			c, err := b.Class(fmt.Sprintf("shell\x00\x00k=%d", i))
			if err != nil {
				return err
			}
			x.classes = append(x.classes, c)
		}
		return nil
	})
	s := New(Options{Store: st, noGuard: true})
	t.Cleanup(st.Listen(s.feed.changed))
	x.l = newLoop(s)
	return x
}

func (x *index) batch(fn func(*store.Batch) error) {
	x.t.Helper()
	b, err := x.st.Begin()
	if err == nil {
		if err = fn(b); err == nil {
			err = b.Commit()
		}
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// put makes n jobs whose occurrences are ready at times that ready gives.
func (x *index) put(n int, lane job.Lane, ready func() int64) {
	x.t.Helper()
	x.batch(func(b *store.Batch) error {
		for range n {
			x.next++
			at := ready()
			if err := b.PutState(x.next, &store.State{Gen: 1, Class: x.classes[x.r.IntN(len(x.classes))]}, store.Place{Lane: lane, At: at, Ready: at}); err != nil {
				return err
			}
		}
		return nil
	})
}

// reclass gives some jobs another class, where they are.
func (x *index) reclass(n int) {
	x.t.Helper()
	x.batch(func(b *store.Batch) error {
		for range n {
			id := 1 + job.ID(x.r.Int64N(int64(x.next)+1))
			s, p, ok, err := b.State(id)
			if err == nil && ok {
				was := s.Class
				s.Class = x.classes[x.r.IntN(len(x.classes))]
				b.Reclassed(p, was, s.Class)
				err = b.PutState(id, &s, p)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// to moves the time and looks until there is nothing more to read.
func (x *index) to(now int64) {
	x.t.Helper()
	if now < x.l.now {
		x.l.rewind(now)
	}
	x.l.now = now
	for i := 0; ; i++ {
		more, err := x.l.find(i == 0)
		if err != nil {
			x.t.Fatal(err)
		}
		if !more {
			return
		}
		if i > 1000 {
			x.t.Fatal("it does not end")
		}
	}
}

// check: everything that is due is in the head of the bucket of its class, or beyond what that has room for; and what is
// in a head is due. It says how much is known.
func (x *index) check() (known int) {
	x.t.Helper()
	in := map[store.DueKey]uint32{} // the class of the head that it is in
	for k, g := range x.l.buckets {
		for _, it := range g.head.all() {
			if _, twice := in[it.DueKey]; twice {
				x.t.Fatalf("%+v is in two heads", it.DueKey)
			}
			in[it.DueKey] = k.class
		}
	}
	if len(in) != x.l.ready {
		x.t.Fatalf("%d entries are ready, %d in heads", x.l.ready, len(in))
	}
	if err := x.st.View(func(v *store.View) error {
		for lane := range job.Lane(job.Lanes) {
			if err := v.ScanDue(store.DueKey{Lane: lane}, x.l.now, func(e store.DueEntry) bool {
				if in[e.DueKey] == e.Class && x.l.known[e.DueKey] == e.Class {
					known++
				} else if g := x.l.buckets[bucketKey{e.Class, e.Lane}]; g == nil || !g.rest.covers(&e.DueKey) {
					x.t.Fatalf("%+v is due at %d and was not found", e.DueKey, x.l.now)
				}
				return true
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		x.t.Fatal(err)
	}
	for _, g := range x.l.buckets {
		if n := g.head.len(); n > headCap {
			x.t.Fatalf("%d entries in a head", n)
		}
		for _, it := range g.head.all() {
			if it.Ready > x.l.now {
				x.t.Fatalf("%+v is in a head at %d", it.DueKey, x.l.now)
			}
		}
	}
	return known
}

// drain takes entries out of the heads as claims do that are committed.
func (x *index) drain(n int) {
	x.t.Helper()
	x.batch(func(b *store.Batch) error {
		for _, g := range x.l.buckets {
			for range min(n, g.head.len()) {
				it := g.head.pop()
				x.l.ready--
				x.l.wantRefill(g)
				_, p, ok, err := b.State(it.Job)
				if err == nil && ok && p.Due(it.Job) == it.DueKey {
					err = b.DeleteState(it.Job)
				}
				if err != nil {
					return err
				}
				x.l.settled(it.DueKey)
			}
		}
		return nil
	})
}

// Whatever is put where and whenever, with or without news of it lost, in small steps and in leaps beyond the horizon:
// without the guard's help, all that is due is found as soon as it is.
func TestAllThatIsDueIsFound(t *testing.T) {
	seeds := many(200, 12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := newIndex(t, seed)
			now := int64(1_700_000_000_000)
			x.put(x.r.IntN(3000), 2, func() int64 { return now - x.r.Int64N(86_400_000) })
			x.to(now)
			for range 60 {
				lane := job.Lane(x.r.IntN(job.Lanes))
				around := []int64{10, 1000, 60_000, 2 * aheadMillis}[x.r.IntN(4)]
				switch x.r.IntN(9) {
				case 0, 1, 2:
					x.put(x.r.IntN(50), lane, func() int64 { return now - around/4 + x.r.Int64N(around) })
				case 3: // all in one millisecond
					at := now - around/4 + x.r.Int64N(around)
					x.put(x.r.IntN(many(30_000, 6000)), lane, func() int64 { return at })
				case 4: // jobs move
					x.batch(func(b *store.Batch) error {
						for range x.r.IntN(50) {
							id := 1 + job.ID(x.r.Int64N(int64(x.next)+1))
							s, _, ok, err := b.State(id)
							if err == nil && ok {
								at := now - around/4 + x.r.Int64N(around)
								err = b.PutState(id, &s, store.Place{Lane: lane, At: at, Ready: at})
							}
							if err != nil {
								return err
							}
						}
						return nil
					})
				case 5:
					x.drain(x.r.IntN(6000))
				case 6: // news is lost
					x.l.s.feed.mu.Lock()
					x.l.s.feed.marks, x.l.s.feed.lost = nil, true
					x.l.s.feed.mu.Unlock()
				case 7: // jobs need other workers
					x.reclass(x.r.IntN(500))
				case 8: // the clock is set back
					if x.r.IntN(4) == 0 {
						now -= x.r.Int64N(aheadMillis)
					}
				}
				now += x.r.Int64N(around) * x.r.Int64N(2)
				x.to(now)
				x.check()
			}
		})
	}
}

// What the wheel gives out is read time by time, and if it is a lot, in one sweep; either way all of it.
func TestManyTimesAtOnce(t *testing.T) {
	for _, n := range []int{maxTimes / 2, 3 * maxTimes} {
		x := newIndex(t, 1)
		now := int64(1_700_000_000_000)
		x.to(now)
		at := now
		x.put(n, 1, func() int64 { at++; return at })
		x.to(now + 1)
		if known := x.check(); known != 1 {
			t.Errorf("%d of %d after a millisecond", known, n)
		}
		x.to(at + 1000)
		if known := x.check(); known != n {
			t.Errorf("%d of %d in the end", known, n)
		}
	}
}

// Far more occurrences than are held at a time find a run of their job open: they are decided about at once all the
// same, not when a sweep comes by.
func TestACrowdThatIsBlockedIsDecidedAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	run(t, func(t *testing.T, w *world) {
		w.lead()
		const n = 3 * maxWaitingAdvances
		if skipped := w.blockedCrowd(n, "", 500*time.Millisecond); skipped != n {
			t.Errorf("half a second after their time %d of %d occurrences are decided about", skipped, n)
		}
	})
}

// Keys may be as long as they may be: what does not fit into one entry of the log goes into several.
func TestACrowdWithLongKeysThatIsBlocked(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	run(t, func(t *testing.T, w *world) {
		w.lead()
		const n = maxBatch + 1
		key := strings.Repeat("k", 480) + "-{job_id}-{scheduled_at_unix}"
		if skipped := w.blockedCrowd(n, key, 10*time.Second); skipped != n {
			t.Errorf("%d of %d occurrences are decided about", skipped, n)
		}
	})
}

// blockedCrowd makes n jobs whose runs take an hour, and says how many of their second occurrences are decided about
// some time after these were due.
func (w *world) blockedCrowd(n int, key string, after time.Duration) (decided int) {
	w.t.Helper()
	h := w.head()
	at := (h.Now/60_000 + 2) * 60_000
	spec := job.Spec{Type: job.TypeShell, Schedule: "* * * * *", Payload: []byte(`{"command":"true"}`), IdempotencyKey: key}
	spec.Normalize()
	def := store.Definition{Spec: spec, Version: 1}
	data := def.Append(nil)
	for i := 0; i < n; {
		cmd := &fsm.Create{Head: h}
		for ; i < n && len(cmd.Items) < 500; i++ { // with the longest keys more would not fit into an entry
			w.next++
			cmd.Items = append(cmd.Items, fsm.CreateItem{Job: w.next, Def: data, Next: fsm.When{At: at, Ready: at}})
		}
		w.do(cmd)
	}
	w.worker("w1", n, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
	time.Sleep(time.UnixMilli(at+60_000).Sub(w.clock.Now()) + after)
	for _, c := range applied[fsm.Admit](w) {
		decided += len(c.Jobs)
	}
	return decided
}
