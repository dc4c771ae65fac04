package scheduler

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

func stranger(w *world, name string) *fakeWorker {
	return w.worker(name, 1, func(f *fakeWorker) { f.is.Secret = "of another process" })
}

// mustBeRefused tries to join while another worker has the name.
func (f *fakeWorker) mustBeRefused() {
	f.w.t.Helper()
	if err := f.join(); job.CodeOf(err) != job.CodeWorkerNameInUse {
		f.w.t.Fatalf("error %v, want %s", err, job.CodeWorkerNameInUse)
	}
}

// A rolling deployment with a fixed name meets a failover: the new process comes to the next leader before the old one
// does, which goes on with its run.
func TestInheritedSessionIsAliveForItsOwnerOnly(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Minute) }).mustJoin()
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(time.Second)
		f.leave()
		w.lead()
		other := stranger(w, "w1")
		for range 4 {
			other.mustBeRefused()
			time.Sleep(time.Second)
		}
		f.mustJoin()
		other.mustBeRefused()
		time.Sleep(2 * time.Minute)
		w.wantHistory(id, "succeeded")
		if n := len(f.ran()); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

// An inherited session that no worker comes for ends with its lease, not before, and its name is free then.
func TestInheritedSessionEndsWithItsLease(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		f.crash()
		w.lead()
		other := stranger(w, "w1")
		time.Sleep(28 * time.Second)
		other.mustBeRefused()
		time.Sleep(5 * time.Second)
		other.mustJoin()
		time.Sleep(time.Second)
		w.wantHistory(id, "failed(worker_lost)", "succeeded")
	})
}

// A worker is silent for longer than its lease, comes back to the leader that took its run away, and has that run
// stopped; but the command that took it away is lost with the leader. The next one must not give the run out again
// under the claim under which it was started.
func TestTakenAwayButNotCommitted(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 2, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		once, again := w.create("@manual", atMostOnce), w.create("@manual", nil)
		for _, id := range []job.ID{once, again} {
			w.trigger(id)
		}
		time.Sleep(time.Second)
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Expire); ok {
				return errAmbiguous, false
			}
			return nil, true
		})
		f.leave()
		time.Sleep(time.Minute)
		f.mustJoin()
		time.Sleep(time.Minute)
		f.leave()
		if n := len(f.gone); n != 2 {
			t.Errorf("it was told that %d runs are gone", n)
		}
		w.setFault(nil)
		w.lead()
		f.handle = nil
		f.mustJoin()
		time.Sleep(2 * time.Minute)
		w.wantHistory(once, "lost(worker_lost)")
		w.wantHistory(again, "failed(worker_lost)", "succeeded")
		if n := len(f.ran()); n != 3 { // it fails the test itself if it is given a fence twice
			t.Errorf("%d starts", n)
		}
	})
}

// A process that has an open call lives, whatever its successor says: a machine that was resumed twice, say. Nothing is
// taken from it.
func TestOpenCallOfTheOldProcessKeepsItsRuns(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.worker("w1", 2, func(f *fakeWorker) { f.handle = takes(time.Minute) }).mustJoin()
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(time.Second)
		second := w.worker("w1", 2, nil)
		for range 5 {
			second.mustBeRefused()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		w.wantHistory(id, "succeeded")
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Error("the runs of a living worker were released")
		}
	})
}

// A name without a secret is a label, which keeps nobody from a name of their own, nor the other way round.
func TestALabelIsNoName(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		w.trigger(id)
		first, _ := w.pullOne(job.Poll{Worker: "w1"})
		h := w.hand("w1", 1)
		w.trigger(id)
		second, _ := w.pullOne(job.Poll{Worker: "w1"})
		wantOK(t, w.finish(first))
		wantOK(t, w.finish(second))
		h.one(nil)
	})
}

// What a refused worker is told leads to the other one.
func TestRefusalSaysWhereTheOtherWorkerIs(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.worker("w1", 1, func(f *fakeWorker) { f.is.Where = "host h1, pid 77, directory /var/lib/w" }).mustJoin()
		err := stranger(w, "w1").join()
		wantCode(t, err, job.CodeWorkerNameInUse)
		if err == nil || !strings.Contains(err.Error(), "host h1, pid 77, directory /var/lib/w") {
			t.Errorf("%v", err)
		}
	})
}

// The leader stood still for longer than a lease. The heartbeats of its workers wait to be heard, and the first thing
// it hears is a stranger.
func TestLateLeaderReleasesNothingToAStranger(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		f.leave()
		s.mu.Lock()
		for _, x := range s.sessions {
			x.heard -= 2 * s.o.TTL // as it looks before the loop has noticed that it was late
		}
		s.mu.Unlock()
		stranger(w, "w1").mustBeRefused()
	})
}

// A single node after a reboot has another secret. Nothing but its own earlier process can have had its runs, so it
// does not wait for the lease. With other members, or over a worker that is no node's, it does.
func TestTheOnlyNodeTakesOverAtOnce(t *testing.T) {
	for _, c := range []struct {
		name        string
		before, now func(*job.Poll)
		refused     bool
	}{
		{"the only node", ofNode, func(p *job.Poll) { ofNode(p); p.Sole = true }, false},
		{"one of several", ofNode, ofNode, true},
		{"over a worker of the same name", nil, func(p *job.Poll) { ofNode(p); p.Sole = true }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				f := w.worker("n1", 1, func(f *fakeWorker) {
					f.handle = takes(time.Hour)
					if c.before != nil {
						c.before(&f.is)
					}
				}).mustJoin()
				id := w.create("@manual", nil)
				w.trigger(id)
				time.Sleep(time.Second)
				f.crash()
				w.lead()
				next := stranger(w, "n1")
				c.now(&next.is)
				if c.refused {
					next.mustBeRefused()
					return
				}
				next.mustJoin()
				time.Sleep(time.Second)
				w.wantHistory(id, "failed(worker_lost)", "succeeded")
			})
		})
	}
}

func ofNode(p *job.Poll) { p.Node = &job.NodeRef{Cluster: "c", Instance: "i"} }

// The worker of a node that is removed from the cluster finishes what it has in hand, also under the next leader, and
// gets nothing more; without anything in hand it is refused.
func TestTheWorkerOfARemovedNode(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		var removed atomic.Bool
		w.opts.Standing = func(string, job.NodeRef) (bool, error) { return removed.Load(), nil }
		w.lead()
		f := w.worker("n1", 2, func(f *fakeWorker) { ofNode(&f.is); f.handle = takes(20 * time.Second) }).mustJoin()
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(2 * time.Second)
		removed.Store(true)
		time.Sleep(2 * time.Second)
		w.trigger(id)
		time.Sleep(2 * time.Second)
		f.leave()
		w.lead()
		f.mustJoin()
		time.Sleep(30 * time.Second)
		w.wantHistory(id, "succeeded")
		if n := len(f.ran()); n != 1 {
			t.Errorf("it was given %d runs", n)
		}
		f.leave()
		w.lead()
		wantCode(t, f.join(), job.CodeForbidden)
	})
}
