package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/elapsed"
	"github.com/carillon-scheduler/carillon/job"
)

// Worker takes the runs of one queue and has a handler do them. The zero value of everything but Queue and Handler works.
//
// A handler's context ends when its run is canceled or takes longer than its job's timeout, when the worker cannot be sure any more
// that the run is its own, and when a stop takes too long; context.Cause says which. A handler should return soon after.
type Worker struct {
	Addrs   []string // of nodes, any of them; default those of CARILLON_ADDR, or DefaultAddr
	Queue   string
	Handler func(ctx context.Context, run *Run) error

	Name         string            // shown with the runs; default: the host's name and the process id
	Concurrency  int               // runs at a time; default 1
	Tags         map[string]string // what jobs may select workers by
	DrainTimeout time.Duration     // how long Run lets handlers go on after its context ended; default 30 s
	Logger       *slog.Logger      // default: silent
	HTTPClient   *http.Client      // for TLS; it must not limit the time of a request below a minute
	// Clock is what leases are counted by; default: the time since the start, with that in which the machine was suspended.
	Clock func() time.Duration
}

// Run is a run in the hands of a handler.
type Run struct {
	job.PullRun
	// Output is kept with the result: the last 4 KiB of it.
	Output string
}

// Why a handler's context ended.
var (
	ErrCanceled  = errors.New("the run was canceled")
	ErrTimeout   = errors.New("the run takes longer than its timeout")
	ErrLeaseLost = errors.New("the run may have been given to another worker")
	ErrStopping  = errors.New("the worker is stopping")
)

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error of a handler: trying again is useless, and the run goes to the dead letters at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

type retryError struct {
	error
	after time.Duration
}

func (e retryError) Unwrap() error { return e.error }

// RetryAfter marks an error of a handler: the next attempt comes no sooner than this. The job's own rule may make it later.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return retryError{err, d}
}

const (
	workerPollWait  = 20 * time.Second
	workerPollGrace = 5 * time.Second
	reportLimit     = 30 * time.Second
	// reportBytes and reportItems bound one report; a node takes 1 MiB.
	reportBytes = 512 << 10
	reportItems = 500
	pauseFirst  = 100 * time.Millisecond
	pauseLimit  = 10 * time.Second
	// flushTimeout bounds how long a worker that stops goes on trying to hand in its results.
	flushTimeout = 10 * time.Second
	leaseTick    = time.Second
	// lastPollLimit bounds one poll that collects what was on its way to a worker that stops, and collectTimeout all of them. That is longer
	// than a change of leaders takes: what the old one claimed for this worker and did not get to tell, only the next one knows.
	lastPollLimit  = time.Second
	collectTimeout = 3 * time.Second
	defaultLease   = 30 * time.Second
)

// Run works until ctx ends, then drains: it takes no more runs, waits for its handlers (at most DrainTimeout, then their contexts end)
// and hands in all results. The error says what is wrong with the worker as described, or that results could not be handed in.
func (w Worker) Run(ctx context.Context) error {
	p, err := w.prepare()
	if err != nil {
		return err
	}
	return p.run(ctx)
}

func (w Worker) prepare() (*puller, error) {
	switch {
	case !job.QueueName(w.Queue):
		return nil, job.Invalid("Queue", "use letters, digits, - _ .", "%q is not the name of a queue", w.Queue)
	case w.Handler == nil:
		return nil, job.Invalid("Handler", "", "a worker needs a handler")
	case w.Concurrency < 0 || w.Concurrency > job.MaxPullRuns:
		return nil, job.Invalid("Concurrency", "", "%d is not between 1 and %d", w.Concurrency, job.MaxPullRuns)
	}
	if w.Concurrency == 0 {
		w.Concurrency = 1
	}
	if w.DrainTimeout <= 0 {
		w.DrainTimeout = 30 * time.Second
	}
	if w.Logger == nil {
		w.Logger = slog.New(slog.DiscardHandler)
	}
	if w.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		w.Name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if len(w.Addrs) == 0 {
		w.Addrs = strings.Split(os.Getenv("CARILLON_ADDR"), ",")
	}
	if w.Clock == nil {
		w.Clock = elapsed.New().Elapsed
	}
	p := &puller{w: w, log: w.Logger.With("worker", w.Name, "queue", w.Queue), clock: w.Clock, lease: defaultLease,
		set: map[uint64]*pulledRun{}, free: make(chan struct{}, 1), results: make(chan struct{}, 1), leased: make(chan struct{}, 1)}
	opts := []Option{WithAttempts(1), WithTimeout(0), WithUserAgent("carillon-worker")} // every call has a limit of its own
	if w.HTTPClient != nil {
		opts = append(opts, WithHTTPClient(w.HTTPClient))
	}
	for _, addr := range w.Addrs {
		c := New(addr, opts...)
		if c.baseErr != nil {
			return nil, c.baseErr
		}
		p.nodes = append(p.nodes, c)
	}
	return p, nil
}

// puller is a Worker at work.
type puller struct {
	w     Worker
	log   *slog.Logger
	nodes []*Client
	clock func() time.Duration // see package elapsed

	// Each is a latch of size one: "look again".
	free, results, leased chan struct{}
	handlers              sync.WaitGroup

	mu      sync.Mutex
	at      int    // the node that answered last
	abandon func() // gives up the poll that is on its way
	session string
	lease   time.Duration
	set     map[uint64]*pulledRun // received, and the result not acknowledged; by fence
	pending []*pulledRun          // of those, with a result, in the order to report them
	running int
	// collected: it stops, and a poll brought nothing.
	collected bool
}

// pulledRun is one run of the set.
type pulledRun struct {
	run      Run
	stop     context.CancelCauseFunc
	leaseEnd time.Duration // on the clock
	done     bool
	failed   bool
	result   job.PullResult
}

func (h *pulledRun) ref() job.PullRef {
	return job.PullRef{Claim: h.run.Claim, RunID: h.run.RunID, Fence: h.run.Fence}
}

func (p *puller) run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	life, end := context.WithCancel(base)
	defer end()
	var loops sync.WaitGroup
	loops.Go(func() { p.heartbeats(life) })
	loops.Go(func() { p.reports(life) })
	loops.Go(func() { p.watchLeases(life) })

	p.polls(ctx, base) // until ctx ends
	p.log.Info("draining")
	loops.Go(func() { p.collect(life) })
	if !p.await(p.w.DrainTimeout, func() bool { return p.running == 0 }) {
		p.log.Warn("stopping handlers that did not end in time", "after", p.w.DrainTimeout)
		p.stopAll(ErrStopping)
	}
	p.handlers.Wait()
	p.await(collectTimeout, func() bool { return p.collected })
	p.await(flushTimeout-collectTimeout, func() bool { return len(p.set) == 0 })
	end()
	loops.Wait()
	for _, c := range p.nodes {
		c.http.CloseIdleConnections()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.set); n > 0 {
		return job.Errorf(job.CodeOutcomeUnknown, "", "stopped with %d results that no node acknowledged", n)
	}
	return nil
}

// start begins with a run that was delivered; one that is here already was delivered twice.
func (p *puller) start(base context.Context, run job.PullRun, sent time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set[run.Fence] != nil {
		return
	}
	ctx, stop := context.WithCancelCause(base)
	h := &pulledRun{run: Run{PullRun: run}, stop: stop, leaseEnd: sent + leaseShare(p.lease)}
	p.set[run.Fence] = h
	p.running++
	p.handlers.Go(func() { p.attempt(ctx, h) })
}

// attempt has the handler do one run. A handler that panics or ends its goroutine has failed.
func (p *puller) attempt(ctx context.Context, h *pulledRun) {
	defer h.stop(nil)
	if d := time.Duration(h.run.Timeout); d > 0 {
		var release context.CancelFunc
		ctx, release = context.WithTimeoutCause(ctx, d, ErrTimeout)
		defer release()
	}
	err := errors.New("the handler ended its goroutine")
	defer func() {
		if r := recover(); r != nil {
			p.log.Error("the handler panicked", "run", h.run.RunID, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
		if cause := context.Cause(ctx); err != nil && ctx.Err() != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		p.ended(h, err)
	}()
	p.mu.Lock()
	ours := p.clock() < h.leaseEnd // immediately before the start: the machine may have been suspended since
	p.mu.Unlock()
	if !ours {
		err = errUnstarted
		return
	}
	err = p.w.Handler(ctx, &h.run)
}

var errUnstarted = errors.New("not started")

// ended puts a result in line.
func (p *puller) ended(h *pulledRun, err error) {
	r := job.PullResult{PullRef: h.ref()}
	var after retryError
	switch {
	case err == errUnstarted: //nolint:errorlint // it is never wrapped
		r.Unstarted = true
	case err != nil:
		r.Error = cut(err.Error(), job.MaxErrorBytes)
		if r.Error == "" {
			r.Error = "the handler failed without saying why"
		}
		r.Permanent = errors.As(err, new(permanentError))
		if errors.As(err, &after) {
			r.Delay = job.Duration(min(max(after.after, 0), 24*time.Hour))
		}
		fallthrough
	default:
		r.Output = h.run.Output[max(0, len(h.run.Output)-job.MaxOutputBytes):]
	}
	p.mu.Lock()
	h.done, h.failed, h.result = true, err != nil, r
	p.running--
	p.pending = append(p.pending, h)
	p.mu.Unlock()
	kick(p.results)
	kick(p.free)
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}

func (p *puller) stopAll(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.set {
		h.stop(cause)
	}
}

// await waits until the condition, looked at under the lock, holds; it says false if that took too long.
func (p *puller) await(limit time.Duration, cond func() bool) bool {
	end := time.After(limit)
	for {
		p.mu.Lock()
		ok := cond()
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-p.free:
		case <-end:
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
