package client

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/worker"
)

// Groups are the groups of a cluster, for a worker that takes runs of all of them. Any node says which there are.
type Groups struct {
	*worker.GroupList
	addrs   []string
	opts    []LeaderOption
	nodes   *Leader
	leaders []*Leader // of the worker alone, until it has ended
	stop    context.CancelFunc
	follow  sync.WaitGroup
}

// firstAnswer is how long a worker waits for the first answer. One that gets none takes the cluster for one of one
// group, and hears what is wrong when it polls.
const firstAnswer = 2 * time.Second

// FindGroups asks for the groups, and goes on to ask until ctx ends, or Close. The worker has ended before Close.
func FindGroups(ctx context.Context, addrs []string, opts ...LeaderOption) *Groups {
	g := &Groups{addrs: addrs, opts: opts, nodes: NewLeader(addrs, opts...)}
	first, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	known, err := g.nodes.Groups(first)
	if err != nil || len(known) == 0 {
		known = []uint32{0}
	}
	g.GroupList = worker.NewGroupList(known, g.leader)
	ctx, g.stop = context.WithCancel(ctx)
	g.follow.Go(func() { g.Follow(ctx, g.nodes.Groups) })
	return g
}

func (g *Groups) leader(number uint32) worker.Leader {
	l := NewLeader(g.addrs, append(g.opts[:len(g.opts):len(g.opts)], WithGroup(number))...)
	g.leaders = append(g.leaders, l)
	return l
}

// Close gives up connections.
func (g *Groups) Close() {
	g.stop()
	g.follow.Wait()
	for _, l := range append(g.leaders, g.nodes) {
		l.Close()
	}
}
