package scheduler

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// edit changes a job and leaves its due time alone.
func (w *world) edit(id job.ID, change func(*job.Spec)) {
	w.t.Helper()
	def := w.definition(id)
	change(&def.Spec)
	def.Version++
	if o := w.update(id, def); o.Code != fsm.CodeOK {
		w.t.Fatalf("%+v", o)
	}
}

// The timeout of an attempt is the one that it was started with, under the leader that saw the edit and under the next
// one.
func TestAnEditOfTheTimeoutDoesNotReachARunningAttempt(t *testing.T) {
	for _, change := range []bool{false, true} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			id := w.queueJob(func(s *job.Spec) { s.Timeout = job.Duration(10 * time.Minute) })
			w.trigger(id)
			r, _ := w.pullOne(job.Poll{})
			w.edit(id, func(s *job.Spec) { s.Timeout = job.Duration(5 * time.Second) })
			if change {
				w.lead()
			}
			for range 6 {
				time.Sleep(10 * time.Second)
				wantOK(t, w.beat(refOf(r))[0])
			}
			wantOK(t, w.finish(r))
			w.wantHistory(id, "succeeded")
		})
	}
}

// What a worker was never told of is not sent to it by the next leader with what an edit made of the job: one fence
// would stand for two payloads. It goes back without having used an attempt, and is claimed from the new definition.
func TestAnUndeliveredClaimIsMadeAnewAfterAnEdit(t *testing.T) {
	for _, told := range []bool{false, true} { // the answer with the claim was lost, or there was none
		run(t, func(t *testing.T, w *world) {
			w.lead()
			f := w.worker("w1", 1, nil).mustJoin()
			time.Sleep(time.Second)
			f.setDeaf(true)
			if !told {
				f.leave() // its offer stands for a moment
			}
			id := w.create("@manual", atMostOnce)
			w.trigger(id)
			time.Sleep(time.Second)
			if w.st.Counters().Fence != 1 {
				t.Fatal("there is no claim")
			}
			w.edit(id, func(s *job.Spec) { s.Payload = []byte(`{"command":"false"}`) })
			f.leave()
			w.lead()
			f.setDeaf(false)
			f.mustJoin()
			time.Sleep(5 * time.Second)
			w.wantHistory(id, "succeeded")
			r := f.ran()
			if len(r) != 1 || r[0].Attempt != 1 || r[0].Fence != 2 || string(r[0].Payload) != `{"command":"false"}` {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A run whose worker says nothing of time, and whose leader changed, has a duration all the same: it began with its
// claim at the latest as far as the new leader knows.
func TestARunCompletedAfterALeaderChangeHasItsStart(t *testing.T) {
	for _, beat := range []bool{false, true} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			id := w.queueJob(nil)
			w.trigger(id)
			r, _ := w.pullOne(job.Poll{})
			time.Sleep(10 * time.Second)
			w.lead()
			if beat {
				wantOK(t, w.beat(refOf(r))[0])
			}
			time.Sleep(5 * time.Second)
			wantOK(t, w.finish(r))
			rec := w.history(id)[0]
			if took := rec.EndedAt - rec.StartedAt; rec.StartedAt < rec.ClaimedAt || took < 14_000 || took > 16_000 {
				t.Errorf("claimed %d, started %d, ended %d", rec.ClaimedAt, rec.StartedAt, rec.EndedAt)
			}
		})
	}
}

// A worker that says nothing about the time reports while the leader holds, because its clock jumped: the result is not
// recorded by that clock.
func TestResultWithoutTimesDuringAHold(t *testing.T) {
	for _, jump := range []time.Duration{2 * time.Minute, 26 * time.Hour, -2 * time.Minute, -26 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				id := w.queueJob(nil)
				w.trigger(id)
				r, _ := w.pullOne(job.Poll{})
				time.Sleep(3 * time.Second)
				w.clock.jump(jump)
				time.Sleep(2 * time.Second)
				wantOK(t, w.finish(r))
				rec := w.history(id)[0]
				if took := rec.EndedAt - rec.ClaimedAt; rec.Status != job.RunSucceeded || took < 0 || took > 5000 ||
					rec.StartedAt < rec.ClaimedAt || rec.StartedAt > rec.EndedAt {
					t.Errorf("claimed %d, started %d, ended %d: %s", rec.ClaimedAt, rec.StartedAt, rec.EndedAt, rec.Status)
				}
			})
		})
	}
}
