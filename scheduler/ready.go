package scheduler

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/wheel"
)

const (
	// headCap bounds how many entries of a group are in memory; the rest wait in the store.
	headCap = 4096
	// smallCap is the bound once very many groups have work, so that memory stays bounded too.
	smallCap   = 64
	manyInHeap = 1 << 20
)

// item is a due entry in memory, with what of its job's state a claim needs.
type item struct {
	store.DueKey
	gen     uint32
	runs    uint32
	looked  bool  // triaged: it is not to be moved on, as far as is known
	busy    int64 // of an occurrence that finds a run of its job open: until when one was; forever if it still is
	expires int64 // once triaged: when it may no longer start; 0: never
}

func itemOf(e *store.DueEntry) item {
	return item{DueKey: e.DueKey, gen: e.State.Gen, runs: e.State.Runs}
}

// queue is a FIFO that can take back what it gave out.
type queue struct {
	items []item
	first int
}

func (q *queue) len() int { return len(q.items) - q.first }

func (q *queue) push(it item) { q.items = append(q.items, it) }

func (q *queue) pop() item {
	it := q.items[q.first]
	q.first++
	if q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
	} else if q.first >= 1024 && q.first*2 >= len(q.items) {
		q.items = append(q.items[:0], q.items[q.first:]...)
		q.first = 0
	}
	return it
}

func (q *queue) unpop(it item) {
	if q.first > 0 {
		q.first--
		q.items[q.first] = it
		return
	}
	q.items = append(q.items, item{})
	copy(q.items[1:], q.items)
	q.items[0] = it
}

func (q *queue) all() []item { return q.items[q.first:] }

// group is the ready work of one class in one lane: its oldest part is in memory.
type group struct {
	class   *class
	lane    *lane
	head    queue
	rest    sweep // what did not fit into the head
	starved bool  // a refill is planned
	listed  bool  // it is in its lane's ring
	credit  int   // of the current round
	served  bool  // it got a slot since the last triage
	expires int64
}

// lane is one priority.
type lane struct {
	n       job.Lane
	wheel   *wheel.Wheel // when something is due, up to the horizon
	horizon int64
	times   []int64      // given out by the wheel, to be read
	sweep   sweep        // of what nothing else finds: what was due at the takeover, was not announced or was too much
	blocked sweep        // of occurrences that find a run open and were too many
	guard   store.DueKey // how far the slow sweep is
	ring    []*group
	turn    int // of the ring
	debt    int // slots that higher lanes took while this one had work
}

// edge is before all entries of the lane.
func (n *lane) edge() store.DueKey { return store.DueKey{Lane: n.n} }

// begin makes a lane know nothing: what is due is swept over.
func (n *lane) begin(now int64) {
	n.wheel.Reset(now)
	n.horizon, n.times, n.guard = now, nil, n.edge()
	n.sweep, n.blocked = sweep{true, n.edge()}, sweep{}
}

type groupKey struct {
	class uint32
	lane  job.Lane
}

// wary is about an entry whose claim was refused although it is still there. Something is odd about it, and it must not be tried
// in a tight loop.
type wary struct {
	times int
	until int64
}

// less orders keys as the due index does.
func less(a, b *store.DueKey) bool {
	switch {
	case a.Lane != b.Lane:
		return a.Lane < b.Lane
	case a.Ready != b.Ready:
		return a.Ready < b.Ready
	case a.Job != b.Job:
		return a.Job < b.Job
	case a.Kind != b.Kind:
		return a.Kind < b.Kind
	case a.Origin != b.Origin:
		return a.Origin < b.Origin
	}
	return a.At < b.At
}

func (l *loop) capacity() int {
	if len(l.known) > manyInHeap {
		return smallCap
	}
	return headCap
}

// offer considers an entry that was read from the ready part of the index.
func (l *loop) offer(v *store.View, e *store.DueEntry) {
	if !l.isNew(e.DueKey) {
		return
	}
	if e.Kind == store.KindCleanup {
		if len(l.cleanups) >= headCap || l.uncleaned.covers(&e.DueKey) {
			l.uncleaned.from(e.DueKey)
			return
		}
		l.known[e.DueKey] = struct{}{}
		l.cleanups = append(l.cleanups, e.DueKey)
		return
	}
	if busy := l.busy(e); busy != 0 {
		l.block(e, busy)
		return
	}
	g := l.group(v, groupKey{e.Class, e.Lane})
	if g.rest.covers(&e.DueKey) {
		return
	}
	if g.head.len() >= l.capacity() {
		g.rest.from(e.DueKey)
		return
	}
	l.take(g, e)
}

// feedGroup plans a refill if a group runs low and the store has more of it.
func (l *loop) feedGroup(g *group) {
	if g.rest.on && !g.starved && g.head.len() < l.capacity()/2 {
		g.starved = true
		l.starved = append(l.starved, g)
	}
}

// isNew says whether an entry is to be taken up.
func (l *loop) isNew(k store.DueKey) bool {
	if _, ok := l.known[k]; ok {
		return false
	}
	if len(l.wary) > 0 {
		if w, ok := l.wary[k]; ok && l.now < w.until {
			return false
		}
	}
	return true
}

func (l *loop) take(g *group, e *store.DueEntry) {
	l.known[e.DueKey] = struct{}{}
	g.head.push(itemOf(e))
	l.ready++
	l.list(g)
}

func (l *loop) group(v *store.View, k groupKey) *group {
	g := l.groups[k]
	if g == nil {
		c := l.classes[k.class]
		if c == nil {
			c = newClass(v.Class(k.class))
			c.line = l.line(v, c)
			l.classes[k.class] = c
		}
		g = &group{class: c, lane: &l.lanes[k.lane]}
		l.groups[k] = g
		if c.line != nil {
			c.line.groups = append(c.line.groups, g)
		}
	}
	return g
}

// list puts a group into its lane's ring if it has work, somebody might do it and its queue has room.
func (l *loop) list(g *group) {
	if !g.listed && g.head.len() > 0 && !g.class.nobody && g.class.line.room() {
		g.listed, g.credit = true, quantum
		g.lane.ring = append(g.lane.ring, g)
	}
}

// forget drops an entry that turned out not to be what it was, so that a look at the store finds what is true now.
func (l *loop) forget(k store.DueKey) {
	delete(l.known, k)
	l.mark(store.DueMark{Lane: k.Lane, Ready: k.Ready})
}

// refused is forget for an entry whose command was stale. The first time that is a race; after that it is looked at more and
// more rarely.
func (l *loop) refused(k store.DueKey) {
	w := l.wary[k]
	w.times++
	if w.times > 1 {
		w.until = l.now + min(int64(1000)<<min(w.times-2, 6), 60_000)
		delete(l.known, k)
	} else {
		l.forget(k)
	}
	l.wary[k] = w
}

// settled is for an entry that is no longer in the index.
func (l *loop) settled(k store.DueKey) {
	delete(l.known, k)
	if len(l.wary) > 0 {
		delete(l.wary, k)
	}
}

// rewind begins anew at an earlier time, after `carillon cluster clock-reset`: what is in memory is ready by a clock that was
// wrong. What is in flight stays.
func (l *loop) rewind(now int64) {
	for _, g := range l.groups {
		for _, it := range g.head.all() {
			delete(l.known, it.DueKey)
		}
		g.head, g.rest, g.expires = queue{}, sweep{}, 0
	}
	for i := range l.blocked {
		delete(l.known, l.blocked[i].DueKey)
	}
	l.blocked = l.blocked[:0]
	l.ready = 0
	for i := range l.lanes {
		l.lanes[i].begin(now)
	}
	l.unfilled = true
}
