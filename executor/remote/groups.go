// Package remote is the way of a worker that is no node to its cluster: to the leader of each Raft group, by HTTP.
package remote

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/job"
)

// Groups are the groups of a cluster. Any node says which there are.
type Groups struct {
	*executor.GroupList
	o       Options
	nodes   *client.Leader
	leaders []*client.Leader // of the worker alone, until it has ended
	stop    context.CancelFunc
	follow  sync.WaitGroup
}

// Options are about the cluster.
type Options struct {
	Addrs  []string // of nodes, any of them
	Leader []client.LeaderOption
	// Registered hears of sessions; nil is fine.
	Registered func(job.Session)
}

// firstAnswer is how long a worker waits for the first answer. One that gets none takes the cluster for one of one
// group, and hears what is wrong when it registers.
const firstAnswer = 2 * time.Second

// Find asks for the groups, and goes on to ask until ctx ends, or Close. The worker has ended before Close.
func Find(ctx context.Context, o Options) *Groups {
	g := &Groups{o: o, nodes: client.NewLeader(o.Addrs, o.Leader...)}
	first, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	known, err := g.nodes.Groups(first)
	if err != nil || len(known) == 0 {
		known = []uint32{0}
	}
	g.GroupList = executor.NewGroupList(known, g.leader)
	ctx, g.stop = context.WithCancel(ctx)
	g.follow.Go(func() { g.Follow(ctx, g.nodes.Groups) })
	return g
}

func (g *Groups) leader(number uint32) executor.Leader {
	opts := append(g.o.Leader[:len(g.o.Leader):len(g.o.Leader)], client.WithGroup(number))
	l := client.NewLeader(g.o.Addrs, opts...)
	g.leaders = append(g.leaders, l)
	return &leader{l, g}
}

// Close gives up connections.
func (g *Groups) Close() {
	g.stop()
	g.follow.Wait()
	for _, l := range append(g.leaders, g.nodes) {
		l.Close()
	}
}

// leader is that of one group.
type leader struct {
	*client.Leader
	of *Groups
}

func (l *leader) Register(ctx context.Context, r job.Register) (job.Session, error) {
	if r.Incarnation != 0 { // the session before ended
		l.of.Look()
	}
	s, err := l.Leader.Register(ctx, r)
	if err == nil && !s.Again && l.of.o.Registered != nil {
		l.of.o.Registered(s)
	}
	return s, err
}
