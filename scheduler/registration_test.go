package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// counting registers as a worker does that counts its registrations: the first answer says who leads, the second is a
// session. It returns the second message too, for those who want to let it arrive once more.
func counting(t *testing.T, w *world, r job.Register) (job.Register, job.SessionRef) {
	t.Helper()
	r.Registration++
	hello, err := w.s.Register(context.Background(), r)
	if err != nil || !hello.Again || hello.Incarnation == 0 || hello.Term != w.s.o.Term {
		t.Fatalf("%+v %v", hello, err)
	}
	if _, err := w.s.Poll(context.Background(), job.Poll{Session: hello.SessionRef, Free: 1}); job.CodeOf(err) != job.CodeSessionUnknown {
		t.Fatalf("a session before it was confirmed: %v", err)
	}
	r.Registration++
	r.Incarnation, r.Term = hello.Incarnation, hello.Term
	return r, mustRegister(t, w, r)
}

func mustRegister(t *testing.T, w *world, r job.Register) job.SessionRef {
	t.Helper()
	session, err := w.s.Register(context.Background(), r)
	if err != nil || session.Again || session.Incarnation != r.Incarnation || session.Registration != r.Registration {
		t.Fatalf("%+v %v", session, err)
	}
	return session.SessionRef
}

func mustPoll(t *testing.T, w *world, ref job.SessionRef, acked uint64, want ...uint64) (out []job.Assignment) {
	t.Helper()
	r, err := w.s.Poll(context.Background(), job.Poll{Session: ref, Acked: acked, Free: 4})
	if err != nil || len(r.Assignments) != len(want) {
		t.Fatalf("%+v %v, want %v", r, err, want)
	}
	for i, a := range r.Assignments {
		if a.Number != want[i] {
			t.Fatalf("number %d, want %d", a.Number, want[i])
		}
	}
	return r.Assignments
}

func atMostOnce(s *job.Spec) { s.Overlap, s.Delivery = job.OverlapAllow, job.DeliverAtMostOnce }

// A leader stood still, or the way to it was cut: a registration that its worker gave up long ago arrives after the one
// that took its place. If it counted, assignments would be numbered from 1 again, and the worker would take the next
// one for one that it has.
func TestLateRegistrationDoesNotUndoALaterOne(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		late, old := counting(t, w, w.worker("w1", 4, nil).reg)
		next := late
		next.Registration++
		ref := mustRegister(t, w, next)
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(time.Second)
		a := mustPoll(t, w, ref, 0, 1)[0]
		// It has that one and says so with its next poll; before that, this comes in.
		if _, err := s.Register(context.Background(), late); job.CodeOf(err) != job.CodeStale {
			t.Fatalf("a registration that was overtaken: %v", err)
		}
		if again := mustRegister(t, w, next); again != ref { // the same message, by another way
			t.Fatalf("%+v", again)
		}
		// Nor does a call of the earlier session say anything about this one.
		if _, err := s.Heartbeat(context.Background(), job.Heartbeat{Session: old, Acked: 1}); job.CodeOf(err) != job.CodeSessionUnknown {
			t.Fatalf("a heartbeat that was overtaken: %v", err)
		}
		w.trigger(id)
		time.Sleep(time.Second)
		b := mustPoll(t, w, ref, 1, 2)[0]
		for range 3 {
			beat(t, s, ref, 2, job.Held{Run: a.Run, Fence: a.Fence}, job.Held{Run: b.Run, Fence: b.Fence})
			time.Sleep(time.Second)
		}
		if n := len(applied[fsm.Expire](w)) + len(applied[fsm.Complete](w)); n != 0 {
			t.Errorf("%d commands took something from a worker that has it", n)
		}
	})
}

// A registration that counts needs no more than the last word: what its worker did not receive is sent again.
func TestRegistrationAgainSendsAgain(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		reg, ref := counting(t, w, w.worker("w1", 4, nil).reg)
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(time.Second)
		a := mustPoll(t, w, ref, 0, 1)[0]
		reg.Registration++
		ref = mustRegister(t, w, reg)
		if b := mustPoll(t, w, ref, 0, 1)[0]; b.Fence != a.Fence {
			t.Errorf("%+v", b)
		}
		reg.Registration++
		reg.Held = []job.Held{{Run: a.Run, Fence: a.Fence}}
		mustPoll(t, w, mustRegister(t, w, reg), 0)
	})
}

// The first registration of a process arrives a second time: it must not be taken for that of yet another process,
// which would release what the worker holds. Nor may one of a process that has long been replaced.
func TestLateRegistrationOfANewProcess(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		reg := w.worker("w1", 4, nil).reg
		second, ref := counting(t, w, reg)
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(time.Second)
		a := mustPoll(t, w, ref, 0, 1)[0]
		held := job.Held{Run: a.Run, Fence: a.Fence}
		reg.Registration = 1
		if r, err := s.Register(context.Background(), reg); err != nil || !r.Again || r.Incarnation == ref.Incarnation {
			t.Fatalf("%+v %v", r, err)
		}
		beat(t, s, ref, 1, held)
		time.Sleep(time.Second)
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Fatal("the runs of a living worker were released")
		}
		// Its successor.
		_, ref = counting(t, w, w.worker("w1", 4, nil).reg)
		time.Sleep(time.Second)
		w.wantHistory(id, "lost(worker_lost)")
		w.trigger(id)
		time.Sleep(time.Second)
		mustPoll(t, w, ref, 0, 1)
		if _, err := s.Register(context.Background(), second); job.CodeOf(err) != job.CodeStale {
			t.Fatalf("a process that was replaced: %v", err)
		}
		mustPoll(t, w, ref, 1)
		time.Sleep(time.Second)
		if n := len(applied[fsm.Expire](w)); n != 1 {
			t.Error("the runs of a living worker were released")
		}
	})
}

// A registration was on its way for so long that another node leads when it arrives. What it says about what its worker
// holds is old: by that, a run would not have been delivered that was, and could be given to another worker in spite of
// at_most_once.
func TestRegistrationForAnotherLeader(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		late, ref := counting(t, w, w.worker("w1", 4, nil).reg)
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(time.Second)
		mustPoll(t, w, ref, 0, 1)
		s := w.lead()
		if r, err := s.Register(context.Background(), late); err != nil || !r.Again || r.Incarnation != late.Incarnation || r.Term != s.o.Term {
			t.Fatalf("%+v %v", r, err)
		}
		g := w.worker("w2", 4, nil).mustJoin()
		time.Sleep(2 * time.Minute) // w1 does not come
		w.wantHistory(id, "lost(worker_lost)")
		if n := len(g.ran()); n != 0 {
			t.Errorf("what w1 has began a second time")
		}
	})
}

// A session is with the leader of one group: the reference of another group's session is not known here.
func TestASessionIsWithOneGroup(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		_, ref := counting(t, w, w.worker("w1", 4, nil).reg)
		if ref.Group != 0 {
			t.Errorf("group %d", ref.Group)
		}
		if _, err := s.Poll(context.Background(), job.Poll{Session: ref}); err != nil {
			t.Error(err)
		}
		ref.Group = 1
		_, err := s.Poll(context.Background(), job.Poll{Session: ref})
		wantCode(t, err, job.CodeSessionUnknown)
	})
}
