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
		w.lead()
		h := w.hand("w1", 4)
		_, a := h.one(nil)
		h.watch(a.Fence)
		if r := h.offer(0).Watch; len(r) != 1 || r[0].Fence != a.Fence {
			t.Errorf("to be watched: %+v", r)
		}
		if !h.sends(a.Fence, "hello") || w.hand("w2", 1).sends(a.Fence, "forged") {
			t.Error("another worker is asked for more, or the run's own is not")
		}
		if got := h.watch(a.Fence); got != "hello" {
			t.Errorf("%q", got)
		}
	})
}

// watch looks at the output of a run, for a second at most.
func (h *hand) watch(fence uint64) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
	defer cancel()
	out, found, err := h.s.Tail(ctx, h.is.Worker, h.incarnation(), fence, 0)
	if err != nil || !found {
		h.t.Fatal(found, err)
	}
	return string(out.Data)
}

func (h *hand) sends(fence uint64, text string) (watched bool) {
	h.t.Helper()
	r, err := h.s.Output(h.t.Context(),
		job.Output{Session: h.is.Session, Ref: job.Ref{Fence: fence}, Data: []byte(text)})
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Watched
}

// A run is running from when it was handed out; under the next leader, when its worker has named it.
func TestStarted(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		h := w.hand("w1", 4)
		_, a := h.one(nil)
		if at, known := s.Started("w1", h.incarnation(), a.Fence); !known || at != job.At(time.Now()) {
			t.Errorf("it began at %s (%t)", at, known)
		}
		s = w.lead()
		if at, known := s.Started("w1", h.incarnation(), a.Fence); known {
			t.Errorf("it began at %s before its worker said so", at)
		}
		h.sends(a.Fence, "hello")
		if at, known := s.Started("w1", h.incarnation(), a.Fence); !known || at != a.ClaimedAt {
			t.Errorf("it began at %s (%t)", at, known)
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
		w.lead()
		h := w.hand("w1", 4, func(p *job.Poll) { p.Secrets = []string{AllSecrets} })
		_, a := h.one(func(s *job.Spec) { s.Payload = []byte(`{"command":"true","env":{"KEY":"secret://key"}}`) })
		for range 2 {
			h.watch(a.Fence)
			h.sends(a.Fence, "it is hunter2hunter2.")
			if got := h.watch(a.Fence); got != "it is **************." {
				t.Errorf("%q", got)
			}
			w.lead()
		}
	})
}
