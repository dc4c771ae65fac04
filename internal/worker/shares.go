package worker

import (
	"slices"
	"sort"

	"github.com/carillon-scheduler/carillon/internal/wait"
)

// A worker of several groups has one pool of slots. Each leader is offered a share of what is free, by the next poll
// that it gets; until then the offer of the last one stands. So two leaders may count on the same slot for a moment,
// and a run that finds none is returned, which uses no attempt.

// severalLocked says that leaders share the slots.
func (w *Worker) severalLocked() bool { return len(w.groups) > 1 }

// open is how many attempts run.
func (g *group) open() int { return len(g.held) - len(g.pending) }

// freeLocked is what the next poll of a group offers.
func (w *Worker) freeLocked(g *group) int {
	w.shareLocked()
	return g.share
}

// shareLocked divides what is free among the groups that have a session: first among those that have work waiting, and
// the rest among all.
// A result that is not acknowledged takes no slot, but counts against what its own group may have: one that takes no
// results gets no more work.
func (w *Worker) shareLocked() {
	free := w.o.Slots - w.busy
	for _, g := range w.groups {
		if g.share, g.most = 0, 0; !w.draining && (g.serving || !w.severalLocked()) {
			g.most = max(0, w.o.Slots-len(g.held))
		}
	}
	free = w.fillLocked(max(0, free), func(g *group) int { return min(g.most, g.ready) })
	w.fillLocked(free, func(g *group) int { return g.most })
}

// fillLocked adds to the shares of groups, up to what each may have, and says what is left. Those with the fewest open
// attempts come first; what cannot be divided goes to those that have waited longest for an assignment.
func (w *Worker) fillLocked(free int, most func(*group) int) int {
	lift := func(g *group, level int) int { return max(0, min(level-g.open(), most(g))-g.share) }
	level := sort.Search(2*w.o.Slots+1, func(level int) bool {
		sum := 0
		for _, g := range w.groups {
			sum += lift(g, level+1)
		}
		return sum > free
	})
	for _, extra := range []int{0, 1} {
		for _, g := range w.groups {
			n := min(lift(g, level+extra), free)
			g.share += n
			free -= n
		}
	}
	return free
}

// freedLocked has polls sent that ask for work: there is capacity, or a leader has work that waits.
func (w *Worker) freedLocked() {
	wait.Wake(w.changed)
	w.shareLocked()
	for _, g := range w.groups {
		if g.share > 0 {
			if wait.Wake(g.room); g.full {
				g.giveUpPoll()
			}
		}
	}
}

// assignedLocked notes that a group was given work: what cannot be divided goes to the others first.
func (w *Worker) assignedLocked(g *group) {
	w.groups = append(slices.DeleteFunc(w.groups, func(x *group) bool { return x == g }), g)
}
