package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/elapsed"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// Worker takes the runs of one queue and has a handler do them. The zero value of everything but Queue and Handler
// works.
//
// A handler's context ends when its run is canceled or takes longer than its job's timeout, when the worker cannot be
// sure any more that the run is its own, and when a stop takes too long; context.Cause says which. A handler should
// return soon after.
type Worker struct {
	Addrs []string // of nodes, any of them; default those of CARILLON_ADDR, or DefaultAddr
	Queue string
	// Namespace is the one of the queue; default that of CARILLON_NAMESPACE, or the usual one.
	Namespace string
	Handler   func(ctx context.Context, run *Run) error
	// Token is the text of an API token with the role worker, for a cluster that asks for one; default that of
	// CARILLON_TOKEN or in the file CARILLON_TOKEN_FILE.
	Token string

	Name         string            // shown with the runs; default: the host's name and the process id
	Concurrency  int               // runs at a time; default 1
	Tags         map[string]string // what jobs may select workers by
	DrainTimeout time.Duration     // how long Run lets handlers go on after its context ended; default 30 s
	Logger       *slog.Logger      // default: silent
	HTTPClient   *http.Client      // for TLS; it must not limit the time of a request below a minute
	// Clock is what leases are counted by; default: the time since the start, with that in which the machine was
	// suspended.
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
	ErrTimeout   = errors.New("the run took longer than its timeout")
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

// RetryAfter marks an error of a handler: the next attempt comes no sooner than this, up to the job's retry.cap or an
// hour, whichever is longer. The job's own rule may make it later.
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
	pauseLimit  = 10 * time.Second
	// collectPause is between two polls that collect what was on its way to a worker that stops; twice as much at most.
	collectPause = 100 * time.Millisecond
	defaultLease = 30 * time.Second
)

// Run works until ctx ends, then drains: it takes no more runs, waits for its handlers (at most DrainTimeout, then
// their contexts end) and hands in all results. The error says what is wrong with the worker as described, that the
// cluster goes on refusing its token, as one that was revoked, or that results could not be handed in.
func (w Worker) Run(ctx context.Context) error {
	p, err := w.prepare()
	if err != nil {
		return err
	}
	return p.run(ctx)
}

func (w Worker) prepare() (*puller, error) {
	w.Namespace = cmp.Or(w.Namespace, os.Getenv("CARILLON_NAMESPACE"))
	switch {
	case !job.QueueName(w.Queue):
		return nil, job.Invalid("Queue", "use letters, digits, - _ .", "%q is not the name of a queue", w.Queue)
	case w.Namespace != "" && !job.NamespaceName(w.Namespace):
		return nil, job.Invalid("Namespace", "use up to 63 of a-z, 0-9 and -", "%q is not the name of a namespace",
			w.Namespace)
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
	if w.Token == "" {
		w.Token = os.Getenv("CARILLON_TOKEN")
		if file := os.Getenv("CARILLON_TOKEN_FILE"); file != "" && w.Token == "" {
			t, err := keys.ReadTokenFile(keys.APIToken, file)
			if err != nil {
				return nil, err
			}
			w.Token = t.Text()
		}
	}
	if w.Clock == nil {
		w.Clock = elapsed.New().Elapsed
	}
	p := &puller{w: w, log: w.Logger.With("worker", w.Name, "queue", w.Queue), clock: w.Clock, lease: defaultLease,
		leased: make(chan struct{}, 1)}
	p.set = worker.New(worker.Options[Run]{Mu: &p.mu, Log: p.log, Slots: w.Concurrency, Elapsed: w.Clock, Now: time.Now,
		Causes: worker.Causes{Timeout: ErrTimeout, Canceled: ErrCanceled, LeaseLost: ErrLeaseLost,
			Stopping: ErrStopping},
		Exited: "the handler ended its goroutine", RunOf: func(r Run) string { return r.RunID },
		Run: p.handle, Shape: ended, LeasesLocked: p.leasesLocked})
	opts := []Option{WithAttempts(1), WithTimeout(0), WithUserAgent("carillon-worker"),
		WithNamespace(w.Namespace)} // each call has its own limit
	if w.HTTPClient != nil {
		opts = append(opts, WithHTTPClient(w.HTTPClient))
	}
	if w.Token != "" {
		opts = append(opts, WithToken(w.Token))
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
	w      Worker
	log    *slog.Logger
	nodes  []*Client
	clock  func() time.Duration // see package elapsed
	leased chan struct{}        // a latch of size one: the lease is another one

	mu      sync.Mutex       // guards set too
	at      int              // the node that answered last
	abandon func()           // gives up the poll that is on its way
	set     *worker.Set[Run] // received, and the result not acknowledged
	session string
	lease   time.Duration
	// reported are the groups whose results are handed in, by reportOf: one, as long as its queue stays in its group.
	reported map[uint32]bool
	reportOf func(group uint32)
	// collected: it stops, and a poll brought nothing.
	collected bool
}

// pulled is one run of the set.
type pulled = worker.Attempt[Run]

// keyOf names a run of the set: the group is that of its job.
func keyOf(runID string, fence uint64) worker.Key {
	run, err := job.ParseRunKey(runID)
	if err != nil {
		return worker.Key{Fence: fence}
	}
	return worker.Key{Group: uint32(run.Job.Group()), Fence: fence}
}

func refOf(r job.PullRun) job.PullRef {
	return job.PullRef{Claim: r.Claim, RunID: r.RunID, Fence: r.Fence}
}

func (p *puller) run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	p.set.Base = base
	life, end := context.WithCancel(base)
	defer end()
	var loops sync.WaitGroup
	loops.Go(func() { p.heartbeats(life) })
	p.reported = map[uint32]bool{}
	p.reportOf = func(group uint32) { loops.Go(func() { p.set.Report(life, group, p.reports()) }) }
	loops.Go(func() { p.set.WatchLeases(life) })

	refusal := p.polls(ctx) // until ctx ends
	if refusal != nil {
		end() // nothing that it still does could be reported
		loops.Wait()
		close(p.set.Killed)
		p.set.Drain(p.w.DrainTimeout, func() bool { return true }, func() bool { return true })
		p.close()
		return refusal
	}
	p.log.Info("draining")
	loops.Go(func() { p.collect(life) })
	collected := func() bool { return p.collected }
	p.set.Drain(p.w.DrainTimeout, collected, collected)
	end()
	loops.Wait()
	p.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.set.Held); n > 0 {
		return job.Errorf(job.CodeOutcomeUnknown, "", "stopped with %d results that no node acknowledged", n)
	}
	return nil
}

func (p *puller) close() {
	for _, c := range p.nodes {
		c.http.CloseIdleConnections()
	}
}

// take begins with runs that were delivered by the answer to a call that was sent then, unless r is their result
// already.
func (p *puller) take(runs []job.PullRun, sent time.Duration, r job.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, run := range runs {
		lease, key := worker.Grant(sent, p.lease), keyOf(run.RunID, run.Fence)
		if !p.reported[key.Group] {
			p.reported[key.Group] = true
			p.reportOf(key.Group)
		}
		p.set.AddLocked(&pulled{Key: key, Timeout: time.Duration(run.Timeout), Lease: &lease,
			Work: Run{PullRun: run}}, r)
	}
	p.set.StartLocked()
}

// giveBack returns runs that were not started.
func (p *puller) giveBack(runs ...job.PullRun) {
	p.take(runs, 0, job.Result{Outcome: job.OutcomeReturned})
}

// handle has the handler do one run.
func (p *puller) handle(ctx context.Context, a *pulled) job.Result {
	err := p.w.Handler(ctx, &a.Work)
	if err == nil {
		return job.Result{Outcome: job.OutcomeSucceeded}
	}
	r := job.Result{Outcome: job.OutcomeFailed, Error: err.Error(), Permanent: errors.As(err, new(permanentError))}
	if r.Error == "" {
		r.Error = "the handler failed without saying why"
	}
	if after := (retryError{}); errors.As(err, &after) {
		r.RetryAfter = job.Duration(max(after.after, 0))
	}
	return r
}

// ended makes a result fit for a report: that of a run which was stopped says why.
func ended(ctx context.Context, a *pulled, r job.Result) job.Result {
	if cause := context.Cause(ctx); cause != nil && r.Error != "" && !strings.Contains(r.Error, cause.Error()) {
		r.Error = cause.Error() + ": " + r.Error
	}
	r.Error = r.Error[:min(len(r.Error), job.MaxErrorBytes)]
	r.Output = a.Work.Output[max(0, len(a.Work.Output)-job.MaxOutputBytes):]
	return r
}
