package node

import (
	"context"
	"net/http"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Machine is what a node stands on: network, disk, time, and the carrying out of attempts. The zero value is the real
// one.
type Machine struct {
	faultpoint.Node
	// Runners stand in for the executors of the local worker.
	Runners     map[job.Type]executor.Runner
	WorkerClock executor.Clock
	// Leader is put between the local worker and the leader.
	Leader func(executor.Leader) executor.Leader
	// ProposeNotice is put between the outbox and the log.
	ProposeNotice func(cmd any, next func(any) (*fsm.Reply, error)) (*fsm.Reply, error)
}

// leaderOptions are for the local worker's way to a leader elsewhere.
func (m *Machine) leaderOptions() []client.LeaderOption {
	if m.Dial == nil {
		return nil
	}
	return []client.LeaderOption{client.WithDial(m.Dial)}
}

// State is the node's state, for a comparison of replicas. It ends with the node.
func (n *Node) State() *store.Store { return n.group.store }

// Leads says whether this node has taken up a leadership.
func (n *Node) Leads() bool { return n.tracker.Epoch() != nil }

// Kill ends the node as kill -9 does, as far as a process can do that to a part of itself: nothing is drained,
// reported, handed over or answered. Its caller has cut the node's network and disk, so that nothing sees what is left
// of it. It waits for Run.
func (n *Node) Kill() {
	n.mu.Lock()
	cancel, ran := n.cancel, n.ran
	n.mu.Unlock()
	n.killed.Store(true)
	if ran == nil {
		n.release()
		return
	}
	n.worker.kill()
	cancel()
	<-ran
}

// stopHTTP lets requests finish for a while.
func (n *Node) stopHTTP(srv *http.Server) {
	if n.killed.Load() {
		srv.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), httpDrain)
	defer cancel()
	if srv.Shutdown(ctx) != nil {
		srv.Close()
	}
}
