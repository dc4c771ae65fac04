package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/job"
)

// Leader is the other side of the worker protocol: a function call on the leader's own node, HTTP elsewhere. Every call ends soon
// after its context does.
type Leader interface {
	Register(context.Context, job.Register) (job.Session, error)
	Poll(context.Context, job.Poll) (job.PollReply, error)
	Heartbeat(context.Context, job.Heartbeat) (job.HeartbeatReply, error)
	Report(context.Context, job.Report) (job.ReportReply, error)
}

// Runner carries out one attempt. It returns soon after ctx ends; context.Cause(ctx) says why it ended: ErrTimeout, ErrCanceled,
// ErrLeaseLost or ErrStopping. It fills in Outcome (succeeded or failed), Permanent, RetryAfter, Error and Output; the rest of
// the result is the loop's.
type Runner interface {
	Run(ctx context.Context, a job.Assignment) job.Result
}

// Why an attempt's context ended.
var (
	ErrTimeout   = errors.New("timed out")
	ErrCanceled  = errors.New("canceled")
	ErrLeaseLost = errors.New("lease lost")
	ErrStopping  = errors.New("worker stopping")
)

// Options describe a worker.
type Options struct {
	Name    string // unique in the cluster
	Secret  string // only one living process at a time has it; see SealedSecret
	Where   string // host, process and directory, for those who look for it; see Whereabouts
	Version string

	Slots    int // attempts at a time
	Prefetch int // assignments held beyond that, claimed but not started
	Tags     map[string]string

	Runners map[job.Type]Runner
	Leader  Leader
	Logger  *slog.Logger // nil: silent
	Clock   Clock        // nil: the machine's

	Pace faultpoint.Pace

	// OnAttempt sees every attempt that started, when it ends. It must not block; nil is fine.
	OnAttempt func(job.Assignment, job.Result)

	// DrainTimeout is how long Run lets running attempts go on after its context ended. 0: 30 s.
	DrainTimeout time.Duration
}

const (
	defaultTTL   = 30 * time.Second
	defaultDrain = 30 * time.Second
	// flushTimeout bounds how long a drained worker goes on trying to hand in its results. What it cannot hand in the leader
	// takes back when the lease ends.
	flushTimeout    = 10 * time.Second
	registerTimeout = 10 * time.Second
	// collectTimeout bounds how long a drained worker tries to learn what else it was given. It is longer than a change of leaders takes:
	// what the old one claimed for this worker and did not get to tell, only the next one knows.
	collectTimeout  = 3 * time.Second
	lastPollTimeout = time.Second

	pollWait = 10 * time.Second
	// pollGrace is what a poll may take beyond its wait before it counts as lost.
	pollGrace = 5 * time.Second
	// fullPause is how long a worker without capacity waits for some before it polls for cancels only. Giving up that poll when
	// capacity frees costs an HTTP connection, so a worker that is busy with short attempts should not get there.
	fullPause = 250 * time.Millisecond
	// pollFloor keeps a leader that answers at once, empty-handed or with what it said before, from being polled in a tight loop.
	pollFloor = 50 * time.Millisecond

	reportTimeout    = 30 * time.Second
	maxReportResults = 1000
	maxReportBytes   = 256 << 10
	resultOverhead   = 192 // of a result on the wire, beside its strings

	// leaseTick bounds every sleep that waits for the lease to end: timers stand still while the machine is suspended.
	leaseTick = time.Second
)

// Worker takes runs and reports results.
type Worker struct {
	o     Options
	types []job.Type
	log   *slog.Logger
	clock Clock

	// Each is a latch of size one: "look again".
	pollWake, beatWake, reportWake, drainWake chan struct{}

	killed chan struct{} // closed by Kill

	mu       sync.Mutex
	started  bool
	draining bool
	base     context.Context // what attempts' contexts derive from

	set     map[uint64]*held // every assignment received whose result is not acknowledged, by fence
	queue   []*held          // of those, not started, oldest first
	pending []*held          // of those, with a result, in the order to report them
	running int
	wg      sync.WaitGroup // attempts

	session      *session // nil while not registered
	incarnation  uint64
	term         uint64
	registration uint64 // how many were sent
	leased       bool
	leaseEnd     time.Duration // on Clock.Elapsed; has a meaning while leased
}

// New makes a worker; Run starts it.
func New(o Options) (*Worker, error) {
	switch {
	case o.Name == "":
		return nil, errors.New("executor: a worker needs a name")
	case o.Slots < 1:
		return nil, fmt.Errorf("executor: %d slots: a worker needs at least one", o.Slots)
	case o.Prefetch < 0:
		return nil, fmt.Errorf("executor: a prefetch of %d", o.Prefetch)
	case o.Leader == nil:
		return nil, errors.New("executor: a worker needs a leader to talk to")
	case len(o.Runners) == 0:
		return nil, errors.New("executor: a worker needs at least one runner")
	}
	w := &Worker{o: o, log: o.Logger, clock: o.Clock, set: map[uint64]*held{},
		pollWake: make(chan struct{}, 1), beatWake: make(chan struct{}, 1),
		reportWake: make(chan struct{}, 1), drainWake: make(chan struct{}, 1), killed: make(chan struct{})}
	for t, r := range o.Runners {
		if r == nil {
			return nil, fmt.Errorf("executor: the runner for %s is nil", t)
		}
		w.types = append(w.types, t)
	}
	slices.Sort(w.types)
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	w.log = w.log.With("worker", o.Name)
	if w.clock == nil {
		w.clock = NewClock()
	}
	if w.o.DrainTimeout <= 0 {
		w.o.DrainTimeout = defaultDrain
	}
	return w, nil
}

// pollWait is how long a poll waits for work. A node makes a minute of everything longer, at its own pace.
func (w *Worker) pollWait() time.Duration {
	return min(w.o.Pace.Of(pollWait), 10*time.Minute)
}

// Stats says how many attempts run, and how many may.
func (w *Worker) Stats() (busy, slots int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running, w.o.Slots
}

// Run works until ctx ends, then drains: it takes no more work, returns what it has not started, waits for what runs (at most
// DrainTimeout, then it stops it) and hands in all results. Everything it started has ended when it returns. The error says that
// some results could not be handed in.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return errors.New("executor: a worker runs once")
	}
	w.started = true
	w.base = context.WithoutCancel(ctx)
	w.mu.Unlock()

	// The session outlives ctx: while it drains, a worker heartbeats, reports and moves to another leader as before.
	life, end := context.WithCancel(w.base)
	var loops sync.WaitGroup
	loops.Go(func() { w.sessions(life) })
	loops.Go(func() { w.watchLease(life) })

	select {
	case <-ctx.Done():
		w.drain()
		end()
	case <-w.killed:
		end()
		w.drop()
	}
	loops.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.set); n > 0 {
		return fmt.Errorf("executor: stopped with %d results that no leader acknowledged", n)
	}
	return nil
}

// Kill makes Run return as if the process had ended: attempts are stopped, and nothing is returned or reported. It is called once.
func (w *Worker) Kill() { close(w.killed) }

// drop stops everything that runs and forgets what is held.
func (w *Worker) drop() {
	w.mu.Lock()
	w.draining = true
	w.queue = nil
	w.stopAllLocked(ErrStopping)
	w.mu.Unlock()
	w.wg.Wait()
}

func (w *Worker) drain() {
	w.mu.Lock()
	w.draining = true
	w.returnQueueLocked()
	if w.session != nil && w.session.stopPoll != nil {
		w.session.stopPoll()
	}
	w.mu.Unlock()
	kick(w.pollWake)
	kick(w.beatWake)

	idle := func() bool { return w.running == 0 }
	if !w.await(w.o.DrainTimeout, idle) {
		w.mu.Lock()
		w.log.Warn("stopping attempts that did not end in time", "running", w.running, "after", w.o.DrainTimeout)
		w.stopAllLocked(ErrStopping)
		w.mu.Unlock()
	}
	w.wg.Wait()
	// A claim that it does not know of would stay with it until its lease ends, and be lost with at_most_once though it was never started.
	all := w.await(collectTimeout, func() bool { return w.incarnation == 0 || w.session != nil && w.session.drained })
	w.await(flushTimeout-collectTimeout, func() bool { return len(w.set) == 0 && (!all || w.session == nil || w.session.drained) })
}

// await waits until the condition, looked at under the lock, holds; it says false if that took too long.
func (w *Worker) await(limit time.Duration, cond func() bool) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		w.mu.Lock()
		ok := cond()
		w.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-w.drainWake:
		case <-t.C:
			return false
		case <-w.killed:
			return false
		}
	}
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
