package scheduler

import (
	"errors"
	"runtime"
	"testing"

	"github.com/carillon-scheduler/carillon/fsm"
)

// lateProposer has futures that resolve when they are let go.
type lateProposer struct {
	Proposer
	let chan struct{}
}

type lateFuture struct{ let chan struct{} }

func (f lateFuture) Wait() (*fsm.Reply, error) {
	<-f.let
	return nil, errors.New("lost")
}

func (p *lateProposer) ProposeAll(cmds ...fsm.Command) []Future {
	out := make([]Future, len(cmds))
	for i := range out {
		out[i] = lateFuture{p.let}
	}
	return out
}

// The loop counts a batch of claims, and the goroutine that hears of its outcome takes it off: only a lock makes that right. In a running
// scheduler other locks come between the two nearly always, so that the race detector has nothing to report if that one is missing. Here
// the outcome of one batch is heard first and the next one is counted afterwards, and the loop learns of the former only by the length of
// a channel, which orders nothing to the race detector. See DESIGN.md, "Locks".
func TestClaimsInFlightAreCountedUnderTheLock(t *testing.T) {
	l := newBench()
	p := &lateProposer{let: make(chan struct{})}
	l.s.o.Proposer = p
	for range 3 {
		l.propose(nil)
		close(p.let)
		for len(l.s.wake) == 0 {
			runtime.Gosched()
		}
		p.let = make(chan struct{})
		l.propose(nil)
		close(p.let)
		l.s.wg.Wait()
		<-l.s.wake
		p.let = make(chan struct{})
	}
	if l.s.inFlight != 0 {
		t.Errorf("%d batches are in flight", l.s.inFlight)
	}
}
