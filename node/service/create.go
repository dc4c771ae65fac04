package service

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/disk"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// The leader picks the numbers of new jobs, because H, jitter and @every depend on them, and they must be in the log in
// order. So one goroutine of the leadership gives them out. It also gathers whatever waits into one command: sixty-four
// clients that post one job each cost a few entries and not sixty-four.

const (
	maxCreateItems = 2048
	maxCreateBytes = 480 << 10 // of an entry; fsm.MaxEntry holds
	// waveEntries is how many entries go into the log side by side. They are on the disk by one fsync, and applied in
	// one transaction: of many names at random places, more fall onto one page.
	waveEntries = 8
	// createWaves is how many waves may be on their way: one is applied while the next is replicated. More would only
	// wait in raft's queue instead of in this one, where they could still be joined by others.
	createWaves = 2
	// besideWave is how many jobs a wave has at least that goes beside another one. Fewer cost each node a transaction
	// and an fsync of their own, and are back hardly sooner than with the next one.
	besideWave = 256

	// How many jobs may wait: of bulk creates, and of single ones.
	createQueue  = 1 << 17
	singlesQueue = 1 << 14
)

// createBatch is who waits for some creations.
type createBatch struct {
	left atomic.Int64
	done chan struct{}
}

func (g *createBatch) add(n int) {
	g.left.Store(int64(n))
	g.done = make(chan struct{})
}

// creation is one job on its way in. The batcher fills in the outcome and tells the batch.
type creation struct {
	spec    *job.Spec // normalized and checked
	size    int       // of spec, by sizeOf
	request fsm.Request
	by      *fsm.Caller // the same one for all of a bulk create's chunk
	first   bool        // of those that have it
	batch   *createBatch
	// again is what a repetition is known by, which a client may send at any time; empty: there is none.
	again    string
	reserved *reserved // with several groups: its name

	outcome fsm.Outcome
	err     error

	// As it was proposed, for the answer.
	next fsm.When
	now  int64
}

// bytes is how much of an entry it takes at most.
func (c *creation) bytes() int {
	n := c.size + len(c.request.ID)
	if by := c.by; by != nil && c.first {
		n += 32 + len(by.Token) + len(by.Name) + len(by.Address) + len(by.Request)
	}
	return n
}

func (c *creation) finish(o fsm.Outcome, err error) {
	c.outcome, c.err = o, err
	if g := c.batch; g.left.Add(-1) == 0 {
		close(g.done)
	}
}

type batcher struct {
	e         *forward.Epoch
	schedules *scheduler.Schedules
	last      uint64 // the highest number given out
	wake      chan struct{}

	mu      sync.Mutex
	singles []*creation // a client waits for each of these: they do not wait behind a bulk load
	queue   []*creation
	closed  bool
}

func newBatcher(e *forward.Epoch, s *scheduler.Schedules, last uint64) *batcher {
	return &batcher{e: e, schedules: s, last: last, wake: make(chan struct{}, 1)}
}

// Lead begins to create jobs under a leadership, and to log what dies.
func (b *Service) Lead(e *forward.Epoch) func(context.Context) {
	creates := newBatcher(e, &b.schedules, b.o.Store.Counters().NextJob)
	b.creates.Store(creates)
	return func(ctx context.Context) {
		var creating sync.WaitGroup
		defer creating.Wait()
		creating.Go(func() { creates.run(ctx) })
		newDeadLog(b).run(ctx)
	}
}

// submit hands jobs to the batcher of a leadership.
func (b *Service) submit(e *forward.Epoch, items []*creation) {
	if c := b.creates.Load(); c != nil && c.e == e {
		c.submit(items)
		return
	}
	finishAll(items, fmt.Errorf("%w: %w", scheduler.ErrNotApplied, errEnded))
}

// submit hands in jobs; their batch is told when all are decided.
func (b *batcher) submit(items []*creation) {
	b.mu.Lock()
	var err error
	queue, limit := &b.queue, createQueue
	if len(items) == 1 {
		queue, limit = &b.singles, singlesQueue
	}
	switch {
	case b.closed:
		err = fmt.Errorf("%w: %w", scheduler.ErrNotApplied, errEnded)
	case len(*queue) > limit:
		err = job.Errorf(job.CodeUnavailable, "send fewer at a time",
			"%d jobs are already waiting to be created; nothing was changed", len(*queue))
	default:
		*queue = append(*queue, items...)
	}
	b.mu.Unlock()
	if err != nil {
		finishAll(items, err)
		return
	}
	wait.Wake(b.wake)
}

func finishAll(items []*creation, err error) {
	for _, c := range items {
		c.finish(fsm.Outcome{}, err)
	}
}

// run makes commands of what comes in until the leadership ends.
func (b *batcher) run(ctx context.Context) {
	var flying sync.WaitGroup
	slots := make(chan struct{}, createWaves)
	before := make(chan struct{}) // closed when the wave before has been proposed
	close(before)
	for {
		// First a place for a wave, then the wave: what comes meanwhile joins it.
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		batches := b.gather(leastInWave(len(slots) - 1))
		for batches == nil && ctx.Err() == nil {
			select {
			case <-b.wake:
			case <-ctx.Done():
			}
			batches = b.gather(leastInWave(len(slots) - 1))
		}
		if ctx.Err() != nil {
			for _, batch := range append(batches, b.close()) {
				finishAll(batch, fmt.Errorf("%w: %w", scheduler.ErrNotApplied, errEnded))
			}
			flying.Wait()
			return
		}
		from := b.last
		for _, batch := range batches {
			b.last += uint64(len(batch))
		}
		prev, mine := before, make(chan struct{})
		before = mine
		flying.Go(func() {
			defer func() {
				<-slots
				wait.Wake(b.wake)
			}()
			b.wave(batches, from, prev, mine)
		})
	}
}

// leastInWave is how many jobs a wave has at least while so many others are in flight.
func leastInWave(flying int) int {
	if flying > 0 {
		return besideWave
	}
	return 1
}

// gather takes what waits, up to the limits of a wave, cut into what fits an entry; nil if fewer than least wait.
func (b *batcher) gather(least int) (batches [][]*creation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.singles)+len(b.queue) < least {
		return nil
	}
	for len(batches) < waveEntries {
		var batch []*creation
		size := 0
		for _, queue := range []*[]*creation{&b.singles, &b.queue} {
			q, n := *queue, 0
			for n < len(q) && len(batch)+n < maxCreateItems &&
				(len(batch)+n == 0 || size+q[n].bytes() <= maxCreateBytes) {
				size += q[n].bytes()
				n++
			}
			batch = append(batch, q[:n]...)
			*queue = shorten(q, n)
		}
		if len(batch) == 0 {
			break
		}
		batches = append(batches, batch)
	}
	return batches
}

// shorten takes n off the front of a queue. What is behind them stays where it is until append needs the room.
func shorten(q []*creation, n int) []*creation {
	clear(q[:n])
	if n == len(q) {
		return q[:0]
	}
	return q[n:]
}

// close refuses everything later and gives back what waits.
func (b *batcher) close() []*creation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	left := append(b.singles, b.queue...)
	b.singles, b.queue = nil, nil
	return left
}

// wave numbers batches from `from` on and proposes them together. Preparing them is the expensive part and goes on side
// by side; only the entry into the log is in order.
func (b *batcher) wave(batches [][]*creation, from uint64, prev <-chan struct{}, mine chan<- struct{}) {
	type entry struct {
		cmd    *fsm.Create
		live   []*creation
		future scheduler.Future
	}
	entries := make([]entry, len(batches))
	var ready sync.WaitGroup
	for i, batch := range batches {
		e, first := &entries[i], from
		from += uint64(len(batch))
		if i == len(batches)-1 {
			e.cmd, e.live = b.prepare(batch, first)
			break
		}
		ready.Go(func() { e.cmd, e.live = b.prepare(batch, first) })
	}
	ready.Wait()
	<-prev
	for i := range entries {
		if e := &entries[i]; len(e.live) > 0 {
			e.future = b.e.Proposer.Propose(e.cmd)
		}
	}
	close(mine)
	for _, e := range entries {
		if len(e.live) > 0 {
			answerBatch(e.live, e.future)
		}
	}
}

// answerBatch waits for what became of a command and tells those who wait for its jobs.
func answerBatch(live []*creation, future scheduler.Future) {
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
	now, err := b.e.Scheduler.Stamp()
	if err != nil {
		finishAll(batch, fmt.Errorf("%w: %w", scheduler.ErrNotApplied, err))
		return nil, nil
	}
	return b.command(batch, from, now)
}

func (b *batcher) command(batch []*creation, from uint64, now int64) (*fsm.Create, []*creation) {
	cmd := &fsm.Create{Head: fsm.Head{Now: now, Term: b.e.Term}, Items: make([]fsm.CreateItem, 0, len(batch))}
	live := make([]*creation, 0, len(batch))
	size := 0
	for _, c := range batch {
		size += c.size
	}
	defs := make([]byte, 0, size) // all of them, one behind the other
	callers := callerTable{cmd: cmd}
	for i, c := range batch {
		id := job.ID(from + uint64(i) + 1)
		sched, err := b.schedules.Compile(c.spec, id)
		if err != nil {
			c.finish(fsm.Outcome{}, wire.ScheduleError(err))
			continue
		}
		c.next, c.now = firstRun(c.spec, sched, now), now
		def := store.Definition{Spec: *c.spec, Version: 1, CreatedAt: now, UpdatedAt: now}
		begin := len(defs)
		defs = def.Append(defs)
		it := fsm.CreateItem{Job: uint64(id), Def: defs[begin:len(defs):len(defs)], Next: c.next, Request: c.request,
			By: callers.number(c.by)}
		if c.reserved != nil {
			it.Home, it.Reservation = c.reserved.grant.Home, c.reserved.grant.Number
		}
		cmd.Items = append(cmd.Items, it)
		live = append(live, c)
	}
	return cmd, live
}

// callerTable gives the callers of a command's items their numbers. One who creates job after job is in it once; each
// chunk of a bulk create has its own, because its items leave one record together.
type callerTable struct {
	cmd     *fsm.Create
	singles map[fsm.Caller]uint64
	last    *fsm.Caller // the number of this one is that of the newest
}

func (t *callerTable) number(by *fsm.Caller) uint64 {
	if by == nil {
		return 0
	}
	if n := t.singles[*by]; n != 0 && !by.Bulk {
		return n
	}
	if by != t.last || !by.Bulk { // those of one chunk follow each other
		t.cmd.Callers = append(t.cmd.Callers, *by)
	}
	n := uint64(len(t.cmd.Callers))
	if t.last = by; !by.Bulk {
		if t.singles == nil {
			t.singles = map[fsm.Caller]uint64{}
		}
		t.singles[*by] = n
	}
	return n
}

const diskRemedy = "free space on its disk, delete jobs, keep less history, or lower --min-free-disk"

// room refuses what would make the state grow while this node's disk is almost full.
func (b *Service) room() error {
	d := b.o.Disk()
	if !d.Low {
		return nil
	}
	if e := b.o.Tracker.Epoch(); e != nil {
		if target := b.o.Members.TransferTarget(e); target != "" {
			return job.Errorf(job.CodeNoLeader, "try again in a moment",
				"the disk of the leader %s is almost full, and it is handing over to %s; nothing was changed",
				b.o.NodeID, target)
		}
	}
	return job.Errorf(job.CodeDiskLow, diskRemedy,
		"the disk of the leader %s has %s and needs %s to create anything, and no other node can take over; runs "+
			"continue; nothing was changed", b.o.NodeID, disk.Text(d), job.Bytes(d.Limit))
}

// withRoom are the jobs that there is room for. One that was created by an earlier try of the same request is only
// asked about again.
func (b *Service) withRoom(items []*creation) []*creation {
	full := b.room()
	if full == nil {
		return items
	}
	var done []*creation
	err := b.view(func(r *view.Reader) error {
		for _, c := range items {
			if c.request.ID != "" && r.Request(c.request.ID) != nil {
				done = append(done, c)
			} else {
				c.err = full
			}
		}
		return nil
	})
	if err != nil {
		leftOver(items, err)
		return nil
	}
	return done
}
