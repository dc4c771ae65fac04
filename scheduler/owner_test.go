package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

func stranger(w *world, name string) *fakeWorker {
	return w.worker(name, 1, func(f *fakeWorker) { f.reg.Secret = "of another process" })
}

// mustBeRefused tries to register while another worker has the name.
func (f *fakeWorker) mustBeRefused() {
	f.w.t.Helper()
	if err := f.join(); job.CodeOf(err) != job.CodeWorkerNameInUse {
		f.w.t.Fatalf("error %v, want %s", err, job.CodeWorkerNameInUse)
	}
}

// A rolling deployment with a fixed name meets a failover: the new process registers with the next leader before the
// old one does, which goes on with its run.
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

// A worker is silent for longer than its lease, comes back to the leader that took its run away, and has that run stopped;
// but the command that took it away is lost with the leader. The next one must not give the run out again under the claim
// under which it was started.
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
		w.setFault(nil)
		w.lead()
		f.handle = nil
		f.mustJoin()
		time.Sleep(2 * time.Minute)
		fences := map[uint64]bool{}
		for _, s := range f.ran() {
			if fences[s.Fence] {
				t.Errorf("%s was started twice with fence %d", s.Run, s.Fence)
			}
			fences[s.Fence] = true
		}
		w.wantHistory(once, "lost(worker_lost)")
		w.wantHistory(again, "failed(worker_lost)", "succeeded")
	})
}

// A worker that comes back while its runs are being taken away is a new process; nothing is kept of the old one when
// that is committed.
func TestTakenAwayIsForgotten(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(time.Second)
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Expire); ok {
				return errAmbiguous, false
			}
			return nil, true
		})
		first := f.reg.Incarnation
		f.leave()
		time.Sleep(time.Minute)
		f.mustJoin()
		second := f.reg.Incarnation
		if second == first {
			t.Error("it goes on as the same process")
		}
		f.leave()
		w.setFault(nil)
		time.Sleep(5 * time.Second)
		w.wantHistory(id, "lost(worker_lost)")
		f.mustJoin()
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.reg.Incarnation != second || len(s.removed) != 0 {
			t.Errorf("it is process %d after %d, and %d sessions are remembered", f.reg.Incarnation, second, len(s.removed))
		}
	})
}

// The process that was killed over a failover and started again in its directory has the secret of the one before it:
// its runs are released at once by a leader that never heard of that one.
func TestSuccessorAfterAFailoverReleasesAtOnce(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Hour) }).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		f.crash()
		w.lead()
		f.handle = nil
		f.mustJoin()
		time.Sleep(time.Second)
		w.wantHistory(id, "failed(worker_lost)", "succeeded")
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

// What a refused worker is told leads to the other one.
func TestRefusalSaysWhereTheOtherWorkerIs(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.worker("w1", 1, func(f *fakeWorker) { f.reg.Where = "host h1, pid 77, directory /var/lib/w" }).mustJoin()
		err := stranger(w, "w1").join()
		wantCode(t, err, job.CodeWorkerNameInUse)
		if err == nil || !strings.Contains(err.Error(), "host h1, pid 77, directory /var/lib/w") {
			t.Errorf("%v", err)
		}
	})
}

// The leader stood still for longer than a lease. The heartbeats of its workers wait to be heard, and the first thing
// it hears is a registration.
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
		before, now func(*job.Register)
		refused     bool
	}{
		{"the only node", ofNode, func(r *job.Register) { ofNode(r); r.Sole = true }, false},
		{"one of several", ofNode, ofNode, true},
		{"over a worker of the same name", nil, func(r *job.Register) { ofNode(r); r.Sole = true }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				f := w.worker("n1", 1, func(f *fakeWorker) {
					f.handle = takes(time.Hour)
					if c.before != nil {
						c.before(&f.reg)
					}
				}).mustJoin()
				id := w.create("@manual", nil)
				w.trigger(id)
				time.Sleep(time.Second)
				f.crash()
				w.lead()
				next := stranger(w, "n1")
				c.now(&next.reg)
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

func ofNode(r *job.Register) { r.Node = &job.NodeRef{Cluster: "c", Instance: "i"} }
