package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// The leader picks the numbers of new jobs, because H, jitter and @every depend on them, and they must be in the log in order. So one
// goroutine of the leadership gives them out. It also gathers whatever waits into one command: sixty-four clients that post one
// job each cost a few entries and not sixty-four.

const (
	maxCreateItems = 1024
	maxCreateBytes = 384 << 10
	// createPipeline is how many commands may be on their way. More would only wait in raft's queue instead of in this one,
	// where they could still be joined by others.
	createPipeline = 8
	createQueue    = 16384
)

// creation is one job on its way in. The batcher fills in the outcome and releases the group.
type creation struct {
	spec    *job.Spec // normalized and checked
	size    int       // about how many bytes it takes
	request fsm.Request
	group   *sync.WaitGroup

	outcome fsm.Outcome
	err     error

	// As it was proposed, for the answer.
	next fsm.When
	now  int64
}

func (c *creation) finish(o fsm.Outcome, err error) {
	c.outcome, c.err = o, err
	c.group.Done()
}

type batcher struct {
	e    *epoch
	last uint64 // the highest number given out
	wake chan struct{}

	mu     sync.Mutex
	queue  []*creation
	closed bool
}

func newBatcher(e *epoch, last uint64) *batcher {
	return &batcher{e: e, last: last, wake: make(chan struct{}, 1)}
}

// submit hands in jobs; their group is released as each is decided.
func (b *batcher) submit(items []*creation) {
	b.mu.Lock()
	var err error
	switch {
	case b.closed:
		err = fmt.Errorf("%w: %w", scheduler.ErrNotApplied, errEnded)
	case len(b.queue) > createQueue:
		err = job.Errorf(job.CodeUnavailable, "send fewer at a time", "%d jobs wait to be created already; nothing was changed", len(b.queue))
	default:
		b.queue = append(b.queue, items...)
	}
	b.mu.Unlock()
	if err != nil {
		finishAll(items, err)
		return
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func finishAll(items []*creation, err error) {
	for _, c := range items {
		c.finish(fsm.Outcome{}, err)
	}
}

// run makes commands of what comes in until the leadership ends.
func (b *batcher) run(ctx context.Context) {
	var flying sync.WaitGroup
	slots := make(chan struct{}, createPipeline)
	before := make(chan struct{}) // closed when the command before has been proposed
	close(before)
	for {
		// First a place in the pipeline, then the batch: what comes meanwhile joins it.
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		batch := b.gather()
		for batch == nil && ctx.Err() == nil {
			select {
			case <-b.wake:
			case <-ctx.Done():
			}
			batch = b.gather()
		}
		if ctx.Err() != nil {
			finishAll(append(batch, b.close()...), fmt.Errorf("%w: %w", scheduler.ErrNotApplied, errEnded))
			flying.Wait()
			return
		}
		from := b.last
		b.last += uint64(len(batch))
		prev, mine := before, make(chan struct{})
		before = mine
		flying.Go(func() {
			defer func() { <-slots }()
			b.propose(batch, from, prev, mine)
		})
	}
}

// gather takes what waits, up to the limits of a command; nil if nothing does.
func (b *batcher) gather() []*creation {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, 0
	for n < len(b.queue) && n < maxCreateItems && (n == 0 || size+b.queue[n].size <= maxCreateBytes) {
		size += b.queue[n].size
		n++
	}
	if n == 0 {
		return nil
	}
	batch := append([]*creation(nil), b.queue[:n]...)
	rest := copy(b.queue, b.queue[n:])
	clear(b.queue[rest:])
	b.queue = b.queue[:rest]
	return batch
}

// close refuses everything later and gives back what waits.
func (b *batcher) close() []*creation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	left := b.queue
	b.queue = nil
	return left
}

// propose numbers a batch from `from` on. Preparing it is the expensive part and goes on beside that of its neighbours; only the
// entry into the log is in order.
func (b *batcher) propose(batch []*creation, from uint64, prev <-chan struct{}, mine chan<- struct{}) {
	cmd, live := b.prepare(batch, from)
	<-prev
	if len(live) == 0 {
		close(mine)
		return
	}
	future := b.e.prop.Propose(cmd)
	close(mine)
	reply, err := future.Wait()
	if err == nil && len(reply.Items) != len(live) {
		err = fmt.Errorf("%d outcomes for %d jobs", len(reply.Items), len(live))
	}
	for i, c := range live {
		switch {
		case err != nil:
			c.finish(fsm.Outcome{}, err)
		case reply.Items[i].Code == fsm.CodeStale:
			c.finish(fsm.Outcome{}, fmt.Errorf("%w: the leadership changed", scheduler.ErrNotApplied))
		default:
			c.finish(reply.Items[i], nil)
		}
	}
}

// prepare makes the command. What cannot be part of it is answered here.
func (b *batcher) prepare(batch []*creation, from uint64) (*fsm.Create, []*creation) {
	now, err := b.e.sched.Stamp()
	if err != nil {
		finishAll(batch, fmt.Errorf("%w: %w", scheduler.ErrNotApplied, err))
		return nil, nil
	}
	cmd := &fsm.Create{Head: fsm.Head{Now: now, Term: b.e.term}}
	var live []*creation
	for i, c := range batch {
		id := job.ID(from + uint64(i) + 1)
		item, err := createItem(c, id, now)
		if err != nil {
			c.finish(fsm.Outcome{}, err)
			continue
		}
		cmd.Items = append(cmd.Items, item)
		live = append(live, c)
	}
	return cmd, live
}

func createItem(c *creation, id job.ID, now int64) (fsm.CreateItem, error) {
	sched, err := compile(c.spec, id)
	if err != nil {
		return fsm.CreateItem{}, err
	}
	def := store.Definition{Spec: *c.spec, Version: 1, CreatedAt: now, UpdatedAt: now}
	data, err := def.Encode()
	if err != nil {
		return fsm.CreateItem{}, err
	}
	c.next, c.now = firstRun(c.spec, sched, now), now
	return fsm.CreateItem{Job: uint64(id), Def: data, Next: c.next, Request: c.request}, nil
}
