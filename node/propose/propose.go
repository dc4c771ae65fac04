// Package propose puts commands into the log for a leadership, and knows whether that still is one.
package propose

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// Options are what a proposer of one leadership stands on.
type Options struct {
	Raft    *raft.Raft
	Timeout time.Duration // how long a command may wait to be taken in
	Observe func(cmd fsm.Command, reply *fsm.Reply, took time.Duration)
	Flight  *Flight
	Allows  func(level int) error                        // whether the log may have commands of a level; nil: all
	Needs   func(cmd fsm.Command) (level int, err error) // nil: fsm.CommandLevel
	// Verify asks a quorum whether this node still leads.
	Verify func() error
	// Majority asks one which term it is in, past raft's loop; nil: none is asked.
	Majority func() error
}

// Proposer puts commands into the log for one leadership. After its end it proposes nothing: a goroutine of an old
// leadership must not be able to write under a new one.
type Proposer struct {
	o      Options
	ended  atomic.Bool
	proof  leaderProof
	verify singleFlight
}

// New makes the proposer of a leadership that begins.
func New(o Options) *Proposer { return &Proposer{o: o} }

// End is the end of the leadership.
func (p *Proposer) End() { p.ended.Store(true) }

// proposal is a command on its way. It is resolved by a goroutine of its own, because raft's futures can be waited for
// but not given up, and one that was handed to a state machine that then shut down is never answered.
type proposal struct {
	began time.Time
	done  chan struct{}
	reply *fsm.Reply
	err   error
}

// Wait blocks until the command is applied, or is known not to be, or nothing can be known.
func (p *proposal) Wait() (*fsm.Reply, error) {
	<-p.done
	return p.reply, p.err
}

func refused(err error) *proposal {
	p := &proposal{done: make(chan struct{}), err: fmt.Errorf("%w: %w", scheduler.ErrNotApplied, err)}
	close(p.done)
	return p
}

// ErrEnded is what is answered after End.
var ErrEnded = errors.New("this leadership has ended")

// Propose enters a command into the log. Commands of one goroutine are in the log in the order of its calls.
func (p *Proposer) Propose(cmd fsm.Command) scheduler.Future { return p.ProposeAll(cmd)[0] }

// ProposeAll enters commands into the log, one after the other. They are encoded first: raft takes whatever is enqueued
// when it looks into one write, one message to each follower and one transaction, and what follows within microseconds
// is enqueued by then.
func (p *Proposer) ProposeAll(cmds ...fsm.Command) []scheduler.Future {
	out := make([]scheduler.Future, len(cmds))
	data := make([][]byte, len(cmds))
	for i, cmd := range cmds {
		var err error
		if data[i], err = p.encode(cmd); err != nil {
			out[i] = refused(err)
		}
	}
	futures := make([]raft.ApplyFuture, len(cmds))
	for i := range cmds {
		if out[i] != nil {
			continue
		}
		if p.ended.Load() {
			out[i] = refused(ErrEnded)
			continue
		}
		if !p.o.Flight.Enter() {
			out[i] = refused(raft.ErrRaftShutdown)
			continue
		}
		one := &proposal{began: time.Now(), done: make(chan struct{})}
		p.proof.track(one)
		out[i], futures[i] = one, p.o.Raft.Apply(data[i], p.o.Timeout)
	}
	for i, future := range futures {
		if future != nil {
			go p.await(cmds[i], future, out[i].(*proposal))
		}
	}
	return out
}

// encode refuses a command that not every member knows: its binary would stop at it, and with enough of them the
// cluster.
func (p *Proposer) encode(cmd fsm.Command) ([]byte, error) {
	data, err := fsm.Encode(cmd)
	if err != nil {
		return nil, err
	}
	needs := fsm.CommandLevel
	if p.o.Needs != nil {
		needs = p.o.Needs
	}
	level, err := needs(cmd)
	if err == nil && p.o.Allows != nil {
		err = p.o.Allows(level)
	}
	return data, err
}

func (p *Proposer) await(cmd fsm.Command, future raft.ApplyFuture, out *proposal) {
	defer p.o.Flight.Leave()
	defer close(out.done)
	out.reply, out.err = resolve(future)
	if out.err == nil && p.o.Observe != nil {
		p.o.Observe(cmd, out.reply, time.Since(out.began))
	}
}

// resolve waits for raft's answer and says what it means. Only these three errors mean that the entry is not, and will
// not be, in the log; after any other one it may still be committed.
func resolve(f raft.ApplyFuture) (*fsm.Reply, error) {
	switch err := f.Error(); {
	case err == nil:
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return nil, fmt.Errorf("%w: %w", scheduler.ErrNotApplied, err)
	default:
		return nil, err
	}
	switch r := f.Response().(type) {
	case *fsm.Reply:
		return r, nil
	case error:
		return nil, r
	default:
		return nil, fmt.Errorf("the state machine answered with %T", r)
	}
}

// VerifyLeader asks a quorum whether this node still leads. Raft's own call has no time limit and queues behind its
// main loop, so concurrent callers share it.
func (p *Proposer) VerifyLeader(ctx context.Context) error { return p.verify.ask(ctx, p, p.o.Verify) }
