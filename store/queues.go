package store

import (
	"encoding/json"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

// Queue is a queue's row: its settings. A queue without settings has none, no limit and is not paused.
type Queue struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	Concurrency int    `json:"concurrency,omitempty"` // how many of its runs may be claimed at a time; 0: no limit
	Paused      bool   `json:"paused,omitempty"`
	// Version is the log entry that last changed the row. Unlike a count it does not repeat when a queue is deleted and
	// made anew.
	Version   uint64 `json:"version"`
	UpdatedAt int64  `json:"updated_at"` // ms
}

// Key is how the queue is named.
func (q *Queue) Key() job.QueueKey { return job.QueueKey{Namespace: q.Namespace, Name: q.Name} }

// QueueUse is a queue as the index knows it: its row, and who uses it.
type QueueUse struct {
	Queue
	Declared bool // it has a row
	Jobs     int  // that put their runs into it
	Claimed  int  // its runs that workers have in hand, canceling ones included
}

// Known says that the queue exists: it is declared, or something uses it.
func (q *QueueUse) Known() bool { return q.Declared || q.Jobs > 0 || q.Claimed > 0 }

// Room says that one more run may be claimed.
func (q *QueueUse) Room() bool { return !q.Paused && (q.Concurrency == 0 || q.Claimed < q.Concurrency) }

// queueIndex knows the queues: which one a class belongs to, and what is counted of each. Numbers are those of this
// process.
type queueIndex struct {
	ofClass []uint32 // by class number; 0: its type has no queue
	byKey   map[job.QueueKey]uint32
	all     []QueueUse // by number; the first one is of no queue
	rows    int        // how many are declared
	moves   uint64     // grows when anything in all changed
}

func newQueueIndex() queueIndex {
	return queueIndex{ofClass: []uint32{0}, byKey: map[job.QueueKey]uint32{}, all: make([]QueueUse, 1)}
}

// queueOfClass is the queue that a class is about, without a name if it is about none.
func queueOfClass(c *job.Class) job.QueueKey {
	if k, ok := c.QueueKey(); ok {
		return k
	}
	return job.QueueKey{}
}

// unknownQueue is a queue that nothing is known of.
func unknownQueue(k job.QueueKey) QueueUse {
	return QueueUse{Queue: Queue{Namespace: k.Namespace, Name: k.Name}}
}

func (x *queueIndex) number(k job.QueueKey) uint32 {
	if k.Name == "" {
		return 0
	}
	n, ok := x.byKey[k]
	if !ok {
		n = uint32(len(x.all))
		x.byKey[k] = n
		x.all = append(x.all, unknownQueue(k))
	}
	return n
}

func (x *queueIndex) addClass(c *job.Class) {
	x.ofClass = append(x.ofClass, x.number(queueOfClass(c)))
}

// ofRaw is the queue of a class number that was read from the file without checking it.
func (x *queueIndex) ofRaw(class uint32) *QueueUse {
	if int(class) < len(x.ofClass) {
		return &x.all[x.ofClass[class]]
	}
	return &x.all[0]
}

// inHand says that a run with this status is with a worker.
func inHand(s job.RunStatus) bool { return s == job.RunClaimed || s == job.RunCanceling }

// counted says that a run counts towards the limit of its queue.
func counted(r *Row) bool {
	return inHand(r.Status) && !(mutant.On(mutant.RetryUncounted) && r.Failures > 0)
}

// queueNumber is a queue's number in this batch: a new one if the queue is not known yet, 0 if the name is empty.
func (b *Batch) queueNumber(k job.QueueKey) uint32 {
	if k.Name == "" {
		return 0
	}
	if n, ok := b.idx.queues.byKey[k]; ok {
		return n
	}
	n, ok := b.newQueues[k]
	if !ok {
		n = uint32(len(b.idx.queues.all) + len(b.newQueues))
		if b.newQueues == nil {
			b.newQueues = map[job.QueueKey]uint32{}
		}
		b.newQueues[k] = n
		b.stageQueue(n, unknownQueue(k))
	}
	return n
}

func (b *Batch) stageQueue(n uint32, u QueueUse) *QueueUse {
	if b.queues == nil {
		b.queues = map[uint32]*QueueUse{}
	}
	b.queues[n] = &u
	return &u
}

// queue is what the batch has made of a queue so far, to be changed.
func (b *Batch) queue(n uint32) *QueueUse {
	if u := b.queues[n]; u != nil {
		return u
	}
	return b.stageQueue(n, b.idx.queues.all[n])
}

// seeQueue is what the batch has made of a queue so far, not to be changed.
func (b *Batch) seeQueue(n uint32) *QueueUse {
	if u := b.queues[n]; u != nil {
		return u
	}
	return &b.idx.queues.all[n]
}

// queueOf is the number of a class's queue, 0 if its type has none. Every claim and every result asks, so it does not
// go by names.
func (b *Batch) queueOf(class uint32) uint32 {
	x := &b.idx.queues
	if int(class) < len(x.ofClass) {
		return x.ofClass[class]
	}
	if i := int(class) - len(x.ofClass); i < len(b.classQueues) {
		return b.classQueues[i]
	}
	return 0
}

// countJob counts a job for its queue and its namespace.
func (b *Batch) countJob(class uint32, n int) {
	if b.classJobs == nil {
		b.classJobs = map[uint32]int{}
	}
	b.classJobs[class] += n
	if q := b.queueOf(class); q != 0 {
		b.queue(q).Jobs += n
	}
}

func (b *Batch) countClaim(class uint32, n int) {
	if q := b.queueOf(class); q != 0 {
		b.queue(q).Claimed += n
	}
}

// Reclassed tells the batch that a job, whose state is about to be written at a place, had another class before. That
// is announced like a new entry: other workers may take it.
func (b *Batch) Reclassed(p Place, from, to uint32) {
	if from == to {
		return
	}
	b.countJob(from, -1)
	b.countJob(to, 1)
	if !p.Parked {
		b.changes.Due = append(b.changes.Due, DueMark{p.Lane, p.Ready})
	}
}

// ClassQueue is the queue that a class belongs to; ok is false if its type has none.
func (b *Batch) ClassQueue(class uint32) (u QueueUse, ok bool) {
	n := b.queueOf(class)
	if n == 0 {
		return u, false
	}
	return *b.seeQueue(n), true
}

// Queue is a queue by its name; an unknown one is all zero but for that.
func (b *Batch) Queue(k job.QueueKey) QueueUse {
	n, ok := b.idx.queues.byKey[k]
	if !ok {
		n, ok = b.newQueues[k]
	}
	if !ok {
		return unknownQueue(k)
	}
	return *b.seeQueue(n)
}

// DeclaredQueues is how many queues have a row.
func (b *Batch) DeclaredQueues() int { return b.idx.queues.rows + b.queueRows }

// PutQueue writes a queue's row.
func (b *Batch) PutQueue(q Queue) error {
	v, err := json.Marshal(q)
	if err != nil {
		return err
	}
	u := b.queue(b.queueNumber(q.Key()))
	if !u.Declared {
		b.queueRows++
	}
	u.Queue, u.Declared = q, true
	return b.tx.Bucket(bucketQueues).Put([]byte(scoped(q.Namespace, q.Name)), v)
}

// DeleteQueue removes a queue's row.
func (b *Batch) DeleteQueue(k job.QueueKey) error {
	u := b.queue(b.queueNumber(k))
	if u.Declared {
		b.queueRows--
	}
	u.Queue, u.Declared = unknownQueue(k).Queue, false
	return b.tx.Bucket(bucketQueues).Delete([]byte(scoped(k.Namespace, k.Name)))
}

// publishQueues is part of Commit.
func (b *Batch) publishQueues() {
	x := &b.idx.queues
	for range b.newQueues {
		x.all = append(x.all, QueueUse{})
	}
	for k, n := range b.newQueues {
		x.byKey[k] = n
	}
	for n, u := range b.queues {
		if x.all[n] != *u {
			x.all[n] = *u
			x.moves++
		}
	}
	x.rows += b.queueRows
	x.ofClass = append(x.ofClass, b.classQueues...)
	for _, namespace := range b.classSpaces {
		b.idx.spaces.add(namespace)
	}
	for class, n := range b.classJobs {
		b.idx.spaces.count(class, n)
	}
}

func decodeQueue(v []byte) (q Queue, err error) {
	if err := json.Unmarshal(v, &q); err != nil {
		return q, fmt.Errorf("%w: queue: %w", ErrCorrupt, err)
	}
	return q, nil
}

// Queue is a queue as of this view; an unknown one is all zero but for its name.
func (v *View) Queue(k job.QueueKey) QueueUse { return v.idx.queue(k) }

func (x *index) queue(k job.QueueKey) QueueUse {
	if n, ok := x.queues.byKey[k]; ok {
		return x.queues.all[n]
	}
	return unknownQueue(k)
}

// EachQueue calls fn for every queue that exists, in no order, until it says false.
func (v *View) EachQueue(fn func(QueueUse) bool) {
	for _, u := range v.idx.queues.all[1:] {
		if u.Known() && !fn(u) {
			return
		}
	}
}

// QueueMoves grows whenever a queue's row or one of its counts changed.
func (v *View) QueueMoves() uint64 { return v.idx.queues.moves }

// Queue is a queue as it is now, without a transaction: it costs a look into a map.
func (s *Store) Queue(k job.QueueKey) QueueUse {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx.queue(k)
}

// checkQueues holds the rows against their keys, and the counts in memory against the file.
func (c *checker) checkQueues() error {
	b := c.tx.Bucket(bucketQueues)
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		q, err := decodeQueue(v)
		switch {
		case err != nil:
			c.bad("the row of queue %q cannot be read", k)
		case scoped(q.Namespace, q.Name) != string(k) || q.Name == "":
			c.bad("the row of queue %q is about %q", k, q.Key())
		case q.Concurrency < 0 || q.Version == 0 || q.Version > c.count.Index:
			c.bad("the row of queue %q makes no sense", k)
		}
		return nil
	})
}

func (c *checker) queueIndex(have *index) {
	if have.queues.rows != c.idx.queues.rows {
		c.bad("the index has %d rows of queues, the file %d", have.queues.rows, c.idx.queues.rows)
	}
	for _, u := range c.idx.queues.all[1:] {
		if h := have.queue(u.Key()); h != u {
			c.bad("the index has queue %q as %+v, the file says %+v", u.Key(), h, u)
		}
	}
	for _, h := range have.queues.all[1:] {
		if _, ok := c.idx.queues.byKey[h.Key()]; !ok && h.Known() {
			c.bad("the index has the queue %q, which is not in the file", h.Key())
		}
	}
}
