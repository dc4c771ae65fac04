package scheduler

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// sharer is a worker that has other leaders too.
func (w *world) sharer() *hand {
	w.t.Helper()
	return w.hand("w1", 10, func(p *job.Poll) { p.Shared = true })
}

// shares polls, and checks how many runs come and how many more wait.
func (h *hand) shares(p job.Poll, runs, ready int) job.PollReply {
	h.t.Helper()
	p.Hold = job.Duration(maxHold)
	r := h.poll(p)
	if len(r.Runs) != runs || r.Ready != ready {
		h.t.Fatalf("%d runs, %d wait; want %d and %d", len(r.Runs), r.Ready, runs, ready)
	}
	return r
}

func (w *world) triggers(n int) {
	for range n {
		w.trigger(w.create("@manual", nil))
	}
	time.Sleep(time.Second)
}

const minute = job.Duration(time.Minute)

// Only polls offer anything: not a heartbeat, and not a result that frees a slot.
func TestOnlyPollsOfferSharedSlots(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.sharer()
		w.triggers(6)
		h.shares(job.Poll{}, 0, 6)
		time.Sleep(2 * time.Second)
		h.shares(job.Poll{}, 0, 6)
		r := h.shares(job.Poll{Free: 2, Wait: minute, Told: true}, 2, 4)
		h.names(r.Runs[0].Fence) // what was offered is used up all the same
		for i := range r.Runs {
			h.succeeds(&r.Runs[i])
		}
		time.Sleep(2 * time.Second)
		h.shares(job.Poll{Told: true}, 0, 4)
		// What is lost on the way is sent again on the account of the next poll.
		old := h.is.Session
		h.shares(job.Poll{Free: 3, Wait: minute, Told: true}, 3, 1)
		h.is.Session = old
		h.shares(job.Poll{Free: 3, Wait: minute, Told: true}, 3, 1)
	})
}

// A worker without free slots hears that runs wait, once; and that they do not any more with the next answer.
func TestReadyIsHinted(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.sharer()
		done := make(chan struct{})
		go func() {
			h.shares(job.Poll{Wait: minute}, 0, 1) // at the first of them
			close(done)
		}()
		time.Sleep(time.Second)
		w.triggers(3)
		select {
		case <-done:
		case <-time.After(time.Second):
			t.Fatal("the poll was not answered")
		}
		began := time.Now()
		h.shares(job.Poll{Wait: job.Duration(8 * time.Second), Told: true}, 0, 3)
		if d := time.Since(began); d != 8*time.Second {
			t.Errorf("who knows was told again after %s", d)
		}
		w.worker("w2", 5, nil).mustJoin() // an ordinary one takes them
		time.Sleep(5 * time.Second)
		h.shares(job.Poll{}, 0, 0)
	})
}

// What an earlier leader claimed comes with the first answers, on the account of their polls.
func TestSharedSlotsAfterALeaderChange(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.sharer()
		w.triggers(2)
		old := h.is.Session
		h.shares(job.Poll{Free: 2, Wait: minute}, 2, 0)
		h.is.Session = old // that answer is lost
		w.lead()
		h.shares(job.Poll{}, 0, 0)
		h.shares(job.Poll{}, 2, 0)
		w.triggers(3)
		h.shares(job.Poll{Free: 1, Wait: minute, Told: true}, 1, 2)
	})
}
