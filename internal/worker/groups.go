package worker

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
)

// Groups are the Raft groups that a worker takes runs of.
type Groups struct {
	// Leader is the way to the leader of a group. It is asked once for each.
	Leader func(group uint32) Leader
	// List says which groups have jobs, and is asked again after Every. nil: there is one, with the number 0.
	List  func(context.Context) ([]uint32, error)
	Every time.Duration
}

// OneGroup is the groups of a cluster that has one, and of a worker that names a queue: that is in one of them.
func OneGroup(l Leader) Groups { return Groups{Leader: func(uint32) Leader { return l }} }

// listTimeout bounds how long a worker waits to hear which groups there are. Without an answer it takes the cluster for
// one of one group, and hears what is wrong when it polls; then it asks again after listFailed.
const (
	listTimeout = 2 * time.Second
	listFailed  = time.Second
)

// follow works for all groups that there are, and for those that come, until ctx ends.
func (w *Worker) follow(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	var known []uint32
	for ctx.Err() == nil {
		found, pause := w.list(ctx)
		if len(found) > len(known) { // they become more, never fewer: one who knows of fewer is behind
			known = found
		}
		for _, g := range w.join(known) {
			in, leave := context.WithCancel(ctx)
			defer leave()
			g.leave = leave
			loops.Go(func() { w.serve(in, g) })
		}
		w.leaveOthers(known)
		wait.For(ctx, pause)
	}
}

// list asks which groups there are, and says when to ask again.
func (w *Worker) list(ctx context.Context) ([]uint32, time.Duration) {
	list, pause := w.o.Groups.List, w.o.Groups.Every
	if list == nil {
		return []uint32{0}, math.MaxInt64
	}
	ask, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	found, err := list(ask)
	if err != nil {
		pause = min(pause, listFailed)
	}
	if len(found) == 0 {
		found = []uint32{0}
	}
	return found, pause
}

// join adds the groups that are new.
func (w *Worker) join(numbers []uint32) (added []*group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range numbers {
		if slices.ContainsFunc(w.groups, func(g *group) bool { return g.number == n }) {
			continue
		}
		g := &group{number: n, leader: w.o.Groups.Leader(n), log: w.log, ttl: defaultLease, held: map[uint64]*attempt{},
			room: make(chan struct{}, 1), leased: make(chan struct{}, 1), results: make(chan struct{}, 1)}
		if n != 0 {
			g.log = w.log.With("group", n)
		}
		added = append(added, g)
	}
	if len(added) > 0 {
		for _, g := range w.groups {
			g.giveUpPoll() // its leader is to hear that others have the slots too
		}
	}
	w.groups = append(w.groups, added...)
	return added
}

// leaveOthers ends the work for groups that are not among those that have jobs: before a cluster is known to have
// several groups its control group is taken for the only one. One that the worker has work of stays.
func (w *Worker) leaveOthers(numbers []uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups = slices.DeleteFunc(w.groups, func(g *group) bool {
		if slices.Contains(numbers, g.number) || len(g.held) > 0 {
			return false
		}
		g.leave()
		return true
	})
}
