package propose

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/scheduler"
)

type fakeFuture struct {
	raft.ApplyFuture
	err      error
	response any
}

func (f fakeFuture) Error() error  { return f.err }
func (f fakeFuture) Response() any { return f.response }

// Only three errors mean that nothing happened; everything else may still be committed.
func TestWhatAnErrorOfApplyMeans(t *testing.T) {
	for _, tc := range []struct {
		name       string
		f          fakeFuture
		notApplied bool
		code       job.Code
	}{
		{"not leader", fakeFuture{err: raft.ErrNotLeader}, true, job.CodeNoLeader},
		{"enqueue timeout", fakeFuture{err: raft.ErrEnqueueTimeout}, true, job.CodeNoLeader},
		{"transfer", fakeFuture{err: raft.ErrLeadershipTransferInProgress}, true, job.CodeNoLeader},
		{"leadership lost", fakeFuture{err: raft.ErrLeadershipLost}, false, job.CodeOutcomeUnknown},
		{"shutdown", fakeFuture{err: raft.ErrRaftShutdown}, false, job.CodeOutcomeUnknown},
		{"a store error", fakeFuture{err: errors.New("write: input/output error")}, false, job.CodeOutcomeUnknown},
		{"an error of the state machine", fakeFuture{response: errors.New("broken")}, false, job.CodeOutcomeUnknown},
		{"nonsense", fakeFuture{response: 7}, false, job.CodeOutcomeUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reply, err := resolve(tc.f)
			if reply != nil || err == nil {
				t.Fatalf("%v %v", reply, err)
			}
			if errors.Is(err, scheduler.ErrNotApplied) != tc.notApplied || job.CodeOf(forward.Explain(err)) != tc.code {
				t.Errorf("%v is told as %v", err, forward.Explain(err))
			}
		})
	}
	if reply, err := resolve(fakeFuture{response: &fsm.Reply{}}); reply == nil || err != nil {
		t.Error(reply, err)
	}
}

func TestTooLargeIsNotProposed(t *testing.T) {
	p := New(Options{})
	_, err := p.Propose(&fsm.Calendar{Data: make([]byte, fsm.MaxEntry+1)}).Wait()
	if !errors.Is(err, fsm.ErrTooLarge) || !errors.Is(err, scheduler.ErrNotApplied) {
		t.Error(err)
	}
}

func TestFlightLandsOnce(t *testing.T) {
	f := &Flight{}
	for range 2 {
		if !f.Enter() {
			t.Fatal("closed")
		}
	}
	if f.Land(time.Millisecond) {
		t.Error("landed with two out")
	}
	if f.Enter() {
		t.Error("it let another one in")
	}
	f.Leave()
	f.Leave()
	if !f.Land(time.Second) {
		t.Error("not landed")
	}
}
