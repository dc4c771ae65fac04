// Package worker is what every worker does: it polls the leaders of its groups for runs, carries out as many at a time
// as it has slots, extends the leases of what it holds, gives up what has none any more, reports results until they are
// acknowledged, and drains. client.Worker adds handlers to that, package executor the runners of nodes and of
// `carillon worker`. docs/worker-protocol.md describes what is said.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/elapsed"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// Leader is the other side: a function call on the leader's own node, HTTP elsewhere. Every call ends soon after its
// context does.
type Leader interface {
	Poll(context.Context, job.Poll) (job.PollReply, error)
	Heartbeat(context.Context, job.Heartbeat) (job.HeartbeatReply, error)
	Report(context.Context, job.Report) (job.ReportReply, error)
	Output(context.Context, job.Output) (job.OutputReply, error)
}

// Why the context of an attempt ended.
var (
	ErrTimeout   = errors.New("timed out")
	ErrCanceled  = errors.New("canceled")
	ErrLeaseLost = errors.New("lease lost")
	ErrStopping  = errors.New("worker stopping")
)

// Clock is what a worker stamps results with and measures leases by. Waiting is done with package time, so that
// testing/synctest works.
type Clock interface {
	Now() time.Time
	// Elapsed is how long the clock has existed, on the larger of boot time and monotonic time. Boot time goes on while
	// the machine is suspended and monotonic time does not; the leader, on another machine, was not suspended.
	Elapsed() time.Duration
}

type realClock struct{ elapsed.Timer }

// NewClock is the machine's clock.
func NewClock() Clock { return realClock{elapsed.New()} }

func (realClock) Now() time.Time { return time.Now() }

// Options describe a worker.
type Options struct {
	Name    string
	Secret  string // only one living process at a time has it; empty: the name is a label that others may have too
	Where   string // host, process and directory, for those who look for it
	Version string

	Slots int // attempts at a time
	// Namespace is the only one whose runs it takes; empty: those of all.
	Namespace string
	Types     []job.Type // empty: those of the queue that the leader is asked for
	Tags      map[string]string

	Groups Groups
	Logger *slog.Logger // nil: silent
	Clock  Clock        // nil: the machine's
	Pace   faultpoint.Pace

	// Do carries out one attempt and returns soon after ctx ends; context.Cause(ctx) says why that did.
	Do func(ctx context.Context, a job.Assignment) job.Result
	// Ended sees every attempt that started, when it ends, Opened hears of sessions. Neither may block; nil is fine.
	Ended  func(job.Assignment, job.Result)
	Opened func(group uint32)

	// MaxRefusals is after how many polls in a row that the cluster refused for want of rights, each of its groups, Run
	// ends with that error. 0: never.
	MaxRefusals int
	// DrainTimeout is how long Run lets running attempts go on after its context ended. 0: 30 s.
	DrainTimeout time.Duration
}

// MaxRefusals is how often a worker asks a cluster that does not know its token, or no longer does.
const MaxRefusals = 10

const (
	defaultLease = 30 * time.Second
	defaultDrain = 30 * time.Second

	pollWait = 10 * time.Second
	// pollGrace is what a poll may take beyond its wait before it counts as lost.
	pollGrace = 5 * time.Second
	// hold is how long an offer stands after the answer to a poll, so that runs are claimed for the next one already.
	hold = 5 * time.Second
	// fullPause is how long a worker without capacity waits for some before it polls for stops only. Giving up that
	// poll when capacity frees costs a connection, so a worker that is busy with short attempts should not get there.
	fullPause = 250 * time.Millisecond
	// pollFloor keeps a leader that answers at once and empty-handed from being polled in a tight loop.
	pollFloor = 50 * time.Millisecond

	reportTimeout    = 30 * time.Second
	maxReportResults = job.MaxItems
	maxReportBytes   = 256 << 10
	resultOverhead   = 192 // of a result on the wire, beside its strings

	// Beats is how many heartbeats are sent in a lease. leaseTick bounds every sleep that waits for one to end: timers
	// stand still while the machine is suspended.
	Beats     = 5
	leaseTick = time.Second
)

// Worker takes runs and reports results.
type Worker struct {
	o     Options
	log   *slog.Logger
	clock Clock

	changed chan struct{} // a latch of size one, for the drain
	killed  chan struct{} // closed: nothing is returned or reported any more
	kill    sync.Once

	mu       sync.Mutex
	started  bool
	draining bool
	secret   string
	base     context.Context // what attempts' contexts derive from
	busy     int             // how many run
	attempts sync.WaitGroup  // goroutines of attempts
	groups   []*group        // those that have waited longest for an assignment first
	refused  error           // why the cluster does not want this worker, for good
}

// New makes a worker; Run starts it.
func New(o Options) (*Worker, error) {
	switch {
	case o.Name == "":
		return nil, errors.New("worker: it needs a name")
	case o.Slots < 1:
		return nil, fmt.Errorf("worker: %d slots: it needs at least one", o.Slots)
	case o.Groups.Leader == nil || o.Do == nil:
		return nil, errors.New("worker: it needs a leader to talk to, and something to do")
	}
	w := &Worker{o: o, log: o.Logger, clock: o.Clock, secret: o.Secret, changed: make(chan struct{}, 1),
		killed: make(chan struct{})}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	w.log = w.log.With("worker", o.Name)
	if w.clock == nil {
		w.clock = NewClock()
	}
	w.o.DrainTimeout = cmp.Or(max(w.o.DrainTimeout, 0), defaultDrain)
	return w, nil
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
	s := Standing{Busy: w.busy, Slots: w.o.Slots, Registered: map[uint32]bool{}}
	for _, g := range w.groups {
		s.Waiting += len(g.pending)
		s.Registered[g.number] = g.serving
	}
	return s
}

// Run works until ctx ends, then drains: it takes no more work, returns what it has not started, waits for what runs
// (at most DrainTimeout, then it stops it) and hands in all results. Everything it started has ended when it returns.
// The error says that the cluster refuses it, or that some results could not be handed in.
func (w *Worker) Run(ctx context.Context) error {
	// The sessions outlive ctx: while it drains, a worker heartbeats, reports and moves to other leaders as before.
	base := context.WithoutCancel(ctx)
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return errors.New("worker: it runs once")
	}
	w.started, w.base = true, base
	w.mu.Unlock()
	life, end := context.WithCancel(base)
	var loops sync.WaitGroup
	loops.Go(func() { w.follow(life) })
	loops.Go(func() { w.watchLeases(life) })
	select {
	case <-ctx.Done():
	case <-w.killed:
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
	if n := w.heldLocked(); n > 0 {
		return job.Errorf(job.CodeOutcomeUnknown, "", "stopped with %d results that no leader acknowledged", n)
	}
	return nil
}

// Kill makes Run return as if the process had ended: attempts are stopped, and nothing is returned or reported. It is
// called once more without harm.
func (w *Worker) Kill() { w.kill.Do(func() { close(w.killed) }) }

const (
	// flushTimeout bounds how long a drained worker goes on trying to hand in its results. What it cannot hand in the
	// leader takes back when the lease ends.
	flushTimeout = 10 * time.Second
	// collectTimeout bounds how long a drained worker without results tries to learn what else it was given. It is
	// longer than a change of leaders takes: what the old one claimed for this worker and did not get to tell, only the
	// next one knows.
	collectTimeout = 3 * time.Second
	// lastPollTimeout bounds one poll of those that do that.
	lastPollTimeout = time.Second
)

// drain takes no more work, waits for what runs, stops it after the timeout, and waits until all results are
// acknowledged. A claim that the worker does not know of would stay with it until its lease ends, and be lost with
// at_most_once though it was never started: so it polls until each group has nothing more for it.
func (w *Worker) drain() {
	w.mu.Lock()
	w.draining = true // before the polls are given up: the next ones ask for no work
	for _, g := range w.groups {
		g.giveUpPoll()
		wait.Wake(g.room)
	}
	w.mu.Unlock()
	until := time.Now().Add(w.o.DrainTimeout)
	ended := w.await(func() (bool, time.Time) { return w.busy == 0, until })
	if !ended {
		w.mu.Lock()
		w.log.Warn("stopping attempts that did not end in time", "running", w.busy, "after", w.o.DrainTimeout)
		for _, g := range w.groups {
			for _, a := range g.held {
				if a.state == running {
					a.stop(ErrStopping)
				}
			}
		}
		w.mu.Unlock()
	}
	w.attempts.Wait()
	heard := time.Now() // that there is more: a leader whose disk is slow says so for as long as that lasts
	w.await(func() (bool, time.Time) {
		limit := collectTimeout
		if w.heldLocked() > 0 {
			limit = flushTimeout
		}
		all := true
		for _, g := range w.groups {
			if all = all && (g.session == "" || g.collected); g.expects.After(heard) && g.expects.Before(until) {
				heard = g.expects
			}
		}
		return all && w.heldLocked() == 0, heard.Add(limit)
	})
}

// await waits until the condition, looked at under the lock, holds; it says false if that takes longer than the
// condition says, or once the worker is killed.
func (w *Worker) await(cond func() (done bool, until time.Time)) bool {
	for {
		w.mu.Lock()
		done, until := cond()
		w.mu.Unlock()
		left := time.Until(until)
		if done || left <= 0 {
			return done
		}
		t := time.NewTimer(left)
		select {
		case <-w.changed:
		case <-t.C:
		case <-w.killed:
			t.Stop()
			return false
		}
		t.Stop()
	}
}

// heldLocked is how many attempts are held, by all groups.
func (w *Worker) heldLocked() (n int) {
	for _, g := range w.groups {
		n += len(g.held)
	}
	return n
}
