package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// A claim that is on its way through the log when its worker asks for the last time is in that answer: nothing else
// would ever tell it.
func TestTheLastPollWaitsForClaimsOnTheirWay(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		session, err := s.Register(context.Background(), w.worker("w1", 4, nil).reg)
		if err != nil {
			t.Fatal(err)
		}
		id := w.create("@manual", nil)
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Claim); ok {
				time.Sleep(200 * time.Millisecond)
			}
			return nil, true
		})
		w.trigger(id)
		time.Sleep(100 * time.Millisecond)
		r, err := s.Poll(context.Background(), job.Poll{Session: session.SessionRef})
		if err != nil || len(r.Assignments) != 1 {
			t.Errorf("%+v %v", r, err)
		}
	})
}

// A worker that is about to leave is not let go while claims for it are on their way, however long that takes: it is
// sent back for them.
func TestTheLastPollIsSentBackForSlowClaims(t *testing.T) {
	slow := func(w *world) {
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Claim); ok {
				time.Sleep(3 * drainLimit)
			}
			return nil, true
		})
	}
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		session, err := s.Register(context.Background(), w.worker("w1", 4, nil).reg)
		if err != nil {
			t.Fatal(err)
		}
		slow(w)
		w.trigger(w.create("@manual", nil))
		time.Sleep(100 * time.Millisecond)
		last := job.Poll{Session: session.SessionRef}
		_, err = s.Poll(context.Background(), last)
		wantCode(t, err, job.CodeUnavailable)
		time.Sleep(3 * drainLimit)
		if r, err := s.Poll(context.Background(), last); err != nil || len(r.Assignments) != 1 {
			t.Errorf("%+v %v", r, err)
		}
	})
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		id := w.queueJob(nil)
		session := w.pull(job.PullPoll{}).Session
		slow(w)
		w.trigger(id)
		ctx, giveUp := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer giveUp()
		if _, err := s.PullPoll(ctx, onQueue(job.PullPoll{Session: session, Max: 1, Wait: job.Duration(time.Second)})); err == nil {
			t.Error("the poll was not given up")
		}
		last := onQueue(job.PullPoll{Session: session})
		_, err := s.PullPoll(context.Background(), last)
		wantCode(t, err, job.CodeUnavailable)
		time.Sleep(3 * drainLimit)
		if r := w.pull(last); len(r.Runs) != 0 {
			t.Errorf("%+v", r)
		}
		w.wantHistory(id) // it went back
	})
}

// What an earlier leader claimed and did not get to tell is in the first answer of this one to a worker that is about
// to leave.
func TestTheLastPollHasWhatAnEarlierLeaderClaimed(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		reg := w.worker("w1", 4, nil).reg
		session, err := w.lead().Register(context.Background(), reg)
		if err != nil {
			t.Fatal(err)
		}
		w.trigger(w.create("@manual", nil))
		time.Sleep(time.Second)
		reg.Incarnation = session.Incarnation
		s := w.lead()
		if session, err = s.Register(context.Background(), reg); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Poll(context.Background(), job.Poll{Session: session.SessionRef}); err != nil || len(r.Assignments) != 1 {
			t.Errorf("%+v %v", r, err)
		}
	})
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(nil)
		session := w.pull(job.PullPoll{}).Session
		w.trigger(id)
		lost, _ := w.pullOne(job.PullPoll{Session: session})
		w.lead()
		if r := w.pull(job.PullPoll{Session: session}); len(r.Runs) != 1 || r.Runs[0].Fence != lost.Fence {
			t.Errorf("%+v", r)
		}
	})
}

// Results that are being committed free slots that a draining worker still counts as taken. They are not an offer.
func TestADrainingWorkerGetsNothingForItsLastResults(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		session, err := s.Register(context.Background(), w.worker("w1", 4, nil).reg)
		if err != nil {
			t.Fatal(err)
		}
		ref := session.SessionRef
		first, second := w.create("@manual", nil), w.create("@manual", nil)
		w.trigger(first)
		time.Sleep(time.Second)
		r, err := s.Poll(context.Background(), job.Poll{Session: ref, Free: 4})
		if err != nil || len(r.Assignments) != 1 {
			t.Fatalf("%+v %v", r, err)
		}
		a := r.Assignments[0]
		claims := len(applied[fsm.Claim](w))
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Complete); ok {
				time.Sleep(time.Second)
			}
			return nil, true
		})
		done := make(chan error, 1)
		w.trigger(second)
		go func() {
			_, err := s.Report(context.Background(), job.Report{Session: ref, Results: []job.Result{{Run: a.Run, Fence: a.Fence, Outcome: job.OutcomeSucceeded}}})
			done <- err
		}()
		last := job.Poll{Session: ref, Acked: 1}
		r, err = s.Poll(context.Background(), last)
		if job.CodeOf(err) == job.CodeUnavailable { // the second was proposed before the poll, behind the slow result
			time.Sleep(time.Second)
			r, err = s.Poll(context.Background(), last)
		}
		if err != nil || len(r.Assignments) > 1 {
			t.Fatalf("%+v %v", r, err)
		}
		claims += len(r.Assignments) // the second may have been claimed before the poll; then it is in its answer
		beat(t, s, ref, 1)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := len(applied[fsm.Claim](w)); n != claims {
			t.Errorf("%d claims instead of %d", n, claims)
		}
	})
}

// A worker that was stopped in good order leaves its name to the next process as soon as it has nothing in hand, not
// when its lease ends; and no caller waits for it any more.
func TestADrainedWorkerLeavesItsName(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		old, next := w.worker("w1", 4, nil).reg, w.worker("w1", 4, nil).reg
		old.Secret, next.Secret = "old", "next"
		session, err := s.Register(context.Background(), old)
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
		if _, err := s.Poll(context.Background(), job.Poll{Session: ref, Acked: 1}); err != nil {
			t.Fatal(err)
		}
		_, err = s.Register(context.Background(), next)
		wantCode(t, err, job.CodeWorkerNameInUse) // it still finishes its run
		a := r.Assignments[0]
		if _, err := s.Report(context.Background(), job.Report{Session: ref, Results: []job.Result{{Run: a.Run, Fence: a.Fence, Outcome: job.OutcomeSucceeded}}}); err != nil {
			t.Fatal(err)
		}
		w.trigger(id)
		if why := s.WaitReason(id); why != "no worker has executor shell enabled" {
			t.Errorf("%q", why)
		}
		if _, err := s.Register(context.Background(), next); err != nil {
			t.Error(err)
		}
		_, err = s.Poll(context.Background(), job.Poll{Session: ref})
		wantCode(t, err, job.CodeSessionUnknown)
		w.wantHistory(id, "succeeded")
	})
}

// A worker that is stopped gives up the poll that it has open and asks for its last time. The first of the two may come
// to the leader after the second, by another connection: what it offered is not there any more, and what would be
// claimed for it would stay with a process that is gone until its lease ends.
func TestAPollThatWasGivenUpIsNoOffer(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		session, err := s.Register(context.Background(), w.worker("w1", 4, nil).reg)
		if err != nil {
			t.Fatal(err)
		}
		ref := session.SessionRef
		if r, err := s.Poll(context.Background(), job.Poll{Session: ref}); err != nil || len(r.Assignments) != 0 {
			t.Fatalf("%+v %v", r, err)
		}
		givenUp, cancel := context.WithCancel(context.Background())
		cancel()
		_, _ = s.Poll(givenUp, job.Poll{Session: ref, Free: 4, Wait: job.Duration(time.Second)})
		w.trigger(w.create("@manual", atMostOnce))
		time.Sleep(time.Second)
		if n := len(applied[fsm.Claim](w)); n != 0 {
			t.Errorf("%d claims for a worker that is gone", n)
		}
	})
}
