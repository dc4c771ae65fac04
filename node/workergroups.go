package node

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
)

// listGroupsEvery is how often the node's own worker looks which groups there are. This node knows; it costs nothing.
const listGroupsEvery = time.Second

// workerGroups are the groups that the node's own worker works for. It has a way to the leader of each, whether this
// node has a replica of the group or not.
type workerGroups struct {
	n *Node

	mu     sync.Mutex
	routes []*forward.WorkerRoute
}

// list is the groups that have jobs, as this node knows. A new cluster has none before they are ready.
func (w *workerGroups) list(context.Context) ([]uint32, error) {
	if !w.n.split.Load().Several() {
		return nil, nil
	}
	return w.n.jobGroups(), nil
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
