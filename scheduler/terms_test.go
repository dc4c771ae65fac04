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
func TestAnEditOfTheTimeoutDoesNotReachARunningPull(t *testing.T) {
	for _, change := range []bool{false, true} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			id := w.queueJob(func(s *job.Spec) { s.Timeout = job.Duration(10 * time.Minute) })
			w.trigger(id)
			r, _ := w.pullOne(job.PullPoll{})
			w.edit(id, func(s *job.Spec) { s.Timeout = job.Duration(5 * time.Second) })
			if change {
				w.lead()
			}
			for range 6 {
				time.Sleep(10 * time.Second)
				wantAnswer(t, w.beat(refOf(r))[0], job.PullOK, "")
			}
			wantAnswer(t, w.finish(r), job.PullOK, "")
			w.wantHistory(id, "succeeded")
		})
	}
}

// The other way round: a worker that stops at the timeout it was given has reached it, though the job has a longer one
// by now.
func TestALongerTimeoutDoesNotReachARunningPull(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Timeout = job.Duration(20 * time.Second) })
		w.trigger(id)
		r, _ := w.pullOne(job.PullPoll{})
		w.edit(id, func(s *job.Spec) { s.Timeout = job.Duration(10 * time.Minute) })
		w.lead()
		time.Sleep(20 * time.Second)
		w.fail(r, nil)
		if got := w.summary(id)[0]; got != "failed(timeout)" {
			t.Error(got)
		}
	})
}

// What a worker was never told of is not sent to it by the next leader with what an edit made of the job: one fence
// would stand for two payloads. It goes back without having used an attempt, and is claimed from the new definition.
func TestAnUndeliveredClaimIsMadeAnewAfterAnEdit(t *testing.T) {
	body := func(s *job.Spec) { s.Payload = []byte(`{"url":"http://target.example/new"}`) }
	t.Run("session", func(t *testing.T) {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			f := w.worker("w1", 1, nil).mustJoin()
			f.mu.Lock()
			f.deaf = true
			f.mu.Unlock()
			id := w.create("@manual", func(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce })
			w.trigger(id)
			time.Sleep(time.Second)
			before := w.st.Counters().Fence
			w.edit(id, body)
			f.leave()
			w.lead()
			f.mu.Lock()
			f.deaf = false
			f.mu.Unlock()
			f.mustJoin()
			time.Sleep(5 * time.Second)
			w.wantHistory(id, "succeeded")
			r := f.ran()
			if len(r) != 1 || r[0].Attempt != 1 || r[0].Fence <= before || string(r[0].Payload) != `{"url":"http://target.example/new"}` {
				t.Errorf("fence %d, then %+v", before, r)
			}
		})
	})
	t.Run("pull", func(t *testing.T) {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			id := w.queueJob(nil)
			s1 := w.pull(job.PullPoll{Worker: "w"}).Session
			w.trigger(id)
			first, _ := w.pullOne(job.PullPoll{Session: s1}) // this answer is lost
			w.edit(id, func(s *job.Spec) { s.Payload = []byte(`{"queue":"q","data":"new"}`) })
			w.lead()
			again, _ := w.pullOne(job.PullPoll{Session: s1})
			if again.RunID != first.RunID || again.Fence <= first.Fence || again.Attempt != 1 || string(again.Data) != `"new"` {
				t.Errorf("%+v after %+v", again, first)
			}
		})
	})
}

// A pull run whose leader changed has a duration all the same: it began with its claim at the latest as far as the new
// leader knows.
func TestAPullCompletedAfterALeaderChangeHasItsStart(t *testing.T) {
	for _, beat := range []bool{false, true} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			id := w.queueJob(nil)
			w.trigger(id)
			r, _ := w.pullOne(job.PullPoll{})
			time.Sleep(10 * time.Second)
			w.lead()
			if beat {
				wantAnswer(t, w.beat(refOf(r))[0], job.PullOK, "")
			}
			time.Sleep(5 * time.Second)
			wantAnswer(t, w.finish(r), job.PullOK, "")
			rec := w.history(id)[0]
			if took := rec.EndedAt - rec.StartedAt; rec.StartedAt < rec.ClaimedAt || took < 14_000 || took > 16_000 {
				t.Errorf("claimed %d, started %d, ended %d", rec.ClaimedAt, rec.StartedAt, rec.EndedAt)
			}
		})
	}
}
