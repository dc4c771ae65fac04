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
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// Leader is the other side of the worker protocol: a function call on the leader's own node, HTTP elsewhere. Every call
// ends soon after its context does.
type Leader interface {
	Register(context.Context, job.Register) (job.Session, error)
	Poll(context.Context, job.Poll) (job.PollReply, error)
	Heartbeat(context.Context, job.Heartbeat) (job.HeartbeatReply, error)
	Report(context.Context, job.Report) (job.ReportReply, error)
}

// Runner carries out one attempt. It returns soon after ctx ends; context.Cause(ctx) says why it ended: ErrTimeout,
// ErrCanceled, ErrLeaseLost or ErrStopping. It fills in Outcome (succeeded or failed), Permanent, RetryAfter, Error and
// Output; the rest of the result is the loop's.
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
	// Namespace is the only one whose runs it takes; empty: those of all.
	Namespace string
	Tags      map[string]string

	Runners map[job.Type]Runner
	Groups  Groups
	Logger  *slog.Logger // nil: silent
	Clock   Clock        // nil: the machine's

	Pace faultpoint.Pace

	// OnAttempt sees every attempt that started, when it ends. It must not block; nil is fine.
	OnAttempt func(job.Assignment, job.Result)

	// MaxRefusals is after how many registrations in a row that the cluster refused for want of rights, each of its
	// groups, Run ends with that error. 0: never.
	MaxRefusals int

	// DrainTimeout is how long Run lets running attempts go on after its context ended. 0: 30 s.
	DrainTimeout time.Duration
}

const (
	defaultTTL      = 30 * time.Second
	defaultDrain    = 30 * time.Second
	registerTimeout = 10 * time.Second

	pollWait = 10 * time.Second
	// pollGrace is what a poll may take beyond its wait before it counts as lost.
	pollGrace = 5 * time.Second
	// fullPause is how long a worker without capacity waits for some before it polls for cancels only. Giving up that
	// poll when capacity frees costs an HTTP connection, so a worker that is busy with short attempts should not get
	// there.
	fullPause = 250 * time.Millisecond
	// pollFloor keeps a leader that answers at once, empty-handed or with what it said before, from being polled in a
	// tight loop.
	pollFloor = 50 * time.Millisecond

	reportTimeout    = 30 * time.Second
	maxReportResults = 1000
	maxReportBytes   = 256 << 10
	resultOverhead   = 192 // of a result on the wire, beside its strings
)

// Worker takes runs and reports results.
type Worker struct {
	o     Options
	types []job.Type
	log   *slog.Logger
	clock Clock

	move chan struct{} // a latch of size one: credit is to be taken back

	mu      sync.Mutex // guards set and groups too
	started bool
	set     *worker.Set[assigned] // every assignment received whose result is not acknowledged
	groups  []*group              // those that have waited longest for an assignment first
	refused error                 // why the cluster does not want this worker, for good
	kill    sync.Once
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
	case o.Groups == nil:
		return nil, errors.New("executor: a worker needs a leader to talk to")
	case len(o.Runners) == 0:
		return nil, errors.New("executor: a worker needs at least one runner")
	}
	w := &Worker{o: o, log: o.Logger, clock: o.Clock, move: make(chan struct{}, 1)}
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
	w.set = worker.New(worker.Options[assigned]{Mu: &w.mu, Log: w.log, Slots: o.Slots,
		Elapsed: w.clock.Elapsed, Now: w.clock.Now,
		Causes: worker.Causes{Timeout: ErrTimeout, Canceled: ErrCanceled, LeaseLost: ErrLeaseLost,
			Stopping: ErrStopping},
		Exited: "the runner ended its goroutine", RunOf: func(a assigned) string { return a.Run.String() },
		Run: w.attempt, Shape: w.ended, LeasesLocked: w.leasesLocked, FreedLocked: w.freedLocked,
		ReadyLocked: func(h *held) bool { return h.Work.group.session != nil }})
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
	return w.set.Busy, w.o.Slots
}

// Standing is what a worker has in hand, and who has given it that.
type Standing struct {
	Busy, Slots int
	Waiting     int             // results that no leader has acknowledged
	Registered  map[uint32]bool // by group: whether it has a session with the leader
}

// Standing says how the worker is.
func (w *Worker) Standing() Standing {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Standing{Busy: w.set.Busy, Slots: w.o.Slots, Registered: map[uint32]bool{}}
	for _, g := range w.groups {
		_, done := w.set.CountLocked(g.number)
		s.Waiting += done
		s.Registered[g.number] = g.session != nil
	}
	return s
}

// Run works until ctx ends, then drains: it takes no more work, returns what it has not started, waits for what runs
// (at most DrainTimeout, then it stops it) and hands in all results. Everything it started has ended when it returns.
// The error says that some results could not be handed in.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return errors.New("executor: a worker runs once")
	}
	w.started = true
	w.mu.Unlock()

	// The session outlives ctx: while it drains, a worker heartbeats, reports and moves to another leader as before.
	base := context.WithoutCancel(ctx)
	w.set.Base = base
	life, end := context.WithCancel(base)
	var loops sync.WaitGroup
	loops.Go(func() { w.follow(life) })
	loops.Go(func() { w.moveIdle(life) })
	loops.Go(func() { w.set.WatchLeases(life) })

	select {
	case <-ctx.Done():
	case <-w.set.Killed:
		end() // first: what the drain returns is not reported
	}
	w.drain()
	end()
	loops.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused != nil {
		return w.refused
	}
	if n := len(w.set.Held); n > 0 {
		return fmt.Errorf("executor: stopped with %d results that no leader acknowledged", n)
	}
	return nil
}

// Kill makes Run return as if the process had ended: attempts are stopped, and nothing is returned or reported. It is
// called once more without harm.
func (w *Worker) Kill() { w.kill.Do(func() { close(w.set.Killed) }) }

func (w *Worker) drain() {
	w.mu.Lock()
	w.set.CloseLocked() // before the poll is given up: the next one asks for no work
	for _, g := range w.groups {
		if g.session != nil && g.session.stopPoll != nil {
			g.session.stopPoll()
		}
		wait.Wake(g.room)
		wait.Wake(g.beat)
	}
	w.mu.Unlock()
	collected := func(g *group) bool { return g.incarnation == 0 || g.session != nil && g.session.drained }
	settled := func(g *group) bool { return g.session == nil || g.session.drained }
	w.set.Drain(w.o.DrainTimeout, func() bool { return w.everyLocked(collected) },
		func() bool { return w.everyLocked(settled) })
}
