package node

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/node/forward"
)

const (
	// yieldTimeout bounds how long a node that stops tries to hand over its leadership.
	yieldTimeout = 5 * time.Second
	// newsTimeout is how long it then waits to hear who leads, so that it can forward what it still holds.
	newsTimeout = time.Second
)

// yield hands the leadership to another voter before this node stops, so that its absence need not be noticed first.
// Its epoch has ended. The voter is one whose clock and disk are known to be fit, if there is one; otherwise raft picks
// the one with the most of the log.
func (n *Node) yield() {
	r := n.group.raft
	if r.State() != raft.Leader || n.alone() {
		return
	}
	began := time.Now()
	done := make(chan error, 1)
	if !n.group.flight.Enter() {
		return
	}
	go func() {
		defer n.group.flight.Leave()
		var err error
		for tries := 0; tries < 3 && r.State() == raft.Leader && time.Since(began) < yieldTimeout/2; tries++ {
			if s, ok := n.members.Successor(); ok && tries == 0 {
				err = r.LeadershipTransferToServer(s.ID, s.Address).Error()
			} else {
				err = r.LeadershipTransfer().Error()
			}
			if err == nil {
				break
			}
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			n.cfg.Logger.Warn("the leadership could not be handed over; the others elect a leader when they miss this one", "error", err)
			return
		}
	case <-time.After(yieldTimeout):
		n.cfg.Logger.Warn("the leadership could not be handed over in time")
		return
	}
	if l, other := n.tracker.Wait(context.Background(), time.Now().Add(newsTimeout), forward.Leader.Elsewhere); other {
		n.cfg.Logger.Info("handed over the leadership", "to", l.ID, "took", time.Since(began))
	}
}

// alone says whether there is no other voter.
func (n *Node) alone() bool {
	for _, s := range n.members.Servers() {
		if s.Suffrage == raft.Voter && replica.Node(s.ID) != n.cfg.NodeID {
			return false
		}
	}
	return true
}
