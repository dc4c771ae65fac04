package scheduler

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

func wantCode(t *testing.T, err error, code job.Code) {
	t.Helper()
	if err == nil || job.CodeOf(err) != code {
		t.Errorf("error %v, want %s", err, code)
	}
}

func TestLeaseExpiryPutsRunsBackAndRefusesALateResult(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(10 * time.Minute) }).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		f.mu.Lock()
		f.mute = true
		old := f.ref
		f.mu.Unlock()
		g := w.worker("w2", 1, nil).mustJoin()
		time.Sleep(25 * time.Second)
		if n := len(g.ran()); n != 0 {
			t.Fatalf("released after %d s of a 30 s lease", 25)
		}
		time.Sleep(15 * time.Second)
		if n := len(g.ran()); n != 1 {
			t.Fatalf("%d runs went to the other worker", n)
		}
		w.wantHistory(id, "failed(worker_lost)", "succeeded")
		_, err := w.s.Report(context.Background(), job.Report{Session: old})
		wantCode(t, err, job.CodeSessionUnknown)

		// It comes back, still with the run in hand: it is told to stop, and its result is refused by the fence.
		f.leave()
		f.mu.Lock()
		f.mute = false
		f.mu.Unlock()
		f.mustJoin()
		time.Sleep(20 * time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.acks) != 1 || !f.acks[0].Stale {
			t.Errorf("acks %+v", f.acks)
		}
		if n := len(w.history(id)); n != 2 {
			t.Errorf("%d records", n)
		}
	})
}

func TestAtMostOnceIsLostNotRepeated(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", func(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce })
		w.trigger(id)
		time.Sleep(time.Second)
		f.crash()
		g := w.worker("w2", 1, nil).mustJoin()
		time.Sleep(2 * time.Minute)
		w.wantHistory(id, "lost(worker_lost)")
		if n := len(g.ran()); n != 0 {
			t.Errorf("it was repeated %d times", n)
		}
	})
}

// A claim that its living session never received is delivered again, also with at_most_once.
func TestAnAssignmentThatGotLostOnTheWayIsSentAgain(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, nil).mustJoin()
		f.mu.Lock()
		f.deaf = true
		f.mu.Unlock()
		id := w.create("@manual", func(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce })
		w.trigger(id)
		time.Sleep(2 * time.Minute) // many polls and heartbeats without it
		if n := len(f.ran()); n != 0 {
			t.Fatal("not deaf")
		}
		f.mu.Lock()
		f.deaf = false
		f.mu.Unlock()
		time.Sleep(5 * time.Second)
		w.wantHistory(id, "succeeded")
		if r := f.ran(); len(r) != 1 || r[0].Attempt != 1 {
			t.Errorf("%+v", r)
		}
	})
}

func TestRestartedWorkerReleasesItsRunsAtOnce(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 2, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		first := f.ref.Incarnation
		f.crash()

		thief := w.worker("w1", 1, func(f *fakeWorker) { f.reg.Secret = "another" })
		wantCode(t, thief.join(), job.CodeWorkerNameInUse)

		f.handle = nil
		f.mustJoin()
		if f.ref.Incarnation <= first {
			t.Errorf("incarnation %d after %d", f.ref.Incarnation, first)
		}
		time.Sleep(time.Second)
		w.wantHistory(id, "failed(worker_lost)", "succeeded")

		// The old process, should it come back, is told that it is history.
		zombie := w.worker("w1", 1, func(f *fakeWorker) { f.reg.Incarnation = first })
		wantCode(t, zombie.join(), job.CodeStale)

		// A name whose lease has ended is free.
		f.crash()
		time.Sleep(35 * time.Second)
		thief.mustJoin()
	})
}

func TestFailoverAdoptsRunsInFlight(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 3, func(f *fakeWorker) { f.handle = takes(90 * time.Second) }).mustJoin()
		id := w.create("@manual", func(s *job.Spec) { s.Overlap, s.Delivery = job.OverlapAllow, job.DeliverAtMostOnce })
		w.trigger(id)
		w.trigger(id)
		time.Sleep(time.Second)
		f.mu.Lock()
		f.deaf = true
		f.mu.Unlock()
		w.trigger(id) // claimed, but its worker never hears of it from this leader
		time.Sleep(time.Second)
		f.leave()
		old := w.s
		w.stop()
		wantCode(t, f.join(), job.CodeNotLeader)
		w.start()
		wantCode(t, f.join(), job.CodeNotReady)
		if _, err := w.s.Stamp(); job.CodeOf(err) != job.CodeNotReady {
			t.Errorf("stamp before the takeover: %v", err)
		}
		time.Sleep(10 * time.Second) // leaderless for its worker, but within the lease
		f.mu.Lock()
		f.deaf = false
		f.mu.Unlock()
		f.mustJoin()
		if info := w.s.Workers(); len(info) != 1 || info[0].Busy != 3 || info[0].Waiting {
			t.Errorf("workers %+v", info)
		}
		time.Sleep(3 * time.Minute)
		w.wantHistory(id, "succeeded", "succeeded", "succeeded")
		if r := f.ran(); len(r) != 3 {
			t.Errorf("%d attempts", len(r))
		}
		_, err := old.Poll(context.Background(), job.Poll{})
		wantCode(t, err, job.CodeNotLeader)
	})
}

func TestRunsOfAWorkerThatNeverComesBackAreReleasedAfterAFullLease(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		f.leave()
		w.lead()
		g := w.worker("w2", 1, nil).mustJoin()
		time.Sleep(28 * time.Second)
		if len(g.ran()) != 0 {
			t.Fatal("released too early")
		}
		time.Sleep(5 * time.Second)
		w.wantHistory(id, "failed(worker_lost)", "succeeded")
	})
}

// beat sends one heartbeat by hand.
func beat(t *testing.T, s *Scheduler, ref job.SessionRef, acked uint64, held ...job.Held) job.HeartbeatReply {
	t.Helper()
	r, err := s.Heartbeat(context.Background(), job.Heartbeat{Session: ref, Acked: acked, Free: 1, Held: held})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHeartbeatRacingWithAnAssignmentNeverReleases(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		f := w.worker("w1", 4, nil)
		session, err := s.Register(context.Background(), f.reg)
		if err != nil {
			t.Fatal(err)
		}
		ref := session.SessionRef
		id := w.create("@manual", func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		w.trigger(id)
		time.Sleep(time.Second)
		r, err := s.Poll(context.Background(), job.Poll{Session: ref, Free: 4})
		if err != nil || len(r.Assignments) != 1 {
			t.Fatalf("%+v %v", r, err)
		}
		a := r.Assignments[0]
		// The answer is on its way; heartbeats that were sent before it arrived say nothing about it.
		for range 5 {
			beat(t, s, ref, 0)
			time.Sleep(6 * time.Second)
		}
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Fatal("released because of a message in flight")
		}
		// Received; then its result is on its way into the log while heartbeats without it come in.
		held := job.Held{Run: a.Run, Fence: a.Fence, StartedAt: job.At(w.clock.Now())}
		beat(t, s, ref, 1, held)
		if _, ok := s.Started("w1", ref.Incarnation, a.Fence); !ok {
			t.Error("the start is not known")
		}
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Complete); ok {
				time.Sleep(20 * time.Second)
			}
			return nil, true
		})
		done := make(chan job.ReportReply, 1)
		go func() {
			r, _ := s.Report(context.Background(), job.Report{Session: ref, Results: []job.Result{{Run: a.Run, Fence: a.Fence, Outcome: job.OutcomeSucceeded}}})
			done <- r
		}()
		for range 3 {
			time.Sleep(5 * time.Second)
			beat(t, s, ref, 1)
		}
		if acks := (<-done).Acks; len(acks) != 1 || acks[0].Stale {
			t.Errorf("acks %+v", acks)
		}
		w.wantHistory(id, "succeeded")
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Errorf("%d expire commands", n)
		}
		// A run that the worker had and twice does not know of is lost.
		w.setFault(nil)
		if _, err = s.Poll(context.Background(), job.Poll{Session: ref, Acked: 1, Free: 4}); err != nil {
			t.Fatal(err)
		}
		w.trigger(id)
		time.Sleep(time.Second)
		if r, err = s.Poll(context.Background(), job.Poll{Session: ref, Acked: 1, Free: 4}); err != nil || len(r.Assignments) != 1 || r.Assignments[0].Number != 2 {
			t.Fatalf("%+v %v", r, err)
		}
		beat(t, s, ref, 2)
		time.Sleep(time.Second)
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Error("released after one heartbeat")
		}
		beat(t, s, ref, 2)
		time.Sleep(time.Second)
		if n := len(applied[fsm.Expire](w)); n != 1 {
			t.Errorf("%d expire commands", n)
		}
		// Whatever it holds that is no longer its own it is told to stop.
		if r := beat(t, s, ref, 2, job.Held{Fence: 12345}); !slices.Equal(r.Cancel, []uint64{12345}) {
			t.Errorf("cancel %v", r.Cancel)
		}
	})
}

// A worker whose poll loop died goes on sending heartbeats. What it was given and never collected must not wait for it
// for ever.
func TestRunsThatAWorkerDoesNotCollectGoToAnother(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		f := w.worker("w1", 4, nil)
		session, err := s.Register(context.Background(), f.reg)
		if err != nil {
			t.Fatal(err)
		}
		id := w.create("@manual", func(s *job.Spec) { s.Overlap, s.Delivery = job.OverlapAllow, job.DeliverAtMostOnce })
		w.trigger(id)
		time.Sleep(time.Second)
		g := w.worker("w2", 4, nil).mustJoin()
		for range 8 {
			time.Sleep(5 * time.Second)
			beat(t, s, session.SessionRef, 0)
		}
		w.trigger(id)
		time.Sleep(time.Second)
		w.wantHistory(id, "succeeded", "succeeded") // returned, not lost: its worker was never told of it
		if n := len(g.ran()); n != 2 {
			t.Errorf("the other worker ran %d", n)
		}
		// It is given work again when it asks for some.
		g.leave()
		for range 8 {
			time.Sleep(5 * time.Second)
			beat(t, s, session.SessionRef, 0)
		}
		w.trigger(id)
		r, err := s.Poll(context.Background(), job.Poll{Session: session.SessionRef, Free: 4, Wait: job.Duration(5 * time.Second)})
		if err == nil && len(r.Assignments) == 0 {
			t.Errorf("nothing for a worker that asks")
		}
	})
}

func TestOneResultReportedTwiceIsCommittedOnce(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		f := w.worker("w1", 4, nil)
		session, _ := s.Register(context.Background(), f.reg)
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		r, err := s.Poll(context.Background(), job.Poll{Session: session.SessionRef, Free: 4})
		if err != nil {
			t.Fatal(err)
		}
		rep := job.Report{Session: session.SessionRef, Results: []job.Result{{Run: r.Assignments[0].Run, Fence: r.Assignments[0].Fence, Outcome: job.OutcomeSucceeded}}}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				reply, err := s.Report(context.Background(), rep)
				if err != nil || len(reply.Acks) != 1 || reply.Acks[0].Stale {
					t.Errorf("%+v %v", reply, err)
				}
			})
		}
		wg.Wait()
		reply, err := s.Report(context.Background(), rep)
		if err != nil || len(reply.Acks) != 1 || !reply.Acks[0].Stale {
			t.Errorf("a fourth time: %+v %v", reply, err)
		}
		if n := len(applied[fsm.Complete](w)); n != 1 {
			t.Errorf("%d complete commands", n)
		}
	})
}

func TestNoLeaseEndsWhileTheLeadershipCannotBeVerified(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		w.log.mu.Lock()
		w.log.verify = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } // raft's main loop is stuck
		w.log.mu.Unlock()
		f.leave()
		time.Sleep(5 * time.Minute)
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Error("a lease was ended")
		}
		if err := w.s.Ready(); err != nil {
			t.Errorf("the loop does not turn: %v", err)
		}
		w.log.mu.Lock()
		w.log.verify = nil
		w.log.mu.Unlock()
		time.Sleep(10 * time.Second)
		if n := len(applied[fsm.Expire](w)); n != 1 {
			t.Errorf("%d expire commands", n)
		}
		w.wantHistory(id, "failed(worker_lost)")
	})
}

// slowLog blocks the loop itself: Propose does not return for a while.
type slowLog struct {
	*testLog
	mu    sync.Mutex
	block time.Duration
}

func (l *slowLog) ProposeAll(cmds ...fsm.Command) []Future { return proposeEach(l.Propose, cmds) }

func (l *slowLog) Propose(cmd fsm.Command) Future {
	if _, ok := cmd.(*fsm.Claim); ok {
		l.mu.Lock()
		d := l.block
		l.block = 0
		l.mu.Unlock()
		time.Sleep(d)
	}
	return l.testLog.Propose(cmd)
}

func TestALateLoopExtendsAllLeasesAndIsNotReady(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		slow := &slowLog{testLog: w.log}
		w.opts.Proposer = slow
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", nil)
		other := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		w.worker("w2", 1, nil).mustJoin()
		f.mu.Lock()
		f.mute = true
		f.mu.Unlock()
		time.Sleep(20 * time.Second)
		// The next claim blocks the loop for eight seconds.
		slow.mu.Lock()
		slow.block = 8 * time.Second
		slow.mu.Unlock()
		w.trigger(other)
		time.Sleep(7 * time.Second)
		if err := w.s.Ready(); err == nil {
			t.Error("ready although the loop stands still")
		}
		time.Sleep(20 * time.Second) // 47 s without a heartbeat, but the leader did not listen for 8 of them
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Error("a lease was ended by a leader that did not listen")
		}
		time.Sleep(20 * time.Second)
		if n := len(applied[fsm.Expire](w)); n != 1 {
			t.Errorf("%d expire commands", n)
		}
	})
}

// An attempt that was shown as running has the time at which it started when it is found lost as well.
func TestLostAttemptKeepsItsStart(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 2, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", nil)
		once := w.create("@manual", func(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce })
		w.trigger(id)
		w.trigger(once)
		time.Sleep(20 * time.Second) // heartbeats
		began := map[job.ID]job.Instant{}
		for _, x := range f.ran() {
			began[x.Run.Job] = job.At(x.at)
		}
		f.crash()
		time.Sleep(time.Minute)
		for _, id := range []job.ID{id, once} {
			h := w.history(id)
			if len(h) != 1 || h[0].Reason != job.ReasonWorkerLost || h[0].StartedAt != int64(began[id]) {
				t.Errorf("started at %s: %+v", began[id], h)
			}
		}
	})
}
