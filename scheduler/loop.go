package scheduler

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/wheel"
)

const (
	tickEvery   = time.Second
	maxInFlight = 4 // batches of one kind in flight
	// worthwhile is how many items make a batch worth sending while another one is on its way: below it, waiting for
	// that one costs a commit's time and saves an entry in the log.
	worthwhile = 256
	maxBatch   = 1024
	// pauseFirst and pauseLimit bound how long nothing is proposed after a proposal was refused (a leadership transfer,
	// a full queue).
	pauseFirst = 20 * time.Millisecond
	pauseLimit = time.Second
)

// loop is the scheduling loop. One goroutine owns all of it.
type loop struct {
	s   *Scheduler
	ctx context.Context
	now int64 // the stamp of this turn

	lanes      [job.Lanes]lane
	buckets    map[bucketKey]*bucket
	classes    map[uint32]*class
	queues     map[job.QueueKey]*jobQueue
	moves      uint64                  // of the queues at the last look
	known      map[store.DueKey]uint32 // entries in memory or in flight, and the class they had when last read
	suspects   map[store.DueKey]suspect
	starved    []*bucket // buckets with room for more of what did not fit
	ready      int       // entries in heads
	round      uint64
	version    uint64
	picks      []pick
	dispatched chan struct{} // closed when the last batch of claims was handed to its sessions

	catalog  *catalog
	outages  []store.Outage
	shared   bool  // several namespaces have jobs
	released int64 // when the cluster was released after a restore
	free     bool  // it is not on hold; a leadership sees no other beginning of a hold than its own

	blocked     []item // occurrences that find a run of their job open: decided about without a slot
	admits      []admit
	advances    []advance
	bad         []quarantine
	cleanups    []store.DueKey
	uncleaned   sweep // clean-ups that were too many
	admitting   int   // batches in flight
	advancing   int   // likewise
	quarantined int
	cleaning    bool
	expiring    bool

	resuming, stamping, verifying, trimming, losing bool

	lastTick  time.Duration
	guarded   time.Duration // when the slow sweep last read
	lastTrim  time.Duration
	lastStamp time.Duration // when a stamp was last proposed for its own sake
	progress  time.Duration // when a claim was last committed, or nothing waited
	pause     time.Duration // after a refusal
	pauseEnd  time.Duration
	scanErr   string
	held      bool // the log says that this leader holds
	hinted    bool // workers of several groups were told that runs wait
	behind    bool // the last turn left something to be read
	unfilled  bool // the wheels do not reach as far ahead as they should
}

func newLoop(s *Scheduler) *loop {
	l := &loop{s: s, buckets: map[bucketKey]*bucket{}, classes: map[uint32]*class{},
		queues: map[job.QueueKey]*jobQueue{}, moves: neverMoved,
		known: map[store.DueKey]uint32{}, suspects: map[store.DueKey]suspect{}, catalog: newCatalog()}
	for i := range l.lanes {
		n := &l.lanes[i]
		n.n, n.wheel = job.Lane(i), new(wheel.Wheel)
		n.begin(0)
	}
	mono := s.o.Clock.Mono()
	l.lastTick, l.progress, l.lastTrim, l.lastStamp = mono, mono, mono, mono
	l.guarded = mono - s.maxSleep()
	return l
}

func (l *loop) run(ctx context.Context) error {
	l.ctx = ctx
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		sleep := l.turn()
		if ctx.Err() != nil {
			return nil
		}
		if sleep > 0 {
			timer.Reset(sleep)
			select {
			case <-ctx.Done():
				return nil
			case <-l.s.wake:
			case <-timer.C:
			}
		}
	}
}

// turn does what there is to do and says how long the loop may sleep.
func (l *loop) turn() time.Duration {
	s := l.s
	mono := s.o.Clock.Mono()
	s.lastTurn.Store(int64(mono))
	for _, fn := range s.takePosts() {
		fn()
	}
	more := false
	now, err := s.stamp.Now()
	if err == nil {
		more = l.work(now, mono)
	} else {
		l.noteHold()
		l.resume()
	}
	if mono-l.lastTick >= l.s.maxSleep() {
		l.tick(mono, err == nil)
	}
	if f := s.o.Metrics.Loop; f != nil {
		f(s.o.Clock.Mono()-mono, len(l.known))
	}
	if (more || l.unfilled) && mono >= l.pauseEnd && err == nil {
		return 0
	}
	return l.sleep(now, mono)
}

// work is a turn of a leader that may stamp.
func (l *loop) work(now int64, mono time.Duration) bool {
	s := l.s
	if now < l.now {
		l.rewind(now)
	}
	l.now = now
	if !l.free && l.onHold() {
		return false
	}
	guard := mono-l.guarded >= s.maxSleep()
	more, err := l.find(guard)
	if guard {
		l.guarded = mono
		l.triage()
	}
	l.noteScan(err)
	if mono < l.pauseEnd {
		return more
	}
	for i := 0; i < maxInFlight && l.claim(); i++ {
		more = true
	}
	l.hint()
	l.admit()
	s.setStarving(l.ready > 0)
	l.sendAdvances()
	l.sendQuarantines()
	l.sendCleanups()
	l.sendExpired()
	return more
}

// noteScan keeps an error of the store for readiness. The loop goes on: what can be read is served.
func (l *loop) noteScan(err error) {
	text := ""
	if err != nil {
		text = "the due index cannot be read: " + err.Error()
	}
	if text != l.scanErr {
		l.scanErr = text
		if err != nil {
			l.s.log.Error("due index not readable", "error", err)
		}
	}
}

// sleep is how long there is nothing to do, at most a second.
func (l *loop) sleep(now int64, mono time.Duration) time.Duration {
	d := l.lastTick + l.s.maxSleep() - mono
	if mono < l.pauseEnd {
		d = min(d, l.pauseEnd-mono)
	}
	if now > 0 {
		d = min(d, time.UnixMilli(l.nextTurn()).Sub(l.s.o.Clock.Now()))
	}
	// Never zero: a clock that stands still must not turn this into a spin.
	d = min(max(d, 100*time.Microsecond), l.s.maxSleep())
	if now > 0 {
		l.s.feed.sleeps.Store(l.s.o.Clock.Now().Add(d).UnixMilli())
	}
	return d
}

// nextTurn is when something is due next, or a wheel has to be filled.
func (l *loop) nextTurn() int64 {
	next := int64(math.MaxInt64)
	for i := range l.lanes {
		n := &l.lanes[i]
		if n.horizon >= l.now { // on hold nothing is filled
			next = min(next, n.horizon+1)
		}
		if at, ok := n.wheel.Next(); ok {
			next = min(next, at)
		}
	}
	return next
}

// refusedAll slows the loop down after a proposal that was not taken in.
func (l *loop) refusedAll(err error) {
	l.pause = min(max(2*l.pause, pauseFirst), pauseLimit)
	l.pauseEnd = l.s.o.Clock.Mono() + l.pause
	l.s.log.Debug("proposal refused", "error", err, "pause", l.pause)
}

// submit proposes a command; then is called by the loop.
func (l *loop) submit(cmd fsm.Command, then func(*fsm.Reply, error)) {
	l.s.submit(cmd, func(reply *fsm.Reply, err error) { l.s.post(func() { then(reply, err) }) })
}

// applied says whether a command about n entries was. If it certainly was not, they are looked at again.
func (l *loop) applied(what string, n int, key func(i int) store.DueKey, reply *fsm.Reply, err error) bool {
	if err == nil && len(reply.Items) != n {
		err = errors.New("the reply has the wrong number of items")
	}
	if err == nil {
		l.accepted()
		return true
	}
	l.lostProposal(n, what, err)
	if errors.Is(err, ErrNotApplied) {
		for i := range n {
			l.forget(key(i))
		}
	}
	return false
}

// accepted ends the pause.
func (l *loop) accepted() { l.pause = 0 }

// noteHold says that a hold has begun.
func (l *loop) noteHold() {
	if c := l.s.Clock(); !l.held && c.Kind != stamp.HoldNone {
		l.held = true
		l.s.log.Warn("hold begun: nothing is started", event.HoldBegun, "reason", c.Why, "remedy", c.Remedy)
	}
}

// resume ends a hold: the time in which no leader stamped is committed as an outage, as after a takeover.
func (l *loop) resume() {
	if l.resuming {
		return
	}
	now, ok := l.s.stamp.Resume()
	if !ok {
		return
	}
	l.resuming = true
	l.submit(l.s.newStamp(now, true), func(_ *fsm.Reply, err error) {
		l.resuming = false
		if err != nil {
			l.refusedAll(err)
		} else if l.s.stamp.Resumed() {
			l.held = false
			l.s.log.Info("hold ended; the leader stamps again", event.HoldEnded, "outages", l.s.outageTexts())
		}
	})
}
