package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

func inQueue(name string) func(*job.Spec) {
	return func(s *job.Spec) {
		s.Type, s.Payload, s.Overlap = job.TypeQueue, fmt.Appendf(nil, `{"queue":%q}`, name), job.OverlapAllow
	}
}

func inDefault(name string) job.QueueKey {
	return job.QueueKey{Namespace: job.DefaultNamespace, Name: name}
}

func (w *world) setQueue(c fsm.PutQueue) {
	w.t.Helper()
	c.Head = w.head()
	if o := w.do(&c).Items[0]; o.Code != fsm.CodeOK {
		w.t.Fatalf("%+v: %+v", c, o)
	}
}

func (w *world) limit(name string, n int) {
	w.t.Helper()
	w.setQueue(fsm.PutQueue{Name: name, Set: fsm.QueueConcurrency, Concurrency: n})
}

func (w *world) pauseQueue(name string, yes bool) {
	w.t.Helper()
	w.setQueue(fsm.PutQueue{Name: name, Set: fsm.QueuePaused, Paused: yes})
}

func (w *world) running(name string) int { return w.st.Queue(inDefault(name)).Claimed }

func queueWorker(f *fakeWorker) { f.is.Types = []job.Type{job.TypeQueue} }

func TestAQueueAtItsLimit(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("no events: ", silent), func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.opts.noEvents = silent
				s := w.lead()
				a, b := w.create("@manual", inQueue("a")), w.create("@manual", inQueue("b"))
				w.limit("a", 2)
				for _, n := range []string{"w1", "w2"} {
					w.worker(n, 10, func(f *fakeWorker) { queueWorker(f); f.handle = takes(10 * time.Second) }).mustJoin()
				}
				for range 6 {
					w.trigger(a)
					w.trigger(b)
				}
				time.Sleep(3 * time.Second)
				if n, m := w.running("a"), w.running("b"); n != 2 || m != 6 {
					t.Fatalf("%d of a, %d of b", n, m)
				}
				if why := s.WaitReason(a); why != "queue a is at its limit (2 of 2 running)" {
					t.Error(why)
				}
				if err := s.Ready(); err != nil {
					t.Errorf("a full queue is no failure: %v", err)
				}
				w.limit("a", 3) // more room is used at once
				time.Sleep(1500 * time.Millisecond)
				if n := w.running("a"); n != 3 {
					t.Errorf("%d after the limit was raised", n)
				}
				w.limit("a", 1) // a lower limit takes nothing away
				time.Sleep(1500 * time.Millisecond)
				if n := w.running("a"); n != 3 {
					t.Errorf("%d after the limit was lowered", n)
				}
				time.Sleep(10 * time.Second)
				if n := w.running("a"); n != 1 {
					t.Errorf("%d", n)
				}
				w.pauseQueue("a", true)
				time.Sleep(20 * time.Second)
				if n := w.running("a"); n != 0 {
					t.Errorf("%d in a paused queue", n)
				}
				if why := s.WaitReason(a); why != "queue a is paused" {
					t.Error(why)
				}
				w.limit("a", 0)
				w.pauseQueue("a", false)
				time.Sleep(1500 * time.Millisecond)
				if n := w.running("a"); n != 2 {
					t.Errorf("%d after it was resumed", n)
				}
				time.Sleep(12 * time.Second)
				if n := len(w.history(a)); n != 6 {
					t.Errorf("%d ran", n)
				}
			})
		})
	}
}

// The limit is about the queue, not about a leadership: what workers had in hand before a failover counts, also if they
// never come back.
func TestALimitOutlivesTheLeader(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		a := w.create("@manual", inQueue("a"))
		w.limit("a", 2)
		old := w.worker("old", 2, func(f *fakeWorker) { queueWorker(f); f.handle = takes(time.Hour) }).mustJoin()
		for range 4 {
			w.trigger(a)
		}
		time.Sleep(time.Second)
		old.crash()
		w.lead()
		w.worker("new", 9, func(f *fakeWorker) { queueWorker(f); f.handle = takes(time.Second) }).mustJoin()
		time.Sleep(25 * time.Second)
		if n := w.running("a"); n != 2 || len(w.history(a)) != 0 {
			t.Errorf("%d run, %d ran", n, len(w.history(a)))
		}
		time.Sleep(30 * time.Second) // the lease of the lost one ends; its two runs come back
		if n := w.running("a"); n != 0 {
			t.Errorf("%d are left", n)
		}
		done := 0
		for _, r := range w.history(a) {
			if r.Status == job.RunSucceeded {
				done++
			}
		}
		if done != 4 {
			t.Errorf("%d of 4: %q", done, w.summary(a))
		}
	})
}

// Claims that are on their way when their queue is paused are refused in apply, wait where they were, and run in order
// afterwards.
func TestAPauseOvertakesClaims(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		busy := 0
		w.opts.Metrics.Claims = func(outcome string, n int) {
			if outcome == "busy" {
				busy += n
			}
		}
		w.lead()
		w.worker("w1", 10, queueWorker).mustJoin()
		ids := []job.ID{}
		for range 5 {
			ids = append(ids, w.create("@manual", inQueue("a")))
		}
		w.setFault(func(fsm.Command) (error, bool) { // a slow log
			time.Sleep(50 * time.Millisecond)
			return nil, true
		})
		// Into the log in this order: five triggers, then the pause, and the claims that the triggers caused behind it.
		var fs []Future
		for _, id := range ids {
			fs = append(fs, w.s.o.Proposer.Propose(&fsm.Trigger{Head: w.head(), Job: uint64(id)}))
		}
		for i, f := range fs {
			if i == 1 {
				// The first claim is being proposed about now.
				time.Sleep(20 * time.Millisecond)
				fs = append(fs, w.s.o.Proposer.Propose(
					&fsm.PutQueue{Head: w.head(), Name: "a", Set: fsm.QueuePaused, Paused: true}))
			}
			f.Wait()
		}
		time.Sleep(3 * time.Second)
		w.setFault(nil)
		if n := w.running("a"); n != 0 {
			t.Errorf("%d run in a paused queue", n)
		}
		before := 0
		for _, id := range ids {
			before += len(w.history(id))
		}
		w.pauseQueue("a", false)
		time.Sleep(time.Second)
		after := 0
		for _, id := range ids {
			after += len(w.history(id))
		}
		w.stop()
		if before == 5 || after != 5 || busy == 0 {
			t.Errorf("%d ran before the pause, %d in all; %d claims were refused", before, after, busy)
		}
	})
}

// A proposal that is refused, or whose outcome is unknown, leaves the counts right.
func TestQueueCountsAfterFailedProposals(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		a := w.create("@manual", inQueue("a"))
		w.limit("a", 2)
		w.worker("w1", 10, queueWorker).mustJoin()
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Claim); ok {
				return notApplied(cmd)
			}
			return nil, true
		})
		for range 10 {
			w.trigger(a)
		}
		time.Sleep(5 * time.Second)
		w.setFault(nil)
		time.Sleep(5 * time.Second)
		if n := len(w.history(a)); n != 10 {
			t.Errorf("%d of 10 ran after the log was back", n)
		}
	})
}

// Jobs of one queue with different selectors and priorities share its limit; the higher priority goes first.
func TestBucketsOfAQueueShareItsLimit(t *testing.T) {
	l := newBench()
	n := &jobQueue{key: inDefault("a"), use: store.QueueUse{Queue: store.Queue{Name: "a", Concurrency: 5}}}
	l.queues[inDefault("a")] = n
	for class, lane := range map[uint32]job.Lane{1: 2, 2: 2, 3: 0} {
		l.classes[class] = newClass(fmt.Sprintf("queue\x00a\x00k=%d", class))
		l.classes[class].Selector = nil
		l.classes[class].jobQueue = n
		l.fill(class, "", lane, 100)
		n.buckets = append(n.buckets, l.buckets[bucketKey{class, lane}])
	}
	l.addSession("w", 1000, nil, job.TypeQueue)
	picks := l.match(100)
	if len(picks) != 5 || n.inFlight != 5 {
		t.Fatalf("%d picks, %d in flight", len(picks), n.inFlight)
	}
	for _, p := range picks {
		if p.Lane != 0 {
			t.Errorf("a run of lane %d", p.Lane)
		}
	}
	if len(l.match(100)) != 0 || len(l.lanes[0].ring)+len(l.lanes[2].ring) != 0 {
		t.Error("a full queue is still on the list")
	}
	l.claimResolved(&picks[0], true) // committed: it counts as before
	if len(l.match(100)) != 0 {
		t.Error("a claim made room")
	}
	l.claimResolved(&picks[1], false) // not claimed after all
	if len(l.match(100)) != 1 {
		t.Error("no room after a claim that was none")
	}
}

func TestQueueReasonsAndWorkers(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		lonely := w.create("@manual", inQueue("lonely"))
		eu := w.create("@manual", func(s *job.Spec) { inQueue("b")(s); s.Workers = map[string]string{"region": "eu"} })
		w.worker("w2", 3, func(f *fakeWorker) { queueWorker(f); f.is.Tags = map[string]string{"queue": "a,b"} }).mustJoin()
		w.worker("w1", 3, func(f *fakeWorker) { queueWorker(f); f.is.Tags = map[string]string{"queue": "b"} }).mustJoin()
		w.trigger(lonely)
		w.trigger(eu)
		time.Sleep(time.Second)
		if why := s.WaitReason(lonely); why != "no worker takes queue lonely" {
			t.Error(why)
		}
		if why := s.WaitReason(eu); why != "no worker of queue b has tags region=eu" {
			t.Error(why)
		}
		for name, want := range map[string]string{"a": "[w2]", "b": "[w1 w2]", "c": "[]"} {
			if got := fmt.Sprint(s.QueueWorkers(inDefault(name))); got != want {
				t.Errorf("workers of %s: %s", name, got)
			}
		}
		w.limit("declared", 1)
		for _, name := range []string{"lonely", "b", "declared"} {
			if err := KnownQueue(w.st, inDefault(name)); err != nil {
				t.Error(err)
			}
		}
		w.clock.jump(time.Hour)
		time.Sleep(2 * time.Second)
		if why := s.WaitReason(lonely); !strings.Contains(why, "clock") {
			t.Errorf("the leader holds: %q", why)
		}
		err := KnownQueue(w.st, inDefault("a"))
		if job.CodeOf(err) != job.CodeUnknownQueue || !strings.Contains(err.Error(), "b, declared, lonely") {
			t.Error(err)
		}
	})
}
