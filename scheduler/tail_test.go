package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Fences are numbers in a row: a worker that sends output for one that it does not have must not end what is watched of
// another's run.
func TestOutputOfAnotherWorker(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		_, ref := counting(t, w, w.worker("w1", 4, nil).reg)
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		a := mustPoll(t, w, ref, 0, 1)[0]
		other, err := s.Register(t.Context(), job.Register{Worker: "w2", Secret: "s", Types: []job.Type{job.TypeMessage}, Slots: 1})
		if err != nil {
			t.Fatal(err)
		}
		watch := func(after int64) job.Output {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			out, found, err := s.Tail(ctx, "w1", ref.Incarnation, a.Fence, after)
			if err != nil || !found {
				t.Fatal(found, err)
			}
			return out
		}
		watch(0)
		send := func(by job.SessionRef, text string) job.OutputReply {
			t.Helper()
			r, err := s.Output(t.Context(), job.Output{Session: by, Fence: a.Fence, Data: []byte(text)})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		send(ref, "hello")
		if r := send(other.SessionRef, "forged"); r != (job.OutputReply{}) {
			t.Errorf("another worker is asked for more: %+v", r)
		}
		if out := watch(0); string(out.Data) != "hello" {
			t.Errorf("%q", out.Data)
		}
	})
}
