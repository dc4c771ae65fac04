package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// One worker's machine is resumed twice. Both of it go on with the session, and cannot know of each other.
func TestForkedSessionIsRefusedAndKeepsItsRuns(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		reg, ref := counting(t, w, w.worker("w1", 4, nil).reg)
		id := w.create("@manual", atMostOnce)
		w.trigger(id)
		time.Sleep(time.Second)
		a := mustPoll(t, w, ref, 0, 1)[0]
		type machine struct {
			from          string
			number, nonce uint64
		}
		send := func(m *machine) error {
			m.number++
			r, err := s.Heartbeat(context.Background(), job.Heartbeat{Session: ref, Acked: 1, Free: 3, Held: []job.Held{{Run: a.Run, Fence: a.Fence}},
				Number: m.number, Nonce: m.nonce, From: m.from})
			m.nonce = r.Nonce
			return err
		}
		m := machine{from: "10.0.0.1:5"}
		for range 3 {
			if err := send(&m); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		late := m
		late.number-- // doubled by the network, and late: what it brings back is not what the leader would expect now, but what it brought before
		late.nonce = s.sessions[sessionKey{"w1", ref.Incarnation}].beatsSeen[3].nonce
		if err := send(&late); err != nil {
			t.Fatalf("the same heartbeat twice: %v", err)
		}
		twin := m
		twin.from = "10.0.0.2:5"
		for _, x := range []*machine{&m, &twin, &m} { // the first of each are alike
			if err := send(x); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		err := send(&twin)
		if job.CodeOf(err) != job.CodeWorkerForked || !strings.Contains(err.Error(), "10.0.0.1:5") || !strings.Contains(err.Error(), "10.0.0.2:5") {
			t.Fatalf("%v", err)
		}
		wantCode(t, send(&m), job.CodeWorkerForked)
		_, err = s.Poll(context.Background(), job.Poll{Session: ref, Acked: 1, Free: 4})
		wantCode(t, err, job.CodeWorkerForked)
		reg.Registration++
		_, err = s.Register(context.Background(), reg)
		wantCode(t, err, job.CodeWorkerForked)
		anew := stranger(w, "w1") // as each of them does: another secret, a new process
		anew.mustBeRefused()
		time.Sleep(27 * time.Second)
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Fatal("released before the lease has ended")
		}
		time.Sleep(6 * time.Second)
		w.wantHistory(id, "lost(worker_lost)")
		anew.mustJoin()
	})
}

// A worker that sends two heartbeats without an answer in between is one worker.
func TestHeartbeatsWithoutAnAnswer(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		_, ref := counting(t, w, w.worker("w1", 4, nil).reg)
		for n := range uint64(200) {
			if _, err := s.Heartbeat(context.Background(), job.Heartbeat{Session: ref, Number: n + 1, Nonce: n / 7}); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.sessions[sessionKey{"w1", ref.Incarnation}].beatsSeen); n > beatWindow+1 {
			t.Errorf("%d heartbeats are remembered", n)
		}
		_, err := s.Heartbeat(context.Background(), job.Heartbeat{Session: ref, Number: 2})
		wantCode(t, err, job.CodeSessionUnknown)
	})
}
