package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
)

// bench is a loop with buckets filled by hand and no store.
func newBench() *loop {
	s := &Scheduler{sessions: map[sessionKey]*session{}, version: 1, wake: make(chan struct{}, 1)}
	s.o.Clock = stamp.NewClock()
	return newLoop(s)
}

func (l *loop) fill(class uint32, text string, lane job.Lane, n int) {
	k := bucketKey{class, lane}
	g := l.buckets[k]
	if g == nil {
		c := l.classes[class]
		if c == nil {
			c = newClass(text)
			l.classes[class] = c
		}
		g = &bucket{class: c, number: class, lane: &l.lanes[lane]}
		l.buckets[k] = g
	}
	for i := range n {
		l.take(g, &store.DueEntry{Class: class, DueKey: store.DueKey{Lane: lane, Ready: int64(i),
			Job: job.ID(class)<<32 | job.ID(l.ready+1), Kind: store.KindOccurrence}})
	}
}

func (l *loop) addSession(name string, slots int, tags map[string]string, types ...job.Type) *session {
	x := &session{key: sessionKey{name, 1}}
	x.serial, x.offers, x.capacity, x.slots = 1, true, slots, slots
	x.types, x.tags = types, tags
	l.s.sessions[x.key] = x
	l.s.version++
	return x
}

const shellClass = "shell\x00"

func byLane(picks []pick) (out [job.Lanes]int) {
	for _, p := range picks {
		out[p.Lane]++
	}
	return out
}

func TestHigherLanesFirstAndLowerLanesKeepTheirFloor(t *testing.T) {
	l := newBench()
	for lane := range job.Lane(job.Lanes) {
		l.fill(1, shellClass, lane, 4000)
	}
	l.addSession("w", 6400, nil, job.TypeShell)
	got := byLane(l.match(6400))
	for lane := 1; lane < job.Lanes; lane++ {
		if got[lane] < 6400/64-1 || got[lane] > 6400/64+2 {
			// Once the highest lane is empty the next one takes its place.
			if lane == 1 && got[0] == 4000 {
				continue
			}
			t.Errorf("lane %d got %d of 6400", lane, got[lane])
		}
	}
	if got[0] != 4000 {
		t.Errorf("the highest lane got %d of 4000", got[0])
	}

	l = newBench() // slot by slot, as they free
	l.fill(1, shellClass, 0, 4000)
	l.fill(1, shellClass, 3, 4000)
	x := l.addSession("w", 1, nil, job.TypeShell)
	low := 0
	for range 640 {
		p := l.match(10)
		if len(p) != 1 {
			t.Fatalf("%d picks for one slot", len(p))
		}
		if p[0].Lane == 3 {
			low++
		}
		x.reserved = 0
	}
	if low != 10 {
		t.Errorf("the lowest lane got %d of 640 slots", low)
	}
}

func TestAFloorIsNotSavedUp(t *testing.T) {
	l := newBench()
	l.fill(1, shellClass, 0, 2000)
	x := l.addSession("w", 1000, nil, job.TypeShell)
	l.match(1000)
	x.reserved = 0
	l.fill(1, shellClass, 3, 100)
	if got := byLane(l.match(63)); got[3] != 0 {
		t.Errorf("a lane that had no work claims %d slots for it", got[3])
	}
}

func TestBucketsOfALaneTakeTurns(t *testing.T) {
	l := newBench()
	l.fill(1, shellClass, 2, 4000)
	l.fill(2, shellClass+"\x00a=1", 2, 100)
	l.fill(3, shellClass+"\x00a=2", 2, 4000)
	x := l.addSession("w", 1, map[string]string{"a": "1"}, job.TypeShell)
	y := l.addSession("v", 1, map[string]string{"a": "2"}, job.TypeShell)
	got := map[string]int{}
	for range 300 {
		for _, p := range l.match(2) {
			got[p.b.class.Selector["a"]]++
		}
		x.reserved, y.reserved = 0, 0
	}
	// 600 slots; the small bucket is served in full, the others share.
	if got["1"] != 100 || got[""] < 200 || got["2"] < 200 {
		t.Errorf("%v", got)
	}
}

func TestLeastLoadedSessionFirst(t *testing.T) {
	l := newBench()
	l.fill(1, shellClass, 2, 100)
	a := l.addSession("a", 10, nil, job.TypeShell)
	b := l.addSession("b", 30, nil, job.TypeShell)
	a.open, b.open = 5, 3
	l.match(20)
	if a.free() < 1 || a.busy()*30-b.busy()*10 > 30 || b.busy()*10-a.busy()*30 > 30 {
		t.Errorf("a has %d of 10, b %d of 30", a.busy(), b.busy())
	}
	if n := len(l.match(100)); n != 40-8-20 {
		t.Errorf("%d more", n)
	}
	if a.free() != 0 || b.free() != 0 || len(l.match(10)) != 0 {
		t.Error("more was given than there are slots")
	}
}

func TestABucketWithoutAWorkerLeavesTheRingUntilOneComes(t *testing.T) {
	l := newBench()
	l.fill(1, "message\x00", 2, 10)
	l.fill(2, shellClass, 2, 10)
	l.addSession("w", 5, nil, job.TypeShell)
	if n := len(l.match(100)); n != 5 {
		t.Fatalf("%d", n)
	}
	if n := len(l.lanes[2].ring); n != 1 {
		t.Errorf("%d buckets in the ring", n)
	}
	l.addSession("v", 5, nil, job.TypeMessage)
	if n := len(l.match(100)); n != 5 {
		t.Errorf("%d", n)
	}
}

func TestWaitReasons(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		msg := w.create("* * * * *", func(s *job.Spec) {
			s.Type, s.Payload = job.TypeMessage, []byte(`{"broker":"nats://x","subject":"a"}`)
		})
		eu := w.create("* * * * *", func(s *job.Spec) { s.Workers = map[string]string{"region": "eu"} })
		plain := w.create("* * * * *", func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		mail := w.create("* * * * *", func(s *job.Spec) { s.Type, s.Payload = job.TypeQueue, []byte(`{"queue":"mail"}`) })
		later := w.create("0 5 * * *", func(s *job.Spec) { s.Workers = map[string]string{"region": "eu"} })
		w.worker("w1", 1, func(f *fakeWorker) {
			f.handle = takes(time.Hour)
			f.is.Types = []job.Type{job.TypeShell, job.TypeQueue}
			f.is.Tags = map[string]string{"queue": "a, b"}
		}).mustJoin()
		time.Sleep(125 * time.Second)
		// plain's first run has the only slot, and its second occurrence waits.
		w.trigger(w.create("@manual", nil))
		for id, want := range map[job.ID]string{
			msg: "no worker has executor message enabled", eu: "no worker of executor shell has tags region=eu",
			mail: "no worker takes queue mail", later: "",
			plain: "all matching slots are busy",
		} {
			if got := s.WaitReason(id); got != want {
				t.Errorf("%s: %q, want %q", id, got, want)
			}
		}
		due := 0
		if err := s.st.View(func(v *store.View) error {
			return v.ScanDue(store.DueKey{Lane: 2}, time.Now().UnixMilli(), func(store.DueEntry) bool {
				due++
				return true
			})
		}); due < 4 || err != nil {
			t.Errorf("backlog %d %v", due, err)
		}
		if err := s.Ready(); err != nil {
			t.Errorf("a backlog without slots is not a failure: %v", err)
		}
	})
}

func TestPrioritiesUnderBacklog(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		var ids []job.ID
		for range 20 {
			for _, p := range []string{"low", "critical"} {
				ids = append(ids, w.create("@manual", func(s *job.Spec) { s.Priority = p }))
			}
		}
		for _, id := range ids {
			w.trigger(id)
		}
		time.Sleep(time.Second)
		f := w.worker("w1", 1, nil).mustJoin()
		time.Sleep(10 * time.Second)
		runs := f.ran()
		if len(runs) != 40 {
			t.Fatalf("%d runs", len(runs))
		}
		for i, r := range runs {
			if critical := (r.Run.Job-ids[0])%2 == 1; critical != (i < 20) {
				t.Errorf("run %d is of %s", i, r.Run.Job)
			}
		}
	})
}

// Many jobs of one instant: heads are bounded, the rest waits in the store, and everything runs exactly once.
func TestHotInstant(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	run(t, func(t *testing.T, w *world) {
		w.lead()
		const n = 20_000
		h := w.head()
		at := (h.Now/60_000 + 2) * 60_000
		var last Future
		for i := 0; i < n; {
			cmd := &fsm.Create{Head: h}
			for ; i < n && len(cmd.Items) < 1000; i++ {
				spec := job.Spec{Type: job.TypeShell, Schedule: "0 * * * *", Payload: []byte(`{"command":"true"}`)}
				if i%3 == 0 {
					spec.Workers = map[string]string{"zone": fmt.Sprint(i % 2)}
					spec.Priority = "high"
				}
				spec.Normalize()
				def := store.Definition{Spec: spec, Version: 1}
				data := def.Append(nil)
				w.next++
				cmd.Items = append(cmd.Items, fsm.CreateItem{Job: w.next, Def: data, Next: fsm.When{At: at, Ready: at}})
			}
			last = w.s.o.Proposer.Propose(cmd)
		}
		if _, err := last.Wait(); err != nil {
			t.Fatal(err)
		}
		var workers []*fakeWorker
		for i := range 3 {
			workers = append(workers, w.worker(fmt.Sprint("w", i), 500, func(f *fakeWorker) {
				f.is.Tags = map[string]string{"zone": fmt.Sprint(i % 2)}
			}).mustJoin())
		}
		time.Sleep(time.UnixMilli(at).Sub(w.clock.Now()) + time.Second)
		seen := map[job.RunKey]int{}
		for _, f := range workers {
			for _, s := range f.ran() {
				seen[s.Run]++
			}
		}
		twice := 0
		for _, k := range seen {
			if k > 1 {
				twice++
			}
		}
		if len(seen) != n || twice != 0 {
			t.Errorf("%d of %d ran, %d of them twice", len(seen), n, twice)
		}
		if k := w.st.OpenRunCount(); k != 0 {
			t.Errorf("%d runs are open", k)
		}
	})
}

func TestLostEventsForceARescan(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 4, nil).mustJoin()
		id := w.create("@manual", nil)
		for range maxFed + 10 { // fill the feed while the loop sleeps, so that the next marks are lost
			w.s.feed.mu.Lock()
			w.s.feed.marks = append(w.s.feed.marks, store.DueMark{Lane: 3, Ready: 1})
			w.s.feed.mu.Unlock()
		}
		w.s.feed.mu.Lock()
		full := len(w.s.feed.marks) >= maxFed
		w.s.feed.mu.Unlock()
		if !full {
			t.Skip("the loop was faster")
		}
		w.trigger(id)
		time.Sleep(100 * time.Millisecond)
		if n := len(f.ran()); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// A slot that frees is used at once, also by work that found none before.
func TestBackPressure(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 3, func(f *fakeWorker) { f.handle = takes(10 * time.Second) }).mustJoin()
		id := w.create("@manual", func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		for range 9 {
			w.trigger(id)
		}
		time.Sleep(5 * time.Second)
		claimed := 0
		for _, r := range w.rows(id) {
			if r.Status == job.RunClaimed {
				claimed++
			}
		}
		if claimed != 3 {
			t.Errorf("%d claims for 3 slots", claimed)
		}
		time.Sleep(26 * time.Second)
		if n := len(w.history(id)); n != 9 {
			t.Errorf("%d done", n)
		}
		_ = f
	})
}

func TestAWorkerWithoutFreeSlotsGetsNothing(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.hand("w1", 4).offer(0)
		w.trigger(w.create("@manual", nil))
		time.Sleep(time.Second)
		if n := len(applied[fsm.Claim](w)); n != 0 {
			t.Error("a worker without free slots was given a run")
		}
	})
}

func TestQueueTakesBackWhatItGave(t *testing.T) {
	var q fifo
	for i := range 5000 {
		q.push(item{runs: uint32(i)})
	}
	for i := range 3000 {
		if it := q.pop(); it.runs != uint32(i) {
			t.Fatalf("%d at %d", it.runs, i)
		}
	}
	for i := 2999; i >= 0; i-- {
		q.unpop(item{runs: uint32(i)})
	}
	for i := range 5000 {
		if it := q.pop(); it.runs != uint32(i) {
			t.Fatalf("%d at %d", it.runs, i)
		}
	}
	if q.len() != 0 {
		t.Error("not empty")
	}
}
