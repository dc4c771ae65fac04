// Package scheduler is what only the leader does: it watches the due index, gives runs to workers through claims that
// are committed before anybody is told, keeps the workers' sessions and leases, and decides what becomes of occurrences
// that fell into an outage.
//
// One leadership is one Scheduler. DESIGN.md says how it works and why.
package scheduler

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/traceid"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
)

// ErrNotApplied means that a command certainly was not and will not be applied. Any other error of a proposal leaves
// that open.
var ErrNotApplied = errors.New("the command was not applied")

// Proposer enters commands into the log.
type Proposer interface {
	// Propose encodes and enqueues; it does not wait for the commit. The order of one goroutine's calls is the order in
	// the log.
	Propose(cmd fsm.Command) Future
	// ProposeAll does that for several, so close together that they share a write of the log.
	ProposeAll(cmds ...fsm.Command) []Future
	// VerifyLeader asks a quorum whether this node still leads.
	VerifyLeader(ctx context.Context) error
	// Confirm says whether this node led at a moment not longer ago than age. It costs nothing while commands are
	// applied soon.
	Confirm(ctx context.Context, age time.Duration) error
}

// Future is a command on its way. Every future resolves: after the end of a leadership with an error at the latest.
type Future interface {
	// Wait returns the reply, or an error: one that wraps ErrNotApplied if the command certainly has no effect, any
	// other if it may have.
	Wait() (*fsm.Reply, error)
}

// Options describe one leadership. Store, Proposer and Term must be set.
type Options struct {
	Store    *store.Store
	Proposer Proposer
	Term     uint64
	Clock    stamp.Clock  // nil: the machine's
	Logger   *slog.Logger // nil: silent
	Metrics  Metrics      // zero value: none
	// Traces decides which runs are traced, for what their targets are told; nil: none are, and targets decide.
	Traces *traceid.Sampler

	TTL     time.Duration // of a session's lease; 0: 30 s
	HoldFor time.Duration // how long a clock must be steady after a jump; 0: 10 s
	// Skew, if set, is how far this node's clock is from the majority's, once that is known. Until then the leader does
	// not begin to stamp; above stamp.MaxSkew it holds. It must not block.
	Skew func() (d time.Duration, known bool)

	// Standing, if set, says whether a node is a member of the cluster, whose worker may have a session. One that was
	// removed is leaving: it finishes what it has in hand and gets nothing more. It may read the state.
	Standing func(worker string, n job.NodeRef) (leaving bool, err error)

	// ByToken says that the names of workers end with the id of their token, "name@id": one may have MaxTokenSessions.
	ByToken bool
	// Vault opens the secrets that jobs refer to; nil: the cluster has none.
	Vault Vault
	// Calendar is a calendar as JSON, where those of the cluster are in another state; nil: they are in Store.
	Calendar func(namespace, name string) []byte

	HistoryMaxAge   time.Duration // older history is trimmed; 0: never
	HistoryMaxCount uint64        // and what exceeds this count; 0: never

	Pace faultpoint.Pace // of housekeeping; what is due is found at its time all the same

	noEvents bool // tests: as if the store never told us of a change
	noGuard  bool // tests: without the slow sweep
}

const (
	defaultTTL     = 30 * time.Second
	defaultHoldFor = 10 * time.Second
)

// Metrics are hooks; each may be nil and none may block.
type Metrics struct {
	Lag     func(run job.RunKey, d time.Duration) // an occurrence was claimed this long after it was ready
	Claims  func(outcome string, n int)           // by one of ClaimOutcomes
	Expired func()                                // the lease of a session ended
	Full    func(worker string)                   // a worker got no session because there are too many
	Loop    func(took time.Duration, busy int)    // a turn of the loop, and how many entries are in memory
}

// ClaimOutcomes are what becomes of claims.
var ClaimOutcomes = []string{"claimed", "skipped", "queued", "stale", "busy", "not_applied", "unknown"}

// Scheduler is one leadership at work. It is never restarted.
type Scheduler struct {
	o     Options
	group uint32 // whose leader this is
	// cluster is its id, from which trace ids are derived.
	cluster string
	session job.Session // what those of this leadership have in common
	log     *slog.Logger
	st      *store.Store
	stamp   *stamp.Stamper
	feed    *feed

	wake         chan struct{} // the loop should turn
	completeWake chan struct{} // the completer should look
	done         chan struct{} // closed when the epoch has ended
	wg           sync.WaitGroup

	postMu sync.Mutex
	posts  []func()

	spaceMu sync.Mutex     // nothing else is locked under it
	spaces  map[string]int // numbers of namespaces, in this leadership

	shared      atomic.Bool  // several namespaces have jobs
	lastTurn    atomic.Int64 // Clock.Mono of the loop's last turn
	starving    atomic.Bool  // ready entries wait for a slot or a limit
	unscheduled atomic.Pointer[unscheduled]
	sharing     atomic.Bool   // there was a worker that has other leaders too
	opened      atomic.Uint32 // sessions

	// mu guards everything below. It is held for short, bounded work only, and never while the store is read.
	mu       sync.Mutex
	serving  bool
	ended    bool
	stuck    string // why readiness fails although the loop turns
	unknown  int    // proposals whose outcome is not known
	sessions map[sessionKey]*session
	ofToken  map[string]int    // how many of them each token has, by its id
	version  uint64            // of sessions; moves when one comes, goes or changes what it takes
	claims   map[uint64]*claim // all of them, by fence
	toExpire []*claim          // to be taken from their workers
	inFlight int               // claim batches in flight
	early    map[uint64]struct{}
	results  []*pending
	urgent   bool                // something waits for one of them
	again    []*pending          // results of the leader's own that could not be committed
	reports  int                 // complete batches in flight
	tails    map[uint64]*tailing // output that is watched, by fence
}

// New makes the scheduler of one leadership; Run starts it.
func New(o Options) *Scheduler {
	if o.Clock == nil {
		o.Clock = stamp.NewClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TTL <= 0 {
		o.TTL = defaultTTL
	}
	if o.HoldFor <= 0 {
		o.HoldFor = defaultHoldFor
	}
	info := o.Store.Info()
	s := &Scheduler{
		o: o, group: info.Group, cluster: info.ClusterID, log: o.Logger.With("term", o.Term), st: o.Store,
		wake: make(chan struct{}, 1), completeWake: make(chan struct{}, 1), done: make(chan struct{}),
		sessions: map[sessionKey]*session{}, ofToken: map[string]int{}, version: 1,
		early:  map[uint64]struct{}{},
		claims: map[uint64]*claim{}, spaces: map[string]int{},
	}
	cluster := fnv.New64a()
	cluster.Write([]byte(info.ClusterID))
	s.session = job.Session{Group: s.group, Cluster: cluster.Sum64(), Epoch: info.Epoch, Term: o.Term, Serial: 1}
	s.stamp = stamp.New(o.Clock, o.HoldFor, func() int64 { return s.st.Counters().Mark }, o.Skew)
	s.feed = &feed{wake: s.wake, starving: &s.starving}
	s.feed.sleeps.Store(math.MaxInt64)
	s.lastTurn.Store(int64(o.Clock.Mono()))
	return s
}

// space is the number of a namespace in this leadership.
func (s *Scheduler) space(namespace string) int {
	s.spaceMu.Lock()
	defer s.spaceMu.Unlock()
	n, ok := s.spaces[namespace]
	if !ok {
		n = len(s.spaces)
		s.spaces[namespace] = n
	}
	return n
}

// maxSleep bounds every sleep: the wall clock is read again after it, because it may have been set.
func (s *Scheduler) maxSleep() time.Duration { return s.o.Pace.Of(tickEvery) }

// Term is the term of this leadership.
func (s *Scheduler) Term() uint64 { return s.o.Term }

// Run takes over and serves until ctx ends. The caller has passed a barrier: the store holds everything that was
// committed before this leadership. When it returns, every goroutine of this leadership has ended.
func (s *Scheduler) Run(ctx context.Context) error {
	if !s.o.noEvents {
		defer s.st.Listen(s.feed.changed)()
	}
	err := s.takeover(ctx)
	if err == nil {
		s.wg.Go(func() { s.completer(ctx) })
		s.wg.Go(func() { s.takeCensus(ctx) })
		err = newLoop(s).run(ctx)
	}
	s.mu.Lock()
	s.ended, s.serving = true, false
	close(s.done)
	s.mu.Unlock()
	s.wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// begin counts a piece of work that Run waits for; it says false once the epoch has ended. Its owner calls s.wg.Done.
func (s *Scheduler) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.wg.Add(1)
	return true
}

// post makes the loop run fn in its own goroutine, soon.
func (s *Scheduler) post(fn func()) {
	s.postMu.Lock()
	s.posts = append(s.posts, fn)
	s.postMu.Unlock()
	wait.Wake(s.wake)
}

func (s *Scheduler) takePosts() []func() {
	s.postMu.Lock()
	defer s.postMu.Unlock()
	p := s.posts
	s.posts = nil
	return p
}

// submission is a command of the scheduler itself; then is called, in a goroutine of the epoch, when its outcome is
// known.
type submission struct {
	cmd  fsm.Command
	then func(*fsm.Reply, error)
}

func (s *Scheduler) submit(cmd fsm.Command, then func(*fsm.Reply, error)) {
	s.submitAll(submission{cmd, then})
}

// submitAll proposes commands in their order. It is called from goroutines of the epoch only, so the epoch's end waits
// for what follows.
func (s *Scheduler) submitAll(all ...submission) {
	cmds := make([]fsm.Command, len(all))
	for i := range all {
		cmds[i] = all[i].cmd
	}
	for i, f := range s.o.Proposer.ProposeAll(cmds...) {
		then := all[i].then
		s.wg.Go(func() {
			reply, err := f.Wait()
			if err == nil && len(reply.Canceling) > 0 {
				s.tellCanceling(reply.Canceling)
			}
			then(reply, err)
		})
	}
}

func (s *Scheduler) head(now int64) fsm.Head { return fsm.Head{Now: now, Term: s.o.Term} }

// Stamp is a time that may go into a command now. A leader that is starting or does not trust its clock has none.
func (s *Scheduler) Stamp() (int64, error) {
	s.mu.Lock()
	err := s.servingLocked()
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return s.stamp.Now()
}

// ResetStamp is what a ClockReset carries: the wall clock as it is, held or not.
func (s *Scheduler) ResetStamp() int64 { return s.o.Clock.Now().UnixMilli() }

// CommitStamp commits the clock as it is now. A planned transfer of the leadership does that first: what counts as an
// outage begins at the last stamp, and that of an idle leader may be seconds old. A leader that holds has no stamp to
// commit.
func (s *Scheduler) CommitStamp(ctx context.Context) error {
	now, err := s.Stamp()
	if err != nil {
		return err
	}
	_, err = s.Propose(ctx, s.newStamp(now, false))
	return err
}

// newStamp commits the clock, and with it which state this leader has.
func (s *Scheduler) newStamp(now int64, takeover bool) *fsm.Stamp {
	c := s.st.Counters()
	return &fsm.Stamp{Head: s.head(now), Takeover: takeover, Index: c.Index, Chain: c.Chain}
}

// Clock is the state of the leader's clock.
func (s *Scheduler) Clock() stamp.State { return s.stamp.State() }

// servingLocked is nil while calls are answered.
func (s *Scheduler) servingLocked() error {
	switch {
	case s.ended:
		return job.Errorf(job.CodeNotLeader, "ask any node; it knows the leader", "this node no longer leads")
	case !s.serving:
		if err := s.stamp.Refused(); err != nil {
			return err
		}
		return notReady("the leader is taking over")
	}
	return nil
}

func notReady(why string) error {
	return job.Errorf(job.CodeNotReady, "try again in a moment", "%s", why)
}

// Propose enters a command of the API into the log and waits for its reply. Workers that have runs in hand which it
// cancels are told.
func (s *Scheduler) Propose(ctx context.Context, cmd fsm.Command) (*fsm.Reply, error) {
	if !s.begin() {
		return nil, job.Errorf(job.CodeNoLeader, "try again in a moment",
			"this node no longer leads; nothing was changed")
	}
	type answer struct {
		reply *fsm.Reply
		err   error
	}
	f := s.o.Proposer.Propose(cmd)
	ch := make(chan answer, 1)
	go func() {
		defer s.wg.Done()
		reply, err := f.Wait()
		if err == nil && len(reply.Canceling) > 0 {
			s.tellCanceling(reply.Canceling)
		}
		if c, ok := cmd.(*fsm.ClockReset); ok && err == nil {
			s.stamp.Reset(c.Head.Now)
			wait.Wake(s.wake)
		}
		if _, ok := cmd.(*fsm.Release); ok && err == nil {
			wait.Wake(s.wake)
		}
		ch <- answer{reply, err}
	}()
	select {
	case a := <-ch:
		switch {
		case a.err == nil:
			return a.reply, nil
		case errors.Is(a.err, fsm.ErrTooLarge):
			return nil, job.Errorf(job.CodeTooLarge, "split it", "%v", a.err)
		case errors.Is(a.err, ErrNotApplied):
			if known, ok := errors.AsType[*job.Error](a.err); ok {
				return nil, known // refused for a reason of its own
			}
			return nil, job.Errorf(job.CodeNoLeader, "try again in a moment", "nothing was changed: %v", a.err)
		}
		return nil, outcomeUnknown(a.err)
	case <-ctx.Done():
		return nil, outcomeUnknown(ctx.Err())
	}
}

func outcomeUnknown(err error) error {
	return job.Errorf(job.CodeOutcomeUnknown, "repeat it with the same Idempotency-Key",
		"it may or may not have been done: %v", err)
}

// tellCanceling tells the workers of runs that are to stop.
func (s *Scheduler) tellCanceling(list []fsm.Canceling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range list {
		if cl := s.claims[c.Fence]; cl != nil {
			s.cancelLocked(cl)
			continue
		}
		if s.inFlight > 0 {
			// The claim is committed, but its batch has not been handed to the sessions yet.
			s.early[c.Fence] = struct{}{}
		}
	}
}
