package node

import (
	"context"
	"errors"
	"sync"
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

// A goroutine of an old leadership can do nothing.
func TestAnEndedLeadershipProposesNothing(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	e := n.prop()
	e.ended.Store(true)
	before := n.group.raft.LastIndex()
	if _, err := e.Propose(&fsm.Stamp{}).Wait(); !errors.Is(err, scheduler.ErrNotApplied) {
		t.Error(err)
	}
	if err := e.VerifyLeader(context.Background()); err == nil {
		t.Error("it believes that it leads")
	}
	if after := n.group.raft.LastIndex(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
	e.ended.Store(false)
}

func TestTooLargeIsNotProposed(t *testing.T) {
	p := &proposer{}
	_, err := p.Propose(&fsm.Calendar{Data: make([]byte, fsm.MaxEntry+1)}).Wait()
	if !errors.Is(err, fsm.ErrTooLarge) || !errors.Is(err, scheduler.ErrNotApplied) {
		t.Error(err)
	}
}

// The order of one goroutine's calls is the order in the log.
func TestOrderOfProposals(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	e := n.tracker.Epoch()
	var futures []scheduler.Future
	const count = 300
	for i := range count {
		futures = append(futures, e.Proposer.Propose(&fsm.Calendar{Head: fsm.Head{Now: n.group.now(), Term: e.Term},
			Name: "c", Data: []byte{1, byte(i), byte(i >> 8)}}))
	}
	for _, f := range futures {
		if _, err := f.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	last := -1
	for i := uint64(1); i <= n.group.raft.LastIndex(); i++ {
		var l raft.Log
		if err := n.group.logs.GetLog(i, &l); err != nil {
			t.Fatal(err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		cmd, err := fsm.Decode(l.Data)
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := cmd.(*fsm.Calendar); ok {
			if got := int(c.Data[1]) | int(c.Data[2])<<8; got != last+1 {
				t.Fatalf("%d follows %d", got, last)
			}
			last++
		}
	}
	if last != count-1 {
		t.Errorf("%d of %d are in the log", last+1, count)
	}
}

func TestVerifyLeaderIsShared(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	p := n.prop()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				if err := p.VerifyLeader(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.VerifyLeader(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestFlightLandsOnce(t *testing.T) {
	f := &flight{}
	for range 2 {
		if !f.Enter() {
			t.Fatal("closed")
		}
	}
	if f.land(time.Millisecond) {
		t.Error("landed with two out")
	}
	if f.Enter() {
		t.Error("it let another one in")
	}
	f.Leave()
	f.Leave()
	if !f.land(time.Second) {
		t.Error("not landed")
	}
}
