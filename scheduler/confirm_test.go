package scheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// A leader that cannot say that it led a moment ago opens no session, extends no lease and delivers nothing: another
// one may have given its workers' runs away.
func TestUnconfirmedLeaderExtendsNothing(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		w.lead()
		f := w.worker("w1", 2, nil).mustJoin()
		f.handle = takes(time.Hour)
		w.trigger(w.create("@manual", nil))
		id := w.queueJob(func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		w.trigger(id)
		first, s1 := w.pullOne(job.PullPoll{Worker: "p"})
		w.trigger(id)
		second, _ := w.pullOne(job.PullPoll{Session: s1}) // this answer is lost

		var asked []time.Duration
		w.log.mu.Lock()
		w.log.sound = func(age time.Duration) error {
			asked = append(asked, age)
			return errors.New("a majority does not answer")
		}
		w.log.mu.Unlock()
		refused := func(what string, err error) {
			t.Helper()
			if job.CodeOf(err) != job.CodeNoLeader {
				t.Errorf("%s: %v", what, err)
			}
			if len(asked) == 0 || asked[len(asked)-1] > w.s.o.TTL/3 {
				t.Errorf("%s: asked for %v", what, asked)
			}
		}
		_, err := w.s.Register(ctx, job.Register{Worker: "w2", Secret: "s", Types: []job.Type{job.TypeHTTP}, Slots: 1})
		refused("register", err)
		w.s.mu.Lock()
		var ref job.SessionRef
		for k := range w.s.sessions {
			if k.worker == "w1" {
				ref = job.SessionRef{Worker: k.worker, Incarnation: k.incarnation, Term: w.s.o.Term}
			}
		}
		w.s.mu.Unlock()
		_, err = w.s.Heartbeat(ctx, job.Heartbeat{Session: ref})
		refused("heartbeat", err)
		_, err = w.s.PullHeartbeat(ctx, job.PullBeat{Queue: inDefault("q"), Runs: []job.PullRef{refOf(first)}})
		refused("a pull worker's heartbeat", err)
		_, err = w.s.PullPoll(ctx, onQueue(job.PullPoll{Session: s1, Max: 1, Wait: job.Duration(time.Second)}))
		refused("a poll with something to deliver", err)

		w.log.mu.Lock()
		w.log.sound = nil
		w.log.mu.Unlock()
		again, _ := w.pullOne(job.PullPoll{Session: s1})
		if again.Fence != second.Fence {
			t.Errorf("%+v after %+v", again, second)
		}
		wantAnswer(t, w.beat(refOf(first))[0], job.PullOK, "")
	})
}
