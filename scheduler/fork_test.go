package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// One worker's machine is resumed twice. Both of it go on from the same answer, and cannot know of each other: the one
// that polls first is the worker, and keeps its runs.
func TestOneOfTwoContinuationsIsRefused(t *testing.T) {
	for _, ahead := range []int{1, 3} { // by so many polls the first is ahead when the other one comes
		run(t, func(t *testing.T, w *world) {
			w.lead()
			h := w.hand("w1", 4)
			id, a := h.one(atMostOnce)
			image := h.is.Session
			other := h.poll(job.Poll{From: "10.0.0.2:5"}).Session
			h.is.Session = image
			for range 1 + ahead {
				h.poll(job.Poll{From: "10.0.0.1:5"})
			}
			for range 2 {
				_, err := h.ask(job.Poll{Session: other, Free: 4, From: "10.0.0.2:5"})
				wantCode(t, err, job.CodeWorkerForked)
				if err == nil || !strings.Contains(err.Error(), "10.0.0.1:5") || !strings.Contains(err.Error(), "10.0.0.2:5") {
					t.Fatalf("%v", err)
				}
			}
			// Its memory has the same secret. As a process of its own, which has another one, it waits for the name.
			stranger(w, "w1").mustBeRefused()
			wantOK(t, h.names(a.Fence)[0])
			h.succeeds(&a)
			h.one(nil)
			w.wantHistory(id, "succeeded")
			if n := len(applied[fsm.Expire](w)); n != 0 {
				t.Errorf("%d runs were taken from a living worker", n)
			}
		})
	}
}

// The poll of a process that was replaced comes late: it takes nothing from its successor.
func TestLatePollOfAReplacedProcess(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 4)
		id, _ := h.one(atMostOnce)
		next := w.hand("w1", 4)
		time.Sleep(time.Second)
		w.wantHistory(id, "lost(worker_lost)")
		_, a := next.one(nil)
		_, err := h.ask(job.Poll{Free: 4})
		wantCode(t, err, job.CodeWorkerForked)
		wantOK(t, next.names(a.Fence)[0])
	})
}
