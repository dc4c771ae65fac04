package scheduler

import (
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// A leader that cannot say that it led a moment ago extends no lease and delivers nothing, and it does not say that a
// claim is gone: another one may have given its workers' runs away, or have made that claim.
func TestUnconfirmedLeaderExtendsNothing(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		h := w.hand("w1", 2)
		_, first := h.one(nil)
		old := h.is.Session
		_, second := h.one(nil)
		h.is.Session = old // the answer with that one is lost
		unknown := job.Ref{Fence: second.Fence + 7}

		var asked []time.Duration
		youngest := time.Duration(0) // a proof that is as old as this there is
		w.log.mu.Lock()
		w.log.sound = func(age time.Duration) error {
			if asked = append(asked, age); youngest > 0 && age >= youngest {
				return nil
			}
			return errors.New("a majority does not answer")
		}
		w.log.mu.Unlock()
		refused := func(what string, age time.Duration, err error) {
			t.Helper()
			if job.CodeOf(err) != job.CodeNoLeader {
				t.Errorf("%s: %v", what, err)
			}
			if len(asked) == 0 || asked[len(asked)-1] > age {
				t.Errorf("%s: asked for %v", what, asked)
			}
			asked = nil
		}
		beat := func(session string, refs ...job.Ref) error {
			m := job.Heartbeat{Session: session}
			m.Runs = append(m.Runs, refs...)
			_, err := s.Heartbeat(t.Context(), m)
			return err
		}
		lease := s.o.TTL / confirmShare
		refused("heartbeat by fence", lease, beat(h.is.Session, job.Ref{Fence: first.Fence}))
		refused("heartbeat by claim", lease, beat("", refOf(first)))
		_, err := h.ask(job.Poll{Free: 1, Wait: job.Duration(time.Second)})
		refused("a poll with something to deliver", lease, err)
		youngest = lease // that is enough for a lease, and too old to say that there is no claim
		if err := beat(h.is.Session, job.Ref{Fence: first.Fence}); err != nil {
			t.Error(err)
		}
		const election = 500 * time.Millisecond
		refused("a heartbeat for an unknown claim", election, beat(h.is.Session, job.Ref{Fence: first.Fence}, unknown))
		_, err = s.Report(t.Context(), job.Report{Session: h.is.Session,
			Results: []job.Result{{Ref: unknown, Outcome: job.OutcomeSucceeded}}})
		refused("a report for an unknown claim", election, err)

		w.log.mu.Lock()
		w.log.sound = nil
		w.log.mu.Unlock()
		if again := h.wants(1)[0]; again.Fence != second.Fence {
			t.Errorf("%+v after %+v", again, second)
		}
		wantOK(t, h.names(first.Fence)[0])
		wantAnswer(t, h.names(unknown.Fence)[0], job.StatusGone, "no run is out under this fence")
	})
}
