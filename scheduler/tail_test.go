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

// A run whose output comes is running, also before a heartbeat says so.
func TestOutputSaysThatARunHasStarted(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		_, ref := counting(t, w, w.worker("w1", 4, nil).reg)
		w.trigger(w.create("@manual", nil))
		time.Sleep(time.Second)
		a := mustPoll(t, w, ref, 0, 1)[0]
		if at, known := s.Started("w1", ref.Incarnation, a.Fence); known {
			t.Fatalf("it began at %s before its worker said so", at)
		}
		began := job.At(time.Now())
		out := job.Output{Session: ref, Fence: a.Fence, Data: []byte("hello"), StartedAt: began}
		if _, err := s.Output(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		if at, known := s.Started("w1", ref.Incarnation, a.Fence); !known || at != began {
			t.Errorf("it began at %s (%t), want %s", at, known, began)
		}
	})
}

// oneSecret is a vault in which all secrets have one value.
type oneSecret string

func (v oneSecret) Open(string, string) (string, []string, error) { return string(v), nil, nil }
func (v oneSecret) Values(string, []string) []string              { return []string{string(v)} }

// The leader masks what is watched of a run, whichever leader handed that out.
func TestOutputIsMaskedUnderTheNextLeader(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.opts.Vault = oneSecret("hunter2hunter2")
		s := w.lead()
		reg := w.worker("w1", 4, nil).reg
		reg.Secrets = []string{AllSecrets}
		reg, ref := counting(t, w, reg)
		w.trigger(w.create("@manual", func(s *job.Spec) {
			s.Payload = []byte(`{"command":"true","env":{"KEY":"secret://key"}}`)
		}))
		time.Sleep(time.Second)
		a := mustPoll(t, w, ref, 0, 1)[0]
		shown := func() string {
			t.Helper()
			watch := func() job.Output {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				out, found, err := s.Tail(ctx, "w1", ref.Incarnation, a.Fence, 0)
				if err != nil || !found {
					t.Fatal(found, err)
				}
				return out
			}
			watch()
			sent := job.Output{Session: ref, Fence: a.Fence, Data: []byte("it is hunter2hunter2.")}
			if _, err := s.Output(t.Context(), sent); err != nil {
				t.Fatal(err)
			}
			return string(watch().Data)
		}
		const want = "it is **************."
		if got := shown(); got != want {
			t.Errorf("by the leader that handed it out: %q", got)
		}
		s = w.lead()
		reg.Held = []job.Held{{Run: a.Run, Fence: a.Fence}}
		if reg, ref = counting(t, w, reg); reg.Term != s.o.Term {
			t.Fatal(reg)
		}
		if got := shown(); got != want {
			t.Errorf("by the next one: %q", got)
		}
	})
}
