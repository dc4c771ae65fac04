package scheduler

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// Sessions are bounded for a token, with those of polls that stand for themselves, and in all. What was there stays,
// and the workers of nodes are let in.
func TestSessionsAreBounded(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.queueJob(nil)
		w.s.o.ByToken = true
		refused := 0
		w.s.o.Metrics.Full = func(string) { refused++ }
		enter := func(name string, n *job.NodeRef) error {
			h := &hand{world: w, is: job.Poll{Worker: name, Secret: "s", Slots: 1, Node: n}}
			return h.enter()
		}
		for i := range MaxTokenSessions {
			if err := enter(fmt.Sprint("w", i, "@a"), nil); err != nil {
				t.Fatal(err)
			}
		}
		wantCode(t, enter("one-more@a", nil), job.CodeUnavailable)
		_, err := w.s.Poll(t.Context(), onQueue(job.Poll{Worker: "p@a", Free: 1}))
		wantCode(t, err, job.CodeUnavailable)
		if err := enter("w@b", nil); err != nil {
			t.Errorf("another token: %v", err)
		}
		if err := enter("w7@a", nil); err != nil {
			t.Errorf("one that is there, started again: %v", err)
		}
		w.s.mu.Lock()
		for i := len(w.s.sessions); i < maxSessions; i++ {
			w.s.addSessionLocked(&session{key: sessionKey{fmt.Sprint("w@", i), uint64(i)}, heard: w.s.o.Clock.Mono()})
		}
		w.s.mu.Unlock()
		wantCode(t, enter("one-more@c", nil), job.CodeUnavailable)
		if err := enter("n9", &job.NodeRef{Cluster: "c", Instance: "i", Address: "a:1"}); err != nil {
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
