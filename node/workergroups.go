package node

import (
	"context"
	"sync"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/store"
)

// workerGroups are the groups that the node's own worker works for. It has a way to the leader of each, whether this
// node has a replica of the group or not.
type workerGroups struct {
	*worker.GroupList
	n    *Node
	wake chan struct{} // a latch of size one: there may be others

	mu     sync.Mutex
	routes []*forward.WorkerRoute
}

func newWorkerGroups(n *Node) *workerGroups {
	w := &workerGroups{n: n, wake: make(chan struct{}, 1)}
	w.GroupList = worker.NewGroupList(w.list(), w.leader)
	n.group.store.Listen(func(c *store.Changes) {
		if c.Groups || c.Reset {
			wait.Wake(w.wake)
		}
	})
	return w
}

// list is the groups that have jobs, as this node knows. A new cluster has none before they are ready.
func (w *workerGroups) list() []uint32 {
	if !w.n.split.Load().Several() {
		return []uint32{0}
	}
	return w.n.jobGroups()
}

// leader is the way to a group's leader.
func (w *workerGroups) leader(number uint32) worker.Leader {
	n := w.n
	r := forward.NewWorkerRoute(forward.WorkerOptions{
		Group: number, Tracker: func() *forward.Tracker { return n.trackerOf(number) },
		Member: memberFor(n.members, number), Stopping: n.stopping.Load,
		Pause: n.cfg.Machine.Pace.Of(forward.PollPause), Dial: n.workerDial(),
	})
	w.mu.Lock()
	w.routes = append(w.routes, r)
	w.mu.Unlock()
	if n.cfg.Machine.Leader != nil {
		return n.cfg.Machine.Leader(r)
	}
	return r
}

// follow hears of groups until ctx ends.
func (w *workerGroups) follow(ctx context.Context) {
	for {
		w.Know(w.list())
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
	}
}

func (w *workerGroups) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.routes {
		r.Close()
	}
}

// trackerOf follows who leads a group; nil: this node has no replica of it.
func (n *Node) trackerOf(number uint32) *forward.Tracker {
	if g := n.partIn(number); g != nil {
		return g.tracker
	}
	return nil
}

// memberFor is the node as its worker presents it to a group: as what it is in the cluster.
func memberFor(m *membership.Members, group uint32) forward.Member {
	if group == 0 {
		return m
	}
	return groupMember{m, group}
}

type groupMember struct {
	*membership.Members
	group uint32
}

// Others are those that know who leads the group.
func (m groupMember) Others() []string { return m.Having(m.group) }
