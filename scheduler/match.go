package scheduler

import (
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	// quantum is how many runs a bucket may claim before it is the next one's turn. Over time buckets get equal shares.
	quantum = 16
	// starvationLimit: of this many slots that higher lanes take, a lane with work gets one.
	starvationLimit = 63
)

// class is a kind of work: what it needs of a worker, and who has it.
type class struct {
	job.Class
	space    int       // its namespace, by Scheduler.spaces
	jobQueue *jobQueue // nil: it has no queue

	version  uint64 // of Scheduler.sessions that the list was made from
	sessions []*session
	unserved bool // no session can take it
	round    uint64
	heap     []candidate // sessions with free slots in this round, least loaded first
}

// candidate is a session with its load when it was last looked at. Loads only grow within a round, so it is a lower
// bound.
type candidate struct {
	x    *session
	busy int
}

func newClass(text string) *class { return &class{Class: job.ParseClass(text)} }

// queueTag is the worker tag that lists the queues a worker takes runs from, separated by commas; without it, all of
// them.
const queueTag = "queue"

// takesFrom says that a session serves a namespace; one without a namespace serves all of them.
func takesFrom(x *session, c *class) bool {
	return x.namespace == "" || x.namespace == c.Namespace || mutant.On(mutant.WrongNamespace)
}

func takesType(x *session, c *class) bool { return slices.Contains(x.types, c.Type) }

func takesQueue(x *session, c *class) bool {
	if c.Type != job.TypeQueue {
		return true
	}
	list, ok := x.tags[queueTag]
	if !ok {
		return true
	}
	for q := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(q) == c.Queue {
			return true
		}
	}
	return false
}

func hasTags(x *session, c *class) bool {
	for k, v := range c.Selector {
		if w, ok := x.tags[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func (c *class) takenBy(x *session) bool {
	return takesFrom(x, c) && takesType(x, c) && takesQueue(x, c) && hasTags(x, c) && maySee(x, c.Secrets)
}

// mayTake says that a session has a slot for a run of the class. shared: several namespaces have jobs.
func (c *class) mayTake(x *session, shared bool) bool {
	return x.free() > 0 && (!shared || x.leaves(c.space))
}

// prepare makes the class ready for a round of matching.
func (c *class) prepare(l *loop) {
	s := l.s
	if c.version != s.version {
		c.version = s.version
		c.sessions = c.sessions[:0]
		for _, x := range s.sessions {
			if x.present() && c.takenBy(x) {
				c.sessions = append(c.sessions, x)
			}
		}
		c.unserved = len(c.sessions) == 0
	}
	if c.round == l.round {
		return
	}
	c.round = l.round
	c.heap = c.heap[:0]
	for _, x := range c.sessions {
		if c.mayTake(x, l.shared) {
			c.heap = append(c.heap, candidate{x, x.busy()})
		}
	}
	for i := len(c.heap)/2 - 1; i >= 0; i-- {
		c.sift(i)
	}
}

func lighter(a, b candidate) bool { return a.busy*b.x.slots < b.busy*a.x.slots }

func (c *class) sift(i int) {
	for {
		j := 2*i + 1
		if j >= len(c.heap) {
			return
		}
		if j+1 < len(c.heap) && lighter(c.heap[j+1], c.heap[j]) {
			j++
		}
		if !lighter(c.heap[j], c.heap[i]) {
			return
		}
		c.heap[i], c.heap[j] = c.heap[j], c.heap[i]
		i = j
	}
}

// least is the least loaded session with a slot for the class, nil if there is none. Other classes may have given it
// work meanwhile.
func (c *class) least(shared bool) *session {
	for len(c.heap) > 0 {
		top := &c.heap[0]
		switch busy := top.x.busy(); {
		case !c.mayTake(top.x, shared):
			last := len(c.heap) - 1
			c.heap[0] = c.heap[last]
			c.heap = c.heap[:last]
			c.sift(0)
		case busy != top.busy:
			top.busy = busy
			c.sift(0)
		default:
			return top.x
		}
	}
	return nil
}

// next is the bucket of a lane whose turn it is, nil if none of them can run. A bucket that finds no free slot keeps
// what is left of its share; a new round begins when no bucket that can run has any left.
func (l *loop) next(n *lane) *bucket {
	spent := false // a bucket without credit could run
	for i := 0; i < len(n.ring); {
		j := (n.turn + i) % len(n.ring)
		b := n.ring[j]
		b.class.prepare(l)
		if b.class.unserved || b.head.len() == 0 || !b.class.jobQueue.room() {
			// Off the list: a session that comes, work, or room in its queue brings it back.
			b.listed = false
			n.ring = slices.Delete(n.ring, j, j+1)
			if j < n.turn {
				n.turn--
			}
			continue
		}
		if b.class.least(l.shared) != nil {
			if b.credit > 0 {
				return b
			}
			spent = true
		}
		i++
	}
	if !spent {
		return nil
	}
	for _, b := range n.ring {
		if b.credit == 0 {
			b.credit = quantum
		}
	}
	return l.next(n)
}

// match gives free slots to ready work, up to limit of it: the highest lane first, but of 64 slots each lower lane that
// has work gets at least one; within a lane the buckets take turns. It is called with Scheduler.mu held.
func (l *loop) match(limit int) []pick {
	l.round++
	l.relist()
	picks := l.picks[:0]
	for len(picks) < limit {
		b := l.choose()
		if b == nil {
			break
		}
		x := b.class.least(l.shared)
		x.reserved++
		x.count(b.class.space, 1)
		if n := b.class.jobQueue; n != nil {
			n.inFlight++
		}
		picks = append(picks, pick{item: b.head.pop(), b: b, x: x})
		l.ready--
		l.wantRefill(b)
		b.served = true
		if b.credit--; b.credit == 0 {
			b.lane.turn = (slices.Index(b.lane.ring, b) + 1) % len(b.lane.ring)
		}
	}
	l.picks = picks
	return picks
}

// choose is the bucket that gets the next slot.
func (l *loop) choose() *bucket {
	var best *bucket
	passedOver := false // best is a lower lane that is given its share
	for i := range l.lanes {
		n := &l.lanes[i]
		if len(n.ring) == 0 {
			n.passedOver = 0
			continue
		}
		b := l.next(n)
		switch {
		case b == nil:
		case best == nil:
			best = b
		default:
			if n.passedOver = min(n.passedOver+1, 2*starvationLimit); n.passedOver > starvationLimit {
				best, passedOver = b, true
			}
		}
	}
	switch {
	case best == nil:
	case passedOver:
		best.lane.passedOver -= starvationLimit + 1
	default:
		best.lane.passedOver = 0
	}
	return best
}

// relist brings buckets back that no session could serve, once the sessions changed.
func (l *loop) relist() {
	if l.version == l.s.version {
		return
	}
	l.version = l.s.version
	for _, c := range l.classes {
		c.prepare(l)
	}
	for _, b := range l.buckets {
		l.list(b)
	}
}

// hint tells the workers that have other leaders too how many entries wait that they could take: they offer more slots
// here then.
func (l *loop) hint() {
	s := l.s
	if !s.sharing.Load() || l.ready == 0 && !l.hinted {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.hinted = false
	for _, x := range s.sessions {
		x.ready = 0
	}
	for i := range l.lanes {
		for _, b := range l.lanes[i].ring {
			if n := b.head.len(); n > 0 && b.class.jobQueue.room() {
				for _, x := range b.class.sessions {
					if !l.shared || x.leaves(b.class.space) {
						x.ready += n
					}
				}
				l.hinted = true
			}
		}
	}
	for _, x := range s.sessions {
		if x.poll != nil && x.speaks(x.poll) {
			x.wakePoll()
		}
	}
}
