// Package standing says whether a replica takes part in its group. One that does not goes on running, so that it can
// say why: raft runs, and its transport neither answers nor asks; no leadership is taken up; the worker gives up what
// it has; requests are refused.
package standing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// Options are what the standing of a replica is made from.
type Options struct {
	Dir    *datadir.Dir
	Group  uint32
	Store  *store.Store // the state of the replica
	Node   *Standing    // that of the whole node, which is the control group's; nil: it is this one
	Logger *slog.Logger
	Fail   func(error) // ends the node
}

// Standing is that of a replica.
type Standing struct {
	o        Options
	stopping sync.Mutex // one at a time writes it down
	why      atomic.Pointer[datadir.Stopped]
	halted   chan struct{} // closed when there is something in why
	asked    chan struct{} // closed when the members were asked, before raft says the first word
	asking   sync.Once
}

// New makes the standing of a replica whose raft does not run yet.
func New(o Options) *Standing {
	s := &Standing{o: o, halted: make(chan struct{}), asked: make(chan struct{})}
	own := o.Dir.Cluster()
	if info := o.Store.Info(); info.ClusterID != "" {
		own = info.Cluster()
	}
	if was := o.Dir.StoppedIn(o.Group, own); was != nil {
		s.halt(*was)
	}
	return s
}

func (s *Standing) halt(why datadir.Stopped) {
	s.why.Store(&why)
	close(s.halted)
	s.o.Logger.Error("this replica takes no part in its group", "reason", why.Reason, "since", why.At,
		"error", why.Text, "remedy", why.Remedy)
}

// Own is why this replica was stopped, whatever the whole node's standing is; nil: it was not.
func (s *Standing) Own() *datadir.Stopped { return s.why.Load() }

// Why is why the replica takes no part: because of what was found out in its group, or of what is about the whole node;
// nil: it does.
func (s *Standing) Why() *datadir.Stopped {
	if s.o.Node != nil {
		if why := s.o.Node.Why(); why != nil {
			return why
		}
	}
	return s.Own()
}

// Err is the same as an error.
func (s *Standing) Err() error {
	if why := s.Why(); why != nil {
		return why.Err()
	}
	return nil
}

// TakesNoPart is why the replica may not lead right now; nil: it may.
func (s *Standing) TakesNoPart() error {
	select {
	case <-s.asked:
	default:
		return job.Errorf(job.CodeNotReady, "wait a moment",
			"this node has just started and is asking the other members first")
	}
	return s.Err()
}

// Halted are closed when the replica ceases to take part: the first for its own sake, the other, which may be nil, with
// the whole node.
func (s *Standing) Halted() (own, node <-chan struct{}) {
	if s.o.Node != nil {
		node = s.o.Node.halted
	}
	return s.halted, node
}

// Asked is closed when the members were asked whether the cluster went on without this node. Raft says nothing before.
func (s *Standing) Asked() <-chan struct{} { return s.asked }

// Stop has the replica take no part any more, now and after every start. Goroutines of raft call it, and it waits for
// none of them. What is about the whole node stops that. It is on the disk before anything follows from it: a node that
// forgot it would vote after its next start.
func (s *Standing) Stop(why datadir.Stopped) {
	if why.Group == 0 && s.o.Node != nil {
		s.o.Node.Stop(why)
		return
	}
	s.stopping.Lock()
	defer s.stopping.Unlock()
	if s.Own() != nil {
		return
	}
	err := s.o.Dir.Stop(why)
	s.halt(why)
	if err != nil {
		s.o.Fail(fmt.Errorf("write down that this replica takes no part any more: %w", err))
	}
}

// StandStill has the whole node take no part until it is started again: what was found out may be put right meanwhile.
func (s *Standing) StandStill(why datadir.Stopped) {
	s.stopping.Lock()
	defer s.stopping.Unlock()
	if s.Own() == nil {
		s.halt(why)
	}
}

// Follow lets raft speak when ask has asked the members, and calls halt when the replica ceases to take part. look is
// called when it may lead, and when it may not any more.
func (s *Standing) Follow(ctx context.Context, ask func(context.Context), halt func(error), look func()) {
	s.ask(ctx, ask)
	look()
	own, node := s.Halted()
	select {
	case <-own:
	case <-node:
	case <-ctx.Done():
		return
	}
	halt(s.Err())
	look()
}

func (s *Standing) ask(ctx context.Context, ask func(context.Context)) {
	defer s.asking.Do(func() { close(s.asked) })
	if s.o.Node != nil {
		select {
		case <-s.o.Node.Asked():
		case <-ctx.Done():
			return
		}
	}
	ask(ctx)
}
