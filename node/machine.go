package node

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Machine is what a node stands on: network, disk, and the carrying out of attempts. The zero value is the real one.
// The simulator (proof/sim) puts its own in place, so that whole clusters can be broken in virtual time with everything
// above this being real.
type Machine struct {
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn,
		error) // to other nodes; the timeouts are the caller's
	// Write is called before every write to the file "log" or "state", and may take its time. An error is that of the
	// disk.
	Write func(file string) error
	// DiskSpace is the room that the data directory has; nil: as its file system says.
	DiskSpace func() (free, total uint64, err error)
	// Runners stand in for the executors of the local worker.
	Runners     map[job.Type]executor.Runner
	WorkerClock executor.Clock
	// Pace makes the housekeeping beat this many times slower, so that simulated months are cheap; 0 and 1: as
	// designed.
	Pace int
	// Leading is called when the node takes up a leadership, before it serves.
	Leading func(term uint64)
	// Leader is put between the local worker and the leader.
	Leader func(executor.Leader) executor.Leader
}

func (m *Machine) listen(addr string) (net.Listener, error) {
	if m.Listen != nil {
		return m.Listen(addr)
	}
	return net.Listen("tcp", addr)
}

// dialer is how HTTP gets to other nodes.
func (m *Machine) dialer(timeout, keepAlive time.Duration) func(ctx context.Context, network, addr string) (net.Conn,
	error) {
	if m.Dial == nil {
		return (&net.Dialer{Timeout: timeout, KeepAlive: keepAlive}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return m.Dial(ctx, network, addr)
	}
}

func (m *Machine) paced(d time.Duration) time.Duration { return d * time.Duration(max(m.Pace, 1)) }

// leaderOptions are for the local worker's way to a leader elsewhere.
func (m *Machine) leaderOptions() []client.LeaderOption {
	if m.Dial == nil {
		return nil
	}
	return []client.LeaderOption{client.WithDial(m.Dial)}
}

func (m *Machine) write(file string) func() error {
	if m.Write == nil {
		return nil
	}
	return func() error { return m.Write(file) }
}

// State is the node's state, for those who compare replicas. It ends with the node.
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
