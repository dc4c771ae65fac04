package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

func TestAmbiguousClaimDispatchesNothing(t *testing.T) {
	for _, took := range []bool{false, true} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			f := w.worker("w1", 1, nil).mustJoin()
			id := w.create("@manual", nil)
			w.setFault(func(cmd fsm.Command) (error, bool) {
				if _, ok := cmd.(*fsm.Claim); ok {
					return errAmbiguous, took
				}
				return nil, true
			})
			w.trigger(id)
			time.Sleep(time.Minute)
			w.setFault(nil)
			if n := len(f.ran()); n != 0 {
				t.Errorf("took effect %v: %d attempts", took, n)
			}
			if err := w.s.Ready(); err == nil {
				t.Error("ready although the outcome of a claim is unknown")
			}
			// Its slot stays reserved: nothing else goes there.
			w.trigger(w.create("@manual", nil))
			time.Sleep(time.Minute)
			if n := len(f.ran()); n != 0 {
				t.Errorf("took effect %v: the slot was given away", took)
			}
			// The next leadership finds out what is true, and the run happens once.
			f.leave()
			w.lead()
			f.mustJoin()
			time.Sleep(time.Minute)
			w.wantHistory(id, "succeeded")
			if r := f.ran(); len(r) != 2 {
				t.Errorf("%d attempts of two runs", len(r))
			}
		})
	}
}

func TestRefusedClaimIsMadeAgain(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, nil).mustJoin()
		id := w.create("@manual", nil)
		w.setFault(func(cmd fsm.Command) (error, bool) {
			switch cmd.(type) {
			case *fsm.Claim, *fsm.Complete:
				return notApplied(cmd)
			}
			return nil, true
		})
		w.trigger(id)
		time.Sleep(10 * time.Second)
		w.setFault(nil)
		time.Sleep(5 * time.Second)
		w.wantHistory(id, "succeeded")
		if n := len(f.ran()); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestProposeSaysWhatAnErrorMeans(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		cmd := func() fsm.Command { return &fsm.Stamp{Head: w.head()} }
		w.setFault(notApplied)
		_, err := s.Propose(context.Background(), cmd())
		wantCode(t, err, job.CodeNoLeader)
		w.setFault(func(fsm.Command) (error, bool) { return errAmbiguous, true })
		_, err = s.Propose(context.Background(), cmd())
		wantCode(t, err, job.CodeOutcomeUnknown)
		w.setFault(func(fsm.Command) (error, bool) { time.Sleep(time.Second); return nil, true })
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_, err = s.Propose(ctx, cmd())
		wantCode(t, err, job.CodeOutcomeUnknown)
		w.setFault(nil)
		w.stop()
		_, err = s.Propose(context.Background(), &fsm.Stamp{})
		wantCode(t, err, job.CodeNoLeader)
	})
}
