package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// slow makes commands of a type take their time.
func slow[T any](w *world, d time.Duration) {
	w.setFault(func(cmd fsm.Command) (error, bool) {
		if _, ok := any(cmd).(*T); ok {
			time.Sleep(d)
		}
		return nil, true
	})
}

var last = job.Poll{Leave: true}

// A claim that is on its way through the log when its worker asks for the last time is in that answer: nothing else
// would ever tell it. If that takes long, the worker is sent back, and the claim goes back if it has not asked again.
func TestTheLastPollWaitsForClaimsOnTheirWay(t *testing.T) {
	for _, long := range []bool{false, true} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			h := w.hand("w1", 4)
			h.offer(4)
			slow[fsm.Claim](w, settleLimit/2)
			if long {
				slow[fsm.Claim](w, 3*settleLimit)
			}
			id := w.create("@manual", atMostOnce)
			w.trigger(id)
			time.Sleep(100 * time.Millisecond)
			if !long {
				if r := h.poll(last); len(r.Runs) != 1 {
					t.Errorf("%+v", r)
				}
				return
			}
			_, err := h.ask(last)
			wantCode(t, err, job.CodeNotReady)
			time.Sleep(3 * settleLimit)
			if r := h.poll(last); len(r.Runs) != 0 {
				t.Errorf("%+v", r)
			}
			w.wantHistory(id) // it was not told of it
			w.hand("w2", 1).wants(1)
		})
	}
}

// What an earlier leader claimed and did not get to tell is in the first answer of this one to a worker that is about
// to leave.
func TestTheLastPollHasWhatAnEarlierLeaderClaimed(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 4)
		h.offer(4)
		w.trigger(w.create("@manual", nil))
		time.Sleep(time.Second)
		w.lead()
		h.poll(last) // gets a session of this leader
		if r := h.poll(last); len(r.Runs) != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// Results that are being committed free slots that a draining worker still counts as taken. They are not an offer.
func TestADrainingWorkerGetsNothingForItsLastResults(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 1)
		_, a := h.one(nil)
		h.poll(last)
		slow[fsm.Complete](w, time.Second)
		w.trigger(w.create("@manual", nil))
		h.succeeds(&a)
		time.Sleep(2 * time.Second)
		if n := len(applied[fsm.Claim](w)); n != 1 {
			t.Errorf("%d claims", n)
		}
	})
}

// A worker that was stopped in good order leaves its name to the next process as soon as it has nothing in hand, not
// when its lease ends; and no caller waits for it any more.
func TestADrainedWorkerLeavesItsName(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		h, next := w.hand("w1", 4), stranger(w, "w1")
		id, a := h.one(func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		h.poll(last)
		next.mustBeRefused() // it still finishes its run
		h.succeeds(&a)
		w.trigger(id)
		if why := s.WaitReason(id); why != "no worker has executor shell enabled" {
			t.Errorf("%q", why)
		}
		next.mustJoin()
		time.Sleep(time.Second)
		w.wantHistory(id, "succeeded", "succeeded")
		_, err := h.ask(last)
		wantCode(t, err, job.CodeWorkerNameInUse)
	})
}

// A worker that is stopped gives up the poll that it has open and asks for its last time. The first of the two may come
// to the leader after the second, by another connection: what it offered is not there any more, and what would be
// claimed for it would stay with a process that is gone until its lease ends.
func TestAPollThatWasGivenUpIsNoOffer(t *testing.T) {
	for _, busy := range []bool{false, true} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			h := w.hand("w1", 4)
			if busy {
				h.one(nil)
			}
			givenUp := job.Poll{Session: h.is.Session, Free: 3, Wait: job.Duration(time.Second), Hold: job.Duration(maxHold)}
			if r := h.poll(last); len(r.Runs) != 0 {
				t.Fatalf("%+v", r)
			}
			claims := len(applied[fsm.Claim](w))
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, _ = h.askWith(ctx, givenUp)
			w.trigger(w.create("@manual", atMostOnce))
			time.Sleep(time.Second)
			if n := len(applied[fsm.Claim](w)) - claims; n != 0 {
				t.Errorf("%d claims for a worker that is gone", n)
			}
		})
	}
}
