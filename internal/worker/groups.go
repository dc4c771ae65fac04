package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
)

// Groups names the Raft groups that a worker works for, and who leads them.
type Groups interface {
	Leader(group uint32) Leader
	// List is the groups that have jobs, and a channel that is closed when there are others; nil: there never are.
	List() (groups []uint32, changed <-chan struct{})
}

// OneGroup is the groups of a cluster that has one, and of a worker that names a queue: that is in one of them.
func OneGroup(l Leader) Groups { return oneGroup{l} }

type oneGroup struct{ leader Leader }

func (o oneGroup) Leader(uint32) Leader              { return o.leader }
func (o oneGroup) List() ([]uint32, <-chan struct{}) { return []uint32{0}, nil }

// GroupList is the groups of a cluster as far as they are known. It is safe for concurrent use.
type GroupList struct {
	leader func(group uint32) Leader

	mu      sync.Mutex
	known   []uint32
	changed chan struct{}
}

// NewGroupList begins with some groups. leader is asked once for each.
func NewGroupList(known []uint32, leader func(group uint32) Leader) *GroupList {
	return &GroupList{leader: leader, known: known, changed: make(chan struct{})}
}

// Leader makes the list one that a worker can follow.
func (l *GroupList) Leader(group uint32) Leader { return l.leader(group) }

// List is as Groups has it.
func (l *GroupList) List() ([]uint32, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known, l.changed
}

// Know says which groups there are. They become more, never fewer: one who knows of fewer is behind. The list is not to
// be changed afterwards.
func (l *GroupList) Know(groups []uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(groups) <= len(l.known) {
		return
	}
	close(l.changed)
	l.known, l.changed = groups, make(chan struct{})
}

// askAgain is how often a worker that is no node looks for more groups.
const (
	askAgain  = 10 * time.Second
	askFailed = time.Second
)

// Follow asks a cluster for its groups until ctx ends. An answer without any is that of a cluster which has one.
func (l *GroupList) Follow(ctx context.Context, ask func(context.Context) ([]uint32, error)) {
	for {
		pause := askAgain
		if groups, err := ask(ctx); err == nil {
			l.Know(groups)
		} else { // what is wrong is said by those who work for the groups that are known
			pause = askFailed
		}
		if !wait.For(ctx, pause) {
			return
		}
	}
}

// follow works for all groups that there are, and for those that come, until ctx ends.
func (w *Worker) follow(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	for ctx.Err() == nil {
		numbers, changed := w.o.Groups.List()
		for _, g := range w.join(numbers) {
			in, leave := context.WithCancel(ctx)
			defer leave()
			g.leave = leave
			loops.Go(func() { w.serve(in, g) })
		}
		w.leaveOthers(numbers)
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// join adds the groups that are new.
func (w *Worker) join(numbers []uint32) (added []*group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range numbers {
		if slices.ContainsFunc(w.groups, func(g *group) bool { return g.number == n }) {
			continue
		}
		g := &group{number: n, leader: w.o.Groups.Leader(n), log: w.log, ttl: defaultLease,
			room: make(chan struct{}, 1), leased: make(chan struct{}, 1), results: make(chan struct{}, 1)}
		if n != 0 {
			g.log = w.log.With("group", n)
		}
		added = append(added, g)
	}
	if len(w.groups) == 1 && len(added) > 0 {
		// Its leader has been offered all slots, and hears in the next poll that others have them too.
		g := w.groups[0]
		g.granted = w.freeLocked(g)
		g.giveUpPoll()
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
		if slices.Contains(numbers, g.number) || g.open+len(g.pending) > 0 {
			return false
		}
		g.leave()
		return true
	})
	w.reviewLocked()
}

// severalLocked says that the slots are shared, by credit.
func (w *Worker) severalLocked() bool { return len(w.groups) > 1 }
