package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// reports hands in the result of a run; done is closed when it is answered.
func (h *hand) reports(i int, outcome job.Outcome) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		if a, err := h.report(&h.got[i], outcome); err == nil && a.Status != job.StatusOK {
			h.t.Errorf("answered with %+v", a)
		}
	}()
	synctest.Wait()
	return done
}

// started has n runs of jobs of their own in hand.
func (h *hand) started(n int) {
	for range n {
		h.trigger(h.create("@manual", nil))
	}
	h.wants(n)
}

func (w *world) byHand(slots int) *hand {
	w.lead()
	return w.hand("w1", slots)
}

func (w *world) completes() int { return len(applied[fsm.Complete](w)) }

func (w *world) wantCompletes(n int, when string) {
	w.t.Helper()
	if got := w.completes(); got != n {
		w.t.Errorf("%s: %d complete commands, want %d", when, got, n)
	}
}

const committed = 2 * time.Millisecond // of the test's log, and some

// Results that come one after the other share a command, and each is answered when that is committed.
func TestResultsAreGathered(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		h := w.byHand(64)
		h.started(3)
		first := h.reports(0, job.OutcomeSucceeded)
		time.Sleep(gatherFor / 2)
		second := h.reports(1, job.OutcomeSucceeded)
		time.Sleep(gatherFor/2 - time.Millisecond)
		synctest.Wait()
		w.wantCompletes(0, "within the window")
		if isClosed(first) || isClosed(second) {
			t.Error("answered before the commit")
		}
		time.Sleep(time.Millisecond + committed)
		synctest.Wait()
		w.wantCompletes(1, "after the window")
		if !isClosed(first) || !isClosed(second) {
			t.Error("not answered after the commit")
		}
		// The next one has a window of its own.
		h.reports(2, job.OutcomeSucceeded)
		time.Sleep(gatherFor - time.Millisecond)
		synctest.Wait()
		w.wantCompletes(1, "within the next window")
		time.Sleep(time.Millisecond + committed)
		synctest.Wait()
		w.wantCompletes(2, "after the next window")
	})
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A claim does not wait, and what was gathered goes into the log right before it.
func TestGatheredResultsGoAheadOfAClaim(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		h := w.byHand(64)
		h.started(1)
		id := w.create("@manual", nil)
		done := h.reports(0, job.OutcomeSucceeded)
		w.trigger(id)
		h.wants(1)
		synctest.Wait()
		w.log.mu.Lock()
		seen := w.log.seen
		w.log.mu.Unlock()
		n := len(seen)
		if _, ok := seen[n-1].(*fsm.Claim); !ok {
			t.Errorf("the last command is %T", seen[n-1])
		}
		if _, ok := seen[n-2].(*fsm.Complete); !ok {
			t.Errorf("ahead of the claim is %T", seen[n-2])
		}
		if !isClosed(done) {
			t.Error("its result is committed and not answered")
		}
	})
}

// What something waits for is not held back.
func TestUrgentResultsAreCommittedAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		slots   int
		prepare func(w *world, h *hand)
		outcome job.Outcome
	}{
		"a failure, whose retry waits": {64, func(_ *world, h *hand) { h.started(1) }, job.OutcomeFailed},
		"a run that was not started":   {64, func(_ *world, h *hand) { h.started(1) }, job.OutcomeReturned},
		"a worker without many slots":  {1, func(_ *world, h *hand) { h.started(1) }, job.OutcomeSucceeded},
		"an occurrence that is near": {64, func(w *world, h *hand) {
			w.create("@every 1s", nil)
			h.wants(1)
			// Just before the next one, which would be skipped for a run that has ended.
			time.Sleep(time.Until(time.UnixMilli(h.got[0].Run.At).Add(time.Second - gatherFor)))
		}, job.OutcomeSucceeded},
		"a run that waits behind it": {64, func(w *world, h *hand) {
			id := w.create("@manual", func(s *job.Spec) { s.Overlap = job.OverlapQueue })
			w.trigger(id)
			h.wants(1)
			w.trigger(id)
			time.Sleep(100 * time.Millisecond)
		}, job.OutcomeSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				h := w.byHand(tt.slots)
				tt.prepare(w, h)
				done := h.reports(0, tt.outcome)
				time.Sleep(committed)
				synctest.Wait()
				w.wantCompletes(1, "at once")
				if !isClosed(done) {
					t.Error("not answered")
				}
			})
		})
	}
}

// A leadership that ends proposes nothing of what it gathered: its worker reports it to the next one.
func TestGatheredResultsOfAnEndedLeadership(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		h := w.byHand(64)
		h.started(1)
		done := h.reports(0, job.OutcomeSucceeded)
		w.stop()
		<-done
		time.Sleep(2 * gatherFor)
		w.wantCompletes(0, "after the end")
	})
}

// A slot that frees between the loop's look at the slots and its sleep is seen: an entry does not wait for the next
// tick.
func TestStarvingLoopSeesFreedSlots(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		h := w.byHand(1)
		h.started(1)
		w.trigger(w.create("@manual", nil))
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		h.reports(0, job.OutcomeSucceeded)
		h.wants(1)
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("the next run came %s after the slot was free", d)
		}
	})
}
