package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// hangs makes n runs of a job that do not end, and waits until they are claimed as far as they may be.
func (w *world) hangs(id job.ID, n int) {
	w.t.Helper()
	for range n {
		w.trigger(id)
	}
	time.Sleep(3 * time.Second)
}

// Once several namespaces have jobs, each leaves as many slots of a worker free as it has there, up to an eighth: what
// one of them never gives back does not keep the others from starting.
func TestANamespaceLeavesSlotsToOthers(t *testing.T) {
	const slots = 64
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		f := w.worker("w", slots, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		ran := func(ids ...job.ID) (n []int) {
			for _, id := range ids {
				n = append(n, len(f.ranOf(id)))
			}
			return n
		}
		a := w.create("@manual", of("team-a"))
		w.hangs(a, slots/2)
		var others []job.ID
		for _, space := range []string{"team-b", "team-c", "team-d", "team-e"} {
			others = append(others, w.create("@manual", of(space)))
		}
		w.hangs(a, 2*slots)
		if n := ran(a)[0]; n != slots*7/8 {
			t.Errorf("team-a has %d of %d slots", n, slots)
		}
		want := "namespace team-a has its share of the slots: those that are free are kept for other namespaces"
		if why := s.WaitReason(a); why != want {
			t.Errorf("%q", why)
		}
		if err := s.Ready(); err != nil {
			t.Errorf("that is no failure: %v", err)
		}
		for _, id := range others {
			w.hangs(id, slots)
		}
		if n := ran(others...); fmt.Sprint(n) != "[4 2 1 1]" {
			t.Errorf("the others have %v", n)
		}
		if why := s.WaitReason(others[0]); why != "all matching slots are busy" {
			t.Errorf("%q", why)
		}
		// The next leader counts what it inherits.
		w.lead()
		f.leave()
		if err := f.join(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if n := ran(append(others, a)...); fmt.Sprint(n) != fmt.Sprint([]int{4, 2, 1, 1, slots * 7 / 8}) {
			t.Errorf("after a failover they have %v", n)
		}
	})
}

// A cluster whose jobs are in one namespace loses no slot, nor does a worker of one namespace or with one slot; and
// what ends makes room for the one that has less.
func TestWhereNothingIsKeptFree(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		inHand := func(f *fakeWorker) int { f.mu.Lock(); defer f.mu.Unlock(); return len(f.set) }
		hang := func(f *fakeWorker) { f.handle = takes(time.Hour) }
		a := w.create("@manual", of("team-a"))
		all := w.worker("all", 16, hang).mustJoin()
		w.hangs(a, 20)
		if n := inHand(all); n != 16 {
			t.Errorf("%d of 16 slots for the only namespace", n)
		}
		w.create("@manual", of("team-b"))
		own := w.worker("own", 16, func(f *fakeWorker) { hang(f); f.is.Namespace = "team-a" }).mustJoin()
		one := w.worker("one", 1, hang).mustJoin()
		w.hangs(a, 20)
		if n, m := inHand(own), inHand(one); n != 16 || m != 1 {
			t.Errorf("%d of 16 slots of its own worker, %d of 1", n, m)
		}
	})
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w", 16, func(f *fakeWorker) { f.handle = takes(5 * time.Second) }).mustJoin()
		a, b := w.create("@manual", of("team-a")), w.create("@manual", of("team-b"))
		for range 200 {
			w.trigger(a)
		}
		time.Sleep(time.Second)
		for range 60 {
			w.trigger(b)
		}
		time.Sleep(30 * time.Second)
		if n, m := len(f.ranOf(a)), len(f.ranOf(b)); m < 36 || n+m < 80 {
			t.Errorf("%d of team-a, %d of team-b", n, m)
		}
	})
}

// Priorities hold within a namespace that waits for others.
func TestPrioritiesWithinAShare(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.create("@manual", of("team-b"))
		low := w.create("@manual", of("team-a", func(s *job.Spec) { s.Name, s.Priority = "low", "low" }))
		high := w.create("@manual", of("team-a", func(s *job.Spec) { s.Name, s.Priority = "high", "high" }))
		f := w.worker("w", 8, func(f *fakeWorker) { f.handle = takes(2 * time.Second) }).mustJoin()
		w.hangs(low, 30)
		for range 10 {
			w.trigger(high)
		}
		time.Sleep(2500 * time.Millisecond)
		if n := len(f.ranOf(high)); n < 7 {
			t.Errorf("%d of high priority", n)
		}
	})
}
