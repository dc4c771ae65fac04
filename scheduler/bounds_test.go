package scheduler

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// The polls of one session that may wait are bounded; one that ends makes room.
func TestPollsOfASessionAreBounded(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		s, err := w.s.Register(t.Context(), job.Register{Worker: "w2", Secret: "s", Types: []job.Type{job.TypeHTTP}, Slots: 1})
		if err != nil {
			t.Fatal(err)
		}
		poll := func(ctx context.Context) error {
			_, err := w.s.Poll(ctx, job.Poll{Session: s.SessionRef, Free: 1, Wait: job.Duration(time.Second)})
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range maxSessionPolls {
			all.Go(func() {
				if err := poll(ctx); job.CodeOf(err) == job.CodeTooManyRequests {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		wantCode(t, poll(t.Context()), job.CodeTooManyRequests)
		cancel()
		all.Wait()
		if err := poll(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Sessions are bounded for a token, pull workers included, and in all. What was there stays, and the workers of nodes
// are let in.
func TestSessionsAreBounded(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.queueJob(nil)
		w.s.o.ByToken = true
		refused := 0
		w.s.o.Metrics.Full = func(string) { refused++ }
		register := func(name string, n *job.NodeRef) error {
			_, err := w.s.Register(t.Context(), job.Register{Worker: name, Secret: "s", Types: []job.Type{job.TypeHTTP}, Slots: 1, Node: n})
			return err
		}
		for i := range MaxTokenSessions {
			if err := register(fmt.Sprint("w", i, "@a"), nil); err != nil {
				t.Fatal(err)
			}
		}
		wantCode(t, register("one-more@a", nil), job.CodeUnavailable)
		_, err := w.s.PullPoll(t.Context(), onQueue(job.PullPoll{Worker: "p@a", Max: 1}))
		wantCode(t, err, job.CodeUnavailable)
		if err := register("w@b", nil); err != nil {
			t.Errorf("another token: %v", err)
		}
		if err := register("w7@a", nil); err != nil {
			t.Errorf("one that is there, started again: %v", err)
		}
		w.s.mu.Lock()
		for i := len(w.s.sessions); i < maxSessions; i++ {
			w.s.addSessionLocked(newSession(sessionKey{fmt.Sprint("w@", i), uint64(i)}, w.s.o.Clock.Mono()))
		}
		w.s.mu.Unlock()
		wantCode(t, register("one-more@c", nil), job.CodeUnavailable)
		if err := register("n9", &job.NodeRef{Cluster: "c", Instance: "i", Address: "a:1"}); err != nil {
			t.Errorf("the worker of a node: %v", err)
		}
		if refused != 3 {
			t.Errorf("%d refusals were told", refused)
		}
		w.s.mu.Lock()
		for _, x := range w.s.sessions {
			w.s.removeLocked(x)
		}
		left := len(w.s.ofToken)
		w.s.mu.Unlock()
		if left != 0 {
			t.Errorf("%d tokens are counted without a session", left)
		}
	})
}
