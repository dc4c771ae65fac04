package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

var causes = Causes{errors.New("timeout"), errors.New("canceled"), errors.New("lease lost"), errors.New("stopping")}

// testSet is a set whose attempts end with their contexts. Its clock is the bubble's.
type testSet struct {
	*Set[string]
	mu      sync.Mutex
	started []string
}

func newTestSet(slots int) *testSet {
	t, began := &testSet{}, time.Now()
	t.Set = New(Options[string]{Mu: &t.mu, Log: slog.New(slog.DiscardHandler), Slots: slots, Causes: causes,
		Elapsed: func() time.Duration { return time.Since(began) }, Now: time.Now,
		Run: func(ctx context.Context, a *Attempt[string]) job.Result {
			t.mu.Lock()
			t.started = append(t.started, a.Work)
			t.mu.Unlock()
			<-ctx.Done()
			return job.Result{Outcome: job.OutcomeFailed, Error: context.Cause(ctx).Error()}
		},
		Shape:        func(_ context.Context, _ *Attempt[string], r job.Result) job.Result { return r },
		LeasesLocked: func() time.Duration { return min(t.GiveUpLocked(), LeaseTick) }})
	t.Base = context.Background()
	return t
}

// add takes attempts with a lease of their own each, and starts what can be started.
func (t *testSet) add(lease time.Duration, work ...string) (out []*Attempt[string]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range work {
		l := Lease{end: lease}
		a := &Attempt[string]{Key: Key{Fence: uint64(len(t.Held) + 1)}, Lease: &l, Work: w}
		t.AddLocked(a, job.Result{})
		out = append(out, a)
	}
	t.StartLocked()
	return out
}

func (t *testSet) cancel(a *Attempt[string]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.CancelLocked(a)
}

// kill ends all attempts.
func (t *testSet) kill() {
	close(t.Killed)
	never := func() bool { return false }
	t.Drain(time.Hour, never, never)
}

// results are those in line, by work.
func (t *testSet) results() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]string{}
	for _, a := range t.lineLocked(0).pending {
		out[a.Work] = a.Result.Error
		if a.Result.Outcome == job.OutcomeReturned {
			out[a.Work] = "returned"
		}
	}
	return out
}

func wantResults(t *testing.T, s *testSet, want map[string]string) {
	t.Helper()
	synctest.Wait()
	got := s.results()
	if len(got) != len(want) {
		t.Fatalf("results %v, want %v", got, want)
	}
	for w, text := range want {
		if got[w] != text {
			t.Fatalf("results %v, want %v", got, want)
		}
	}
}

// Leases of their own: each attempt ends with its lease, and one that waits for a slot is returned.
func TestLeaseOfEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSet(2)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.WatchLeases(ctx)
		s.add(10*time.Second, "a", "b", "waits")
		long := s.add(time.Minute, "waits longer")[0]
		synctest.Wait()
		time.Sleep(10*time.Second - time.Millisecond)
		wantResults(t, s, nil)
		time.Sleep(time.Millisecond)
		wantResults(t, s, map[string]string{"a": "lease lost", "b": "lease lost", "waits": "returned"})
		s.mu.Lock()
		slices.Sort(s.started)
		if !slices.Equal(s.started, []string{"a", "b", "waits longer"}) || long.State != Running || s.Busy != 1 {
			t.Errorf("started %q, %d busy", s.started, s.Busy)
		}
		s.mu.Unlock()
		s.kill()
	})
}

// Immediately before a start the lease is looked at: one that has none is returned, and the next one has its turn.
func TestNoStartWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSet(1)
		s.add(0, "late", "later")
		s.add(time.Minute, "in time")
		wantResults(t, s, map[string]string{"late": "returned", "later": "returned"})
		if !slices.Equal(s.started, []string{"in time"}) {
			t.Errorf("started %q", s.started)
		}
		s.kill()
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSet(1)
		as := s.add(time.Minute, "runs", "waits")
		synctest.Wait()
		if !s.cancel(as[1]) || !s.cancel(as[0]) || s.cancel(as[0]) || s.cancel(nil) {
			t.Error("a cancel is news once")
		}
		wantResults(t, s, map[string]string{"runs": "canceled", "waits": "canceled before it started"})
		s.Attempts.Wait()
	})
}

// Fences are numbers of a group: attempts of two groups with one fence are two attempts.
func TestSameFenceInTwoGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSet(1)
		var as []*Attempt[string]
		s.mu.Lock()
		for _, k := range []Key{{0, 7}, {1, 7}} {
			a := &Attempt[string]{Key: k, Lease: &Lease{}, Work: k.String()}
			for range 2 { // delivered twice
				s.AddLocked(a, job.Result{Outcome: job.OutcomeReturned})
			}
			as = append(as, a)
		}
		s.mu.Unlock()
		for g := range uint32(2) {
			if open, done := s.CountLocked(g); open != 0 || done != 1 || len(s.Held) != 2 {
				t.Fatalf("group %d: %d open, %d in line, %d held", g, open, done, len(s.Held))
			}
		}
		if n := s.acknowledge(s.lineLocked(1), 1, []Key{{1, 7}}); n != 1 || s.Held[as[0].Key] != as[0] || len(s.Held) != 1 {
			t.Errorf("%d acknowledged, held %v", n, s.Held)
		}
	})
}

// An attempt that may not start does not keep the others from starting, and keeps its place.
func TestStartsWhatIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSet(2)
		ready := map[string]bool{"b": true, "d": true}
		s.o.ReadyLocked = func(a *Attempt[string]) bool { return ready[a.Work] }
		s.add(time.Hour, "a", "b", "c", "d", "e")
		synctest.Wait()
		s.mu.Lock()
		slices.Sort(s.started)
		if !slices.Equal(s.started, []string{"b", "d"}) || len(s.queue) != 3 || s.queue[0].Work != "a" || s.queue[1].Work != "c" {
			t.Errorf("started %v, %d queued", s.started, len(s.queue))
		}
		s.mu.Unlock()
		s.kill()
	})
}

func reportsOf(most, bytes int) Reports[string] {
	return Reports[string]{Most: most, Bytes: bytes, Size: func(r job.Result) int { return len(r.Output) }}
}

func TestReportsAreBounded(t *testing.T) {
	s := newTestSet(1)
	l := s.lineLocked(0)
	for range 200 {
		l.pending = append(l.pending, &Attempt[string]{Result: job.Result{Output: strings.Repeat("x", 100)}})
	}
	if n := len(l.batchLocked(reportsOf(150, 1<<20))); n != 150 {
		t.Errorf("%d results in a report of at most 150", n)
	}
	if n := len(l.batchLocked(reportsOf(150, 1000))); n != 10 {
		t.Errorf("%d results of 100 bytes in 1000", n)
	}
	l.pending[0].Result.Output = strings.Repeat("x", 2000)
	if n := len(l.batchLocked(reportsOf(150, 1000))); n != 1 {
		t.Errorf("a result that is too large goes alone, not with %d", n-1)
	}
}

// A batch that the leader never acknowledges does not hold up what comes after it.
func TestUnacknowledgedGoToTheEnd(t *testing.T) {
	const most = 1000
	s := newTestSet(1)
	l := s.lineLocked(0)
	for f := range uint64(most + 2) {
		a := &Attempt[string]{Key: Key{Fence: f}}
		s.Held[a.Key], l.pending = a, append(l.pending, a)
	}
	batch := l.batchLocked(reportsOf(most, 1))
	if n := s.acknowledge(l, len(batch), []Key{{Fence: 3}, {Fence: most + 1}}); n != 1 {
		t.Fatalf("%d acknowledged; one of the two was not in the report", n)
	}
	next := l.batchLocked(reportsOf(most, 1))
	if next[0].Key.Fence != most || next[1].Key.Fence != most+1 || next[2].Key.Fence != 0 || len(l.pending) != most+1 {
		t.Fatalf("next: %v, %d in line", next[:3], len(l.pending))
	}
}
