package worker

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// A worker of several groups has one pool of slots. What it offers to a leader is credit, which it offers to no other
// until the leader has answered that it does not count on it any more.

// credit is that of one group.
type credit struct {
	// granted is how many assignments may come beyond those received: what polls offered and no answer took back.
	granted  int
	ready    int           // how many runs its leader had for this worker beyond its credit, as it said last
	answered time.Duration // Clock.Elapsed at the last answer to a poll
	// share is what it is to be granted, and most what it can be: see sharesLocked.
	share, most int
}

func (w *Worker) capacity() int { return w.o.Slots + w.o.Prefetch }

// openLocked is how many assignments are queued or running.
func (w *Worker) openLocked() (n int) {
	for _, g := range w.groups {
		n += g.open
	}
	return n
}

// freeLocked is what a poll of a group offers.
func (w *Worker) freeLocked(g *group) int {
	switch {
	case w.draining:
		return 0
	case w.severalLocked():
		return w.creditLocked(g)
	}
	return max(0, w.capacity()-len(w.held))
}

// sharesLocked divides what is free among the groups with a session: first to those that have work waiting, and what
// they do not need to all. It says how much no group has been granted, and how much more than that groups are to get
// now.
// A result that is not acknowledged takes no slot, but counts against what its own group may be granted: one that takes
// no results gets no more work.
func (w *Worker) sharesLocked() (spare, short int) {
	pool := w.capacity()
	spare = pool
	for _, g := range w.groups {
		g.most, g.share = max(0, w.capacity()-g.open-len(g.pending)), 0
		pool -= g.open
		spare -= g.open + g.granted
		if !g.serving {
			pool -= g.granted
			g.most = 0
		}
	}
	pool = w.fillLocked(max(0, pool), func(g *group) int { return min(g.most, g.ready) })
	w.fillLocked(pool, func(g *group) int { return g.most })
	spare = max(0, spare)
	for _, g := range w.groups {
		if g.needy() {
			short += g.share - g.granted
		}
	}
	return spare, max(0, short-spare)
}

// needy says that a group is to get more at once. Others hear of more when they ask the next time.
func (g *group) needy() bool {
	return g.serving && g.share > g.granted && (g.granted == 0 || g.ready > 0)
}

// fillLocked adds to the shares of groups, the smallest first, up to what each may have, and says what is left. What
// cannot be divided goes to those that have waited longest for an assignment.
func (w *Worker) fillLocked(pool int, most func(*group) int) int {
	lift := func(g *group, level int) int { return max(0, min(level-g.open, most(g))-g.share) }
	level := sort.Search(2*w.capacity()+1, func(level int) bool {
		sum := 0
		for _, g := range w.groups {
			sum += lift(g, level+1)
		}
		return sum > pool
	})
	for _, g := range w.groups {
		n := lift(g, level)
		g.share += n
		pool -= n
	}
	for _, g := range w.groups {
		if pool > 0 && lift(g, level+1) > 0 {
			g.share++
			pool--
		}
	}
	return pool
}

// creditLocked is what the next poll of a group offers.
func (w *Worker) creditLocked(g *group) int {
	spare, short := w.sharesLocked()
	switch {
	case g.share >= g.granted:
		return min(g.share, g.granted+spare)
	case short > 0:
		return g.share
	}
	return g.granted // no group misses it
}

// grantLocked makes a poll one that carries credit. One that takes some back is to be answered at once.
func (w *Worker) grantLocked(g *group, p *job.Poll) {
	p.Shared, p.Told = true, g.ready > 0
	if p.Free < g.granted {
		p.Wait = 0
	}
	if mutant.On(mutant.SlotEarly) {
		g.granted = p.Free
	}
	if g.granted = max(g.granted, p.Free); p.Free > 0 {
		g.ready = 0 // until the answer tells
	}
}

// settleLocked takes the answer to a poll: no more comes on its account than it offered, and that less what came. It
// says whether there is news of runs that wait.
func (w *Worker) settleLocked(g *group, p *job.Poll, reply *job.PollReply) bool {
	g.granted, g.ready = max(0, p.Free-len(reply.Runs)), max(0, reply.Ready)
	if len(reply.Runs) > 0 { // the next ones are the others'
		w.groups = append(slices.DeleteFunc(w.groups, func(x *group) bool { return x == g }), g)
	}
	return g.ready > 0 && !p.Told
}

// reviewLocked has polls sent that offer more, and idle credit taken back for them.
func (w *Worker) reviewLocked() {
	if !w.severalLocked() || w.draining {
		return
	}
	spare, short := w.sharesLocked()
	for _, g := range w.groups {
		if spare > 0 && g.needy() {
			wait.Wake(g.room)
			if g.full {
				g.giveUpPoll()
			}
		}
	}
	if short > 0 {
		wait.Wake(w.move)
	}
}

// moveIdle takes credit back for groups that need it, until ctx ends.
func (w *Worker) moveIdle(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.move:
		}
		for w.takeBack() && wait.For(ctx, pollFloor) {
		}
	}
}

// takeBack gives up polls that wait with credit which others need: the next ones offer less. A poll that began just now
// may be about to be answered; then it says that it should be called again.
func (w *Worker) takeBack() (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, short := w.sharesLocked(); short == 0 || w.draining {
		return false
	}
	for _, g := range w.groups {
		if g.stopPoll == nil || !g.waits || g.share >= g.granted {
			continue
		}
		if time.Since(g.polled) < pollFloor {
			again = true
		} else {
			g.giveUpPoll()
		}
	}
	return again
}
