// Package forward knows who leads and brings every request there: to this node's own leadership, or to another node.
package forward

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// Epoch is one leadership of this node: everything that may be done only by the leader of its term. It ends as a whole.
type Epoch struct {
	Term      uint64
	Began     time.Time
	Scheduler *scheduler.Scheduler
	Proposer  Proposer
}

// Head is the head of a command of this leadership, stamped with now.
func (e *Epoch) Head(now int64) fsm.Head { return fsm.Head{Now: now, Term: e.Term} }

// HeadFor is the head of a command that a request asks for: what it changes is recorded as its caller's.
func (e *Epoch) HeadFor(ctx context.Context, now int64) fsm.Head {
	h := e.Head(now)
	h.By = CallerOf(ctx)
	return h
}

// CallerOf is who makes a request, as commands name them; nil for what no request asks for.
func CallerOf(ctx context.Context) *fsm.Caller {
	c, ok := api.CallerOf(ctx)
	if !ok {
		return nil
	}
	return &fsm.Caller{Token: c.Token, Name: c.Name, Address: c.Address}
}

// Proposer enters commands into the log for one leadership, and nothing after its end.
type Proposer interface {
	Propose(cmd fsm.Command) scheduler.Future
	// VerifyLeader asks a quorum whether this node still leads.
	VerifyLeader(ctx context.Context) error
}

// Leader is who leads as this node sees it. The address is that of raft and of HTTP: a node has one port.
type Leader struct {
	ID, Addr string
	Epoch    *Epoch          // this node's own leadership; nil if it has none
	Changed  <-chan struct{} // closed when this is no longer the newest
	Since    time.Time       // when raft last named another one
	self     string
}

// Elsewhere says that the leader is known and another node.
func (l Leader) Elsewhere() bool { return l.Addr != "" && l.ID != l.self }

// Known says that a request has somewhere to go.
func (l Leader) Known() bool { return l.Epoch != nil || l.Elsewhere() }

// Raft is what the tracker asks of raft.
type Raft interface {
	LeaderWithID() (raft.ServerAddress, raft.ServerID)
	State() raft.RaftState
	LastContact() time.Time
	RegisterObserver(*raft.Observer)
	DeregisterObserver(*raft.Observer)
}

// TrackerOptions describe a tracker.
type TrackerOptions struct {
	Self string // this node's id
	// Why says which voters are missing, "" if a majority is there.
	Why func(ctx context.Context) string
	// Removed says that the cluster no longer has this node; nil: it has.
	Removed func() error
	// Lag is how much later than its leader's last word a follower may have applied it.
	Lag time.Duration
	// Interval is how often raft is asked without being told that something changed; default 1 s.
	Interval time.Duration
}

// Tracker follows who leads. It is level-triggered: raft's observer says "look", and what counts is what raft says
// then.
type Tracker struct {
	o    TrackerOptions
	raft Raft
	look chan raft.Observation
	obs  *raft.Observer

	yielded atomic.Bool
	halted  atomic.Pointer[error]
	leaving chan struct{}
	distant *distant // nil: raft runs here

	mu       sync.Mutex
	id, addr string
	epoch    *Epoch
	changed  chan struct{}
	since    time.Time
}

// NewTracker makes a tracker that knows no leader before Watch.
func NewTracker(o TrackerOptions) *Tracker {
	o.Interval = cmp.Or(o.Interval, time.Second)
	return &Tracker{o: o, look: make(chan raft.Observation, 1), leaving: make(chan struct{}),
		changed: make(chan struct{}), since: time.Now()}
}

// Watch begins to follow what raft says.
func (t *Tracker) Watch(r Raft) {
	t.raft = r
	// It does not block: an observation that finds the channel full is about a change that the one in it will show as
	// well.
	t.obs = raft.NewObserver(t.look, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	r.RegisterObserver(t.obs)
	t.read()
}

// Run follows raft until ctx ends.
func (t *Tracker) Run(ctx context.Context) {
	defer t.raft.DeregisterObserver(t.obs)
	tick := time.NewTicker(t.o.Interval)
	defer tick.Stop()
	for {
		t.read()
		select {
		case <-ctx.Done():
			return
		case <-t.look:
		case <-tick.C:
		}
	}
}

func (t *Tracker) read() {
	addr, id := t.raft.LeaderWithID()
	t.mu.Lock()
	defer t.mu.Unlock()
	if replica.Node(id) == t.id && string(addr) == t.addr {
		return
	}
	t.id, t.addr, t.since = replica.Node(id), string(addr), time.Now()
	t.notifyLocked()
}

func (t *Tracker) notifyLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// SetEpoch says which leadership this node has; nil: none.
func (t *Tracker) SetEpoch(e *Epoch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch = e
	t.notifyLocked()
}

// Epoch is this node's current leadership; nil: it has none.
func (t *Tracker) Epoch() *Epoch {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch
}

// Leader is who leads.
func (t *Tracker) Leader() Leader {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Halted() != nil {
		return Leader{Changed: t.changed, Since: t.since, self: t.o.Self}
	}
	return Leader{ID: t.id, Addr: t.addr, Epoch: t.epoch, Changed: t.changed, Since: t.since, self: t.o.Self}
}

// Elsewhere is the leader if it is known and another node.
func (t *Tracker) Elsewhere() (Leader, bool) {
	l := t.Leader()
	return l, l.Elsewhere()
}

// Addr is where the leader's port is, empty if no other node is known to lead.
func (t *Tracker) Addr() string {
	if l, other := t.Elsewhere(); other {
		return l.Addr
	}
	return ""
}

// LeaderWait is how long a request waits for an election to end.
const LeaderWait = 5 * time.Second

// Deadline is until when a request that comes now waits for a leader, and is tried: spread, so that those that waited
// do not come back together.
func Deadline() time.Time { return time.Now().Add(LeaderWait*3/4 + rand.N(LeaderWait/4)) }

// Wait waits until the leader is as the caller wants it. It says false when that did not come about until the time
// given (zero: no limit), the end of ctx, or Leave.
func (t *Tracker) Wait(ctx context.Context, until time.Time, want func(Leader) bool) (Leader, bool) {
	var late <-chan time.Time
	for {
		l := t.Leader()
		switch {
		case want(l):
			return l, true
		case t.Halted() != nil:
			return l, false
		case late == nil && !until.IsZero():
			timer := time.NewTimer(time.Until(until))
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-l.Changed:
		case <-late:
			return l, false
		case <-t.leaving: // what is known now is all that this node will ever know
			l = t.Leader()
			return l, want(l)
		case <-ctx.Done():
			return l, false
		}
	}
}

// Replaced ends a context when another node than l is known to lead. A leader that hangs does not answer and does not
// close its connections; that others elected a new one is how this is noticed. A leader that is merely not known for a
// moment is waited for. halted, if not nil, ends it as well.
func (t *Tracker) Replaced(ctx context.Context, l Leader, halted <-chan struct{}) (context.Context,
	context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for now := l; ; {
			select {
			case <-ctx.Done():
				return
			case <-now.Changed:
			case <-halted:
				cancel(errReplaced)
				return
			}
			if now = t.Leader(); t.Halted() != nil || now.ID != "" && (now.ID != l.ID || now.Addr != l.Addr) {
				cancel(errReplaced)
				return
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// leadsSoon says that raft made this node the leader, and that its epoch is about to begin. A node that has put down
// its leadership to stop is still raft's leader for a moment.
func (t *Tracker) leadsSoon() bool { return t.raft.State() == raft.Leader && !t.yielded.Load() }

// Halt says why this node has no part in the group any more: nobody leads as far as it is concerned, and what needs a
// leader is answered with that.
func (t *Tracker) Halt(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.halted.Store(&err)
	t.notifyLocked()
}

// Halted is what Halt was told; nil: nothing.
func (t *Tracker) Halted() error {
	if err := t.halted.Load(); err != nil {
		return *err
	}
	return nil
}

// outside is why this node need not wait for a leader: it takes no part, or was removed and hears of none.
func (t *Tracker) outside() error {
	if err := t.Halted(); err != nil || t.Leader().Known() {
		return err
	}
	return t.removed()
}

// removed is what a node says that the cluster no longer has; nil: it has it.
func (t *Tracker) removed() error {
	if t.o.Removed == nil {
		return nil
	}
	return t.o.Removed()
}

// Yield says that this node puts its leadership down, to stop.
func (t *Tracker) Yield() { t.yielded.Store(true) }

// Leave says that this node stops and waits for no leader any more.
func (t *Tracker) Leave() { close(t.leaving) }

// Leaving is closed by Leave.
func (t *Tracker) Leaving() <-chan struct{} { return t.leaving }

func (t *Tracker) left() bool {
	select {
	case <-t.leaving:
		return true
	default:
		return false
	}
}

// StaleFor is how long ago this node's state was that of the leader, as far as it knows; began is when the node
// started. A follower hears of a commit with the next entries or when the leader has been idle for a while, and may
// hold it back for a moment.
func (t *Tracker) StaleFor(began time.Time) time.Duration {
	if t.Epoch() != nil {
		return 0
	}
	last := t.raft.LastContact()
	if last.IsZero() {
		last = began
	}
	return max(0, time.Since(last)) + t.o.Lag
}
