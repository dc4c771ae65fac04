package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// proposer puts commands into the log for one leadership. After its end it proposes nothing: a goroutine of an old
// leadership must not be able to write under a new one.
type proposer struct {
	raft    *raft.Raft
	timeout time.Duration
	observe func(cmd fsm.Command, reply *fsm.Reply, took time.Duration)
	flight  *flight
	allows  func(level int) error                        // whether the log may have commands of a level; nil: all
	needs   func(cmd fsm.Command) (level int, err error) // nil: fsm.CommandLevel
	confirm func() error                                 // asks a majority which term it is in; nil: it is not asked
	ended   atomic.Bool

	majority func() error // as confirm, for Confirm; nil: no majority is asked
	proof    leaderProof

	verify singleFlight
}

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

var errEnded = errors.New("this leadership has ended")

// Propose enters a command into the log. Commands of one goroutine are in the log in the order of its calls.
func (p *proposer) Propose(cmd fsm.Command) scheduler.Future { return p.ProposeAll(cmd)[0] }

// ProposeAll enters commands into the log, one after the other. They are encoded first: raft takes whatever is enqueued
// when it looks into one write, one message to each follower and one transaction, and what follows within microseconds
// is enqueued by then.
func (p *proposer) ProposeAll(cmds ...fsm.Command) []scheduler.Future {
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
			out[i] = refused(errEnded)
			continue
		}
		if !p.flight.Enter() {
			out[i] = refused(raft.ErrRaftShutdown)
			continue
		}
		one := &proposal{began: time.Now(), done: make(chan struct{})}
		p.proof.track(one)
		out[i], futures[i] = one, p.raft.Apply(data[i], p.timeout)
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
func (p *proposer) encode(cmd fsm.Command) ([]byte, error) {
	data, err := fsm.Encode(cmd)
	if err != nil {
		return nil, err
	}
	needs := fsm.CommandLevel
	if p.needs != nil {
		needs = p.needs
	}
	level, err := needs(cmd)
	if err == nil && p.allows != nil {
		err = p.allows(level)
	}
	return data, err
}

func (p *proposer) await(cmd fsm.Command, future raft.ApplyFuture, out *proposal) {
	defer p.flight.Leave()
	defer close(out.done)
	out.reply, out.err = resolve(future)
	if out.err == nil && p.observe != nil {
		p.observe(cmd, out.reply, time.Since(out.began))
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
func (p *proposer) VerifyLeader(ctx context.Context) error {
	return p.verify.ask(ctx, p, func() error {
		if err := p.raft.VerifyLeader().Error(); err != nil || p.confirm == nil {
			return err
		}
		return p.confirm()
	})
}

// flight counts what raft has been asked and has not answered. Raft is shut down only when it is empty: a future that
// is in one of its channels at that moment is never answered.
type flight struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{} // made by land
}

// Enter says whether raft may be asked; Leave that it has answered.
func (f *flight) Enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.n++
	return true
}

// Leave follows every Enter that said yes.
func (f *flight) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if f.n == 0 && f.closed {
		close(f.empty)
	}
}

// busy says whether an answer is waited for.
func (f *flight) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n > 0
}

// land lets nothing more in and waits for what is out, for a while.
func (f *flight) land(limit time.Duration) bool {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		f.empty = make(chan struct{})
		if f.n == 0 {
			close(f.empty)
		}
	}
	f.mu.Unlock()
	select {
	case <-f.empty:
		return true
	case <-time.After(limit):
		return false
	}
}
