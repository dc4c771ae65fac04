package scheduler

import (
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/wheel"
)

const (
	// headCap bounds how many entries of a bucket are in memory; the rest wait in the store.
	headCap = 4096
	// smallCap is the bound once very many buckets have work, so that memory stays bounded too.
	smallCap   = 64
	manyInHeap = 1 << 20
)

// item is a due entry in memory, with what of its job's state a claim needs.
type item struct {
	store.DueKey
	gen     uint32
	runs    uint32
	pauses  *store.Pauses // that it lies before or in; nil: none
	looked  bool          // triaged: it is not to be moved on, as far as is known
	busy    int64         // of an occurrence that finds a run of its job open: until when; forever if it still is
	expires int64         // once triaged: when it may no longer start; 0: never
}

func itemOf(e *store.DueEntry) item {
	it := item{DueKey: e.DueKey, gen: e.State.Gen, runs: e.State.Runs}
	if e.State.Pauses != (store.Pauses{}) {
		it.pauses = new(e.State.Pauses)
	}
	return it
}

// fifo is a list that can take back what it gave out.
type fifo struct {
	items []item
	first int
}

func (q *fifo) len() int { return len(q.items) - q.first }

func (q *fifo) push(it item) { q.items = append(q.items, it) }

func (q *fifo) pop() item {
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

// remove takes an entry out, wherever it is, and says whether it was there.
func (q *fifo) remove(k store.DueKey) bool {
	for i := q.first; i < len(q.items); i++ {
		if q.items[i].DueKey != k {
			continue
		}
		if i == q.first { // an edit of many takes them out in this order
			q.pop()
		} else {
			q.items = append(q.items[:i], q.items[i+1:]...)
		}
		return true
	}
	return false
}

func (q *fifo) unpop(it item) {
	if q.first > 0 {
		q.first--
		q.items[q.first] = it
		return
	}
	q.items = append(q.items, item{})
	copy(q.items[1:], q.items)
	q.items[0] = it
}

func (q *fifo) all() []item { return q.items[q.first:] }

// bucket is the ready work of one class in one lane: its oldest part is in memory.
type bucket struct {
	class   *class
	number  uint32 // of the class
	lane    *lane
	head    fifo
	rest    sweep // what did not fit into the head
	starved bool  // a refill is planned
	listed  bool  // it is in its lane's ring
	credit  int   // of the current round
	served  bool  // it got a slot since the last triage
	expires int64
}

// lane is one priority.
type lane struct {
	n          job.Lane
	wheel      *wheel.Wheel // when something is due, up to the horizon
	horizon    int64
	times      []int64      // given out by the wheel, to be read
	sweep      sweep        // of what was due at the takeover, was not announced or was too much
	blocked    sweep        // of occurrences that find a run open and were too many
	guard      store.DueKey // how far the slow sweep is
	ring       []*bucket
	turn       int // of the ring
	passedOver int // slots that higher lanes took while this one had work
}

// edge is before all entries of the lane.
func (n *lane) edge() store.DueKey { return store.DueKey{Lane: n.n} }

// begin makes a lane know nothing: what is due is swept over.
func (n *lane) begin(now int64) {
	n.wheel.Reset(now)
	n.horizon, n.times, n.guard = now, nil, n.edge()
	n.sweep, n.blocked = sweep{true, n.edge()}, sweep{}
}

type bucketKey struct {
	class uint32
	lane  job.Lane
}

// suspect is about an entry whose claim was refused although it is still there. Something is odd about it, and it must
// not be tried in a tight loop.
type suspect struct {
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
	if !l.isNew(e) {
		return
	}
	if e.Kind == store.KindCleanup {
		if len(l.cleanups) >= headCap || l.uncleaned.covers(&e.DueKey) {
			l.uncleaned.from(e.DueKey)
			return
		}
		l.known[e.DueKey] = e.Class
		l.cleanups = append(l.cleanups, e.DueKey)
		return
	}
	if busy := l.busy(e); busy != 0 {
		l.block(e, busy)
		return
	}
	b := l.bucket(v, bucketKey{e.Class, e.Lane})
	if b.rest.covers(&e.DueKey) {
		return
	}
	if b.head.len() >= l.capacity() {
		b.rest.from(e.DueKey)
		return
	}
	l.take(b, e)
}

// wantRefill plans a refill if a bucket runs low and the store has more of it.
func (l *loop) wantRefill(b *bucket) {
	if b.rest.on && !b.starved && b.head.len() < l.capacity()/2 {
		b.starved = true
		l.starved = append(l.starved, b)
	}
}

// isNew says whether an entry is to be taken up. An edit may give a job another class and leave its entry where it is
// in the index: what waits in a head then waits in the wrong one, and is taken out of it. If it is not in a head, it is
// on its way through the log: the class is noted, and putBack and the outcome see to the rest.
func (l *loop) isNew(e *store.DueEntry) bool {
	if class, ok := l.known[e.DueKey]; ok {
		if class == e.Class || mutant.On(mutant.KeepClass) {
			return false
		}
		if !l.takeOut(bucketKey{class, e.Lane}, e.DueKey) {
			l.known[e.DueKey] = e.Class
			return false
		}
	}
	if len(l.suspects) > 0 {
		if w, ok := l.suspects[e.DueKey]; ok && l.now < w.until {
			return false
		}
	}
	return true
}

// takeOut removes an entry from the head of a bucket, and says whether it was there.
func (l *loop) takeOut(k bucketKey, entry store.DueKey) bool {
	b := l.buckets[k]
	if b == nil || !b.head.remove(entry) {
		return false
	}
	delete(l.known, entry)
	l.ready--
	l.wantRefill(b)
	return true
}

// putBack returns a pick that was not claimed to where it came from, or has it read again if its class is another one
// by now.
func (l *loop) putBack(p *pick) {
	if l.known[p.DueKey] != p.b.number {
		l.forget(p.DueKey)
		return
	}
	p.b.head.unpop(p.item)
	l.ready++
	l.list(p.b)
}

func (l *loop) take(b *bucket, e *store.DueEntry) {
	l.known[e.DueKey] = e.Class
	b.head.push(itemOf(e))
	l.ready++
	l.list(b)
}

func (l *loop) bucket(v *store.View, k bucketKey) *bucket {
	b := l.buckets[k]
	if b == nil {
		c := l.classes[k.class]
		if c == nil {
			c = newClass(v.Class(k.class))
			c.space, c.jobQueue = l.s.space(c.Namespace), l.queueOf(v, c)
			l.classes[k.class] = c
		}
		b = &bucket{class: c, number: k.class, lane: &l.lanes[k.lane]}
		l.buckets[k] = b
		if c.jobQueue != nil {
			c.jobQueue.buckets = append(c.jobQueue.buckets, b)
		}
	}
	return b
}

// list puts a bucket into its lane's ring if it has work, a session takes it and its queue has room.
func (l *loop) list(b *bucket) {
	if !b.listed && b.head.len() > 0 && !b.class.unserved && b.class.jobQueue.room() {
		b.listed, b.credit = true, quantum
		b.lane.ring = append(b.lane.ring, b)
	}
}

// forget drops an entry that turned out not to be what it was, so that a look at the store finds what is true now.
func (l *loop) forget(k store.DueKey) {
	delete(l.known, k)
	l.mark(store.DueMark{Lane: k.Lane, Ready: k.Ready})
}

// refused is forget for an entry whose command was stale. The first time that is a race; after that it is looked at
// more and more rarely.
func (l *loop) refused(k store.DueKey) {
	w := l.suspects[k]
	w.times++
	if w.times > 1 {
		w.until = l.now + min(int64(1000)<<min(w.times-2, 6), 60_000)
		delete(l.known, k)
	} else {
		l.forget(k)
	}
	l.suspects[k] = w
}

// settled is for an entry that is no longer in the index.
func (l *loop) settled(k store.DueKey) {
	delete(l.known, k)
	if len(l.suspects) > 0 {
		delete(l.suspects, k)
	}
}

// rewind begins anew at an earlier time, after `carillon cluster clock-reset`: what is in memory is ready by a clock
// that was wrong. What is in flight stays.
func (l *loop) rewind(now int64) {
	for _, b := range l.buckets {
		for _, it := range b.head.all() {
			delete(l.known, it.DueKey)
		}
		b.head, b.rest, b.expires = fifo{}, sweep{}, 0
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
