package scheduler

import (
	"context"
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
		// That it takes too long nobody told its worker: it is lost, and did not fail by that.
		id := w.create("@manual", func(s *job.Spec) { s.Timeout = job.Duration(20 * time.Second) })
		w.trigger(id)
		time.Sleep(time.Second)
		f.leave()
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
		// It is heard again, still with the run in hand: its result is refused by the fence, and it is told to end it.
		late, err := w.s.Report(t.Context(), job.Report{Session: f.session(), Results: []job.Result{
			{Ref: job.Ref{Fence: f.ran()[0].Fence}, Outcome: job.OutcomeSucceeded}}})
		if err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, late.Results[0], job.StatusGone, "no run is out under this fence")
		f.mustJoin()
		time.Sleep(20 * time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.gone) != 1 || len(f.set) != 0 || len(f.answers) != 0 {
			t.Errorf("told %+v, reported %+v, %d in hand", f.gone, f.answers, len(f.set))
		}
		if n := len(w.history(id)); n != 2 {
			t.Errorf("%d records", n)
		}
	})
}

// A worker polls, and its heartbeats are lost: its run is taken back, and goes to a worker that has a slot. That of the
// first one is still taken as far as it knows.
func TestALostRunFreesNoSlotOfItsWorker(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle, f.mute = takes(10*time.Minute), true }).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		g := w.worker("w2", 1, nil).mustJoin()
		time.Sleep(time.Minute)
		if n, m := len(f.ran()), len(g.ran()); n != 1 || m != 1 {
			t.Errorf("the silent worker with one slot was given %d runs, the other one %d", n, m)
		}
		w.wantHistory(id, "failed(worker_lost)", "succeeded")
	})
}

// The process that was killed and started again in its directory has the secret of the one before it: its runs are
// released at once, also by a leader that never heard of that one. Nobody else gets the name until its lease ended.
func TestRestartedWorkerReleasesItsRunsAtOnce(t *testing.T) {
	for _, change := range []bool{false, true} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			f := w.worker("w1", 2, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
			id := w.create("@manual", nil)
			w.trigger(id)
			time.Sleep(time.Second)
			f.crash()
			if change {
				w.lead()
			}
			thief := stranger(w, "w1")
			thief.mustBeRefused()
			f.handle = nil
			f.mustJoin()
			time.Sleep(time.Second)
			w.wantHistory(id, "failed(worker_lost)", "succeeded")
			f.crash()
			time.Sleep(35 * time.Second)
			thief.mustJoin()
		})
	}
}

func TestFailoverAdoptsRunsInFlight(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 3, func(f *fakeWorker) { f.handle = takes(90 * time.Second) }).mustJoin()
		id := w.create("@manual", func(s *job.Spec) { s.Overlap, s.Delivery = job.OverlapAllow, job.DeliverAtMostOnce })
		w.trigger(id)
		w.trigger(id)
		time.Sleep(time.Second)
		f.setDeaf(true)
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
		f.setDeaf(false)
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

// A heartbeat says nothing of what it does not name: the answer with a run may be on its way, and its result may be.
func TestHeartbeatRacingWithAnAssignmentNeverReleases(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		h := w.hand("w1", 4)
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		r, err := h.ask(job.Poll{Free: 4, Wait: job.Duration(time.Second)})
		if err != nil || len(r.Runs) != 1 {
			t.Fatalf("%+v %v", r, err)
		}
		a := r.Runs[0]
		for range 4 { // before that answer arrived
			h.names()
			time.Sleep(6 * time.Second)
		}
		h.take(r)
		wantOK(t, h.names(a.Fence)[0])
		if _, ok := s.Started("w1", h.incarnation(), a.Fence); !ok {
			t.Error("the start is not known")
		}
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Complete); ok {
				time.Sleep(40 * time.Second)
			}
			return nil, true
		})
		done := make(chan struct{})
		go func() {
			h.succeeds(&a)
			close(done)
		}()
		for range 3 {
			time.Sleep(5 * time.Second)
			h.names()
		}
		<-done
		w.wantHistory(id, "succeeded")
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Errorf("%d expire commands", n)
		}
	})
}

// A worker whose poll loop died goes on sending heartbeats. What was claimed for it goes to others when its offer is
// over; it was never told of that, so at most once is kept.
func TestRunsThatAWorkerDoesNotCollectGoToAnother(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 4)
		h.offer(4)
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(time.Second)
		if n := len(applied[fsm.Claim](w)); n != 1 {
			t.Fatalf("%d claims: the test is about one that is not collected", n)
		}
		g := w.worker("w2", 4, nil).mustJoin()
		for range 3 {
			time.Sleep(3 * time.Second)
			h.names()
		}
		w.trigger(id)
		time.Sleep(time.Second)
		w.wantHistory(id, "succeeded", "succeeded") // returned, not lost
		if n := len(g.ran()); n != 2 {
			t.Errorf("the other worker ran %d", n)
		}
		g.leave()
		time.Sleep(10 * time.Second)
		w.trigger(id)
		h.wants(1) // it is given work again when it asks for some
	})
}

func TestOneResultReportedTwiceIsCommittedOnce(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 4)
		id, a := h.one(nil)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { h.succeeds(&a) })
		}
		wg.Wait()
		w.wantHistory(id, "succeeded")
		if b, err := h.report(&a, job.OutcomeSucceeded); err != nil || b.Status != job.StatusGone {
			t.Errorf("a fourth time, when nothing but the fence is said: %+v %v", b, err)
		}
		if n := len(applied[fsm.Complete](w)); n != 1 {
			t.Errorf("%d complete commands", n)
		}
	})
}

// A worker that fell silent is counted once, however many runs it had.
func TestASilentWorkerIsCountedOnce(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		expired := 0
		w.opts.Metrics.Expired = func() { expired++ }
		w.lead()
		h := w.hand("w1", 4)
		h.one(nil)
		time.Sleep(5 * time.Second)
		h.one(nil)
		time.Sleep(3 * time.Minute)
		if expired != 1 {
			t.Errorf("%d times", expired)
		}
	})
}

// A result that could not be committed leaves its claim to the lease, if its worker does not come again.
func TestALeaseEndsAfterAResultThatWasNotCommitted(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 2)
		id, a := h.one(nil)
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Complete); ok {
				time.Sleep(40 * time.Second) // longer than the lease
				return notApplied(cmd)
			}
			return nil, true
		})
		_, err := h.report(&a, job.OutcomeSucceeded)
		wantCode(t, err, job.CodeOutcomeUnknown)
		w.setFault(nil)
		time.Sleep(time.Minute) // its worker is gone
		w.wantHistory(id, "failed(worker_lost)")
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
