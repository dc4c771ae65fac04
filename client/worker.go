package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

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
	HTTPClient   *http.Client      // for TLS; it must not limit the time of a request
	// Clock says what time it is, and how long the worker has run, with the time in which the machine was suspended;
	// default: the machine's.
	Clock interface {
		Now() time.Time
		Elapsed() time.Duration
	}
}

// Run is a run in the hands of a handler.
type Run struct {
	RunID       string
	JobID       job.ID
	JobName     string
	Namespace   string
	Queue       string
	ScheduledAt job.Instant
	Attempt     int
	Fence       uint64 // grows with every claim
	Key         string // the idempotency key, the same for all attempts
	Data        json.RawMessage
	Timeout     job.Duration
	Delivery    string
	Traceparent string
	// Output is kept with the result: the last 4 KiB of it.
	Output string
}

// Why a handler's context ended.
var (
	ErrCanceled  = worker.ErrCanceled
	ErrTimeout   = worker.ErrTimeout
	ErrLeaseLost = worker.ErrLeaseLost
	ErrStopping  = worker.ErrStopping
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

// Run works until ctx ends, then drains: it takes no more runs, waits for its handlers (at most DrainTimeout, then
// their contexts end) and hands in all results. The error says what is wrong with the worker as described, that the
// cluster goes on refusing its token, as one that was revoked, or that results could not be handed in.
func (w Worker) Run(ctx context.Context) error {
	leader, err := w.leader()
	if err != nil {
		return err
	}
	defer leader.Close()
	if w.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		w.Name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	o := worker.Options{Name: w.Name, Slots: max(w.Concurrency, 1), Tags: w.Tags, DrainTimeout: w.DrainTimeout,
		Groups: worker.OneGroup(leader), Clock: w.Clock, Do: w.do, MaxRefusals: worker.MaxRefusals}
	if w.Logger != nil {
		o.Logger = w.Logger.With("queue", w.Queue)
	}
	x, err := worker.New(o)
	if err != nil {
		return err
	}
	return x.Run(ctx)
}

// leader checks what the worker is to do, and finds the cluster.
func (w *Worker) leader() (*Leader, error) {
	w.Namespace = cmp.Or(w.Namespace, os.Getenv("CARILLON_NAMESPACE"))
	switch {
	case !job.QueueName(w.Queue):
		return nil, job.Invalid("Queue", "use letters, digits, - _ .", "%q is not the name of a queue", w.Queue)
	case w.Namespace != "" && !job.NamespaceName(w.Namespace):
		return nil, job.Invalid("Namespace", "use up to 63 of a-z, 0-9 and -", "%q is not the name of a namespace",
			w.Namespace)
	case w.Handler == nil:
		return nil, job.Invalid("Handler", "", "a worker needs a handler")
	case w.Concurrency < 0 || w.Concurrency > job.MaxWorkerSlots:
		return nil, job.Invalid("Concurrency", "", "%d is not between 1 and %d", w.Concurrency, job.MaxWorkerSlots)
	}
	if len(w.Addrs) == 0 {
		w.Addrs = []string{os.Getenv("CARILLON_ADDR")}
	}
	w.Token = cmp.Or(w.Token, os.Getenv("CARILLON_TOKEN"))
	if file := os.Getenv("CARILLON_TOKEN_FILE"); file != "" && w.Token == "" {
		t, err := keys.ReadTokenFile(keys.APIToken, file)
		if err != nil {
			return nil, err
		}
		w.Token = t.Text()
	}
	opts := []LeaderOption{WithQueue(w.Namespace, w.Queue), WithLeaderHTTPClient(w.HTTPClient)}
	if w.Token != "" {
		opts = append(opts, WithLeaderToken(w.Token))
	}
	l := NewLeader(w.Addrs, opts...)
	return l, l.addrsErr
}

// do has the handler do one run.
func (w *Worker) do(ctx context.Context, a job.Assignment) job.Result {
	p := a.QueueOf()
	run := &Run{RunID: a.Run.String(), JobID: a.Run.Job, JobName: a.JobName,
		Namespace: cmp.Or(a.Namespace, job.DefaultNamespace), Queue: p.Queue, ScheduledAt: job.Instant(a.Run.At),
		Attempt: a.Attempt, Fence: a.Fence, Key: a.Key, Data: p.Data, Timeout: a.Timeout, Delivery: a.Delivery,
		Traceparent: a.Traceparent}
	err := w.Handler(ctx, run)
	if err == nil {
		return job.Result{Outcome: job.OutcomeSucceeded, Output: run.Output}
	}
	r := job.Result{Outcome: job.OutcomeFailed, Error: err.Error(), Output: run.Output,
		Permanent: errors.As(err, new(permanentError))}
	if r.Error == "" {
		r.Error = "the handler failed without saying why"
	}
	if after := (retryError{}); errors.As(err, &after) {
		r.RetryAfter = job.Duration(max(after.after, 0))
	}
	return r
}
