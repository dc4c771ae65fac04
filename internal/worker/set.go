// Package worker is what a worker does whatever protocol it speaks with the leader: it holds attempts, carries out as
// many at a time as it has slots, gives up those whose lease has ended, reports results until they are acknowledged,
// and drains. Package executor adds sessions to that, and client.Worker pulls.
package worker

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// Key names an attempt. Fences are numbers of a Raft group: two groups give out the same ones.
type Key struct {
	Group uint32
	Fence uint64
}

// String can be the name of a file.
func (k Key) String() string { return fmt.Sprintf("%d-%d", k.Group, k.Fence) }

// Attempt is one assignment in a worker's hands. It is queued, then running, then done; one that is canceled or
// returned before it starts skips the middle. It stays in the set until its result is acknowledged.
type Attempt[W any] struct {
	Key     Key
	Timeout time.Duration // 0: none
	Lease   *Lease        // its own, or that of the session
	Work    W             // what the protocol says about it

	// Guarded by the mutex of the set.
	State    State
	Started  job.Instant
	Result   job.Result // when it is done
	stop     context.CancelCauseFunc
	canceled bool
}

// State is how far an attempt is.
type State uint8

// The states.
const (
	Queued State = iota
	Running
	Done
)

// Causes are why the context of an attempt ends.
type Causes struct{ Timeout, Canceled, LeaseLost, Stopping error }

// Options are the protocol's part. Functions that end in Locked are called with the mutex held.
type Options[W any] struct {
	Mu      *sync.Mutex // guards the set, and what the worker knows of its leader: the two change together
	Log     *slog.Logger
	Slots   int // attempts at a time
	Elapsed func() time.Duration
	Now     func() time.Time
	Causes  Causes
	Exited  string         // the error of a runner that ended its goroutine
	RunOf   func(W) string // the run, for logs

	// Run carries out one attempt. Shape makes what it returned fit for a report; ctx is that of the attempt.
	Run   func(context.Context, *Attempt[W]) job.Result
	Shape func(context.Context, *Attempt[W], job.Result) job.Result
	// LeasesLocked gives up what has no lease any more, and says when to look again.
	LeasesLocked func() time.Duration
	// ReadyLocked says whether an attempt may start at all, FreedLocked hears of those that ended and of acknowledged
	// results; nil is fine.
	ReadyLocked func(*Attempt[W]) bool
	FreedLocked func()
}

// Set is the attempts in a worker's hands. Held, Busy and Draining are guarded by the mutex.
type Set[W any] struct {
	Base     context.Context // what attempts' contexts derive from
	Held     map[Key]*Attempt[W]
	Busy     int            // how many of them run
	Draining bool           // it takes no more work
	Attempts sync.WaitGroup // goroutines of attempts
	Room     chan struct{}  // a latch of size one: an attempt ended, or left the set
	Killed   chan struct{}  // closed: Drain waits for nothing but attempts, as if the process had ended

	o       Options[W]
	changed chan struct{}       // a latch, for Drain
	expects time.Time           // when a leader last said that there may be more for a worker that drains
	queue   []*Attempt[W]       // not started, oldest first
	lines   map[uint32]*line[W] // by group
}

// line is the attempts of one group: its leader takes their results.
type line[W any] struct {
	open    int           // queued or running
	pending []*Attempt[W] // done, in the order to report them
	results chan struct{} // a latch, for the report
}

// New makes an empty set.
func New[W any](o Options[W]) *Set[W] {
	latch := func() chan struct{} { return make(chan struct{}, 1) }
	return &Set[W]{o: o, Held: map[Key]*Attempt[W]{}, Killed: make(chan struct{}),
		Room: latch(), changed: latch(), lines: map[uint32]*line[W]{}}
}

func (s *Set[W]) lineLocked(group uint32) *line[W] {
	l := s.lines[group]
	if l == nil {
		l = &line[W]{results: make(chan struct{}, 1)}
		s.lines[group] = l
	}
	return l
}

// CountLocked says how many attempts of a group are queued or running, and how many are done and not acknowledged.
func (s *Set[W]) CountLocked(group uint32) (open, done int) {
	l := s.lineLocked(group)
	return l.open, len(l.pending)
}

// AddLocked takes an attempt into the set, unless it is there: it was delivered twice then. It is to start when there
// is a slot, unless r is its result already. A worker that drains returns it.
func (s *Set[W]) AddLocked(a *Attempt[W], r job.Result) {
	if s.Held[a.Key] != nil {
		return
	}
	s.Held[a.Key] = a
	s.lineLocked(a.Key.Group).open++
	if s.Draining && r.Outcome == 0 {
		r.Outcome = job.OutcomeReturned
	}
	if r.Outcome != 0 {
		s.EndLocked(a, r)
	} else {
		s.queue = append(s.queue, a)
	}
}

// StartLocked starts queued attempts on free slots. Those that may not start yet keep their place.
func (s *Set[W]) StartLocked() {
	for i := 0; i < len(s.queue) && s.Busy < s.o.Slots; {
		a := s.queue[i]
		if a.State == Queued && s.o.ReadyLocked != nil && !s.o.ReadyLocked(a) {
			i++
			continue
		}
		if i > 0 {
			s.queue = slices.Delete(s.queue, i, i+1)
		} else {
			s.queue[0] = nil
			s.queue = s.queue[1:]
		}
		switch {
		case a.State != Queued: // it was canceled, or given up
		case a.Lease.Left(s.o.Elapsed()) <= 0: // looked at before each start: the machine may have been suspended
			s.EndLocked(a, job.Result{Outcome: job.OutcomeReturned})
			s.o.LeasesLocked()
		default:
			ctx, stop := context.WithCancelCause(s.Base)
			a.State, a.stop, a.Started = Running, stop, job.At(s.o.Now())
			s.Busy++
			s.Attempts.Go(func() { s.attempt(ctx, a) })
		}
	}
}

// attempt carries out one attempt and puts its result in line.
func (s *Set[W]) attempt(ctx context.Context, a *Attempt[W]) {
	defer a.stop(nil)
	if a.Timeout > 0 {
		var release context.CancelFunc
		ctx, release = context.WithTimeoutCause(ctx, a.Timeout, s.o.Causes.Timeout)
		defer release()
	}
	// Deferred, because a runner that panics or ends its goroutine is a failed attempt and no more.
	r := job.Result{Outcome: job.OutcomeFailed, Error: s.o.Exited}
	defer func() {
		if p := recover(); p != nil {
			s.o.Log.Error("attempt panicked", "run", s.o.RunOf(a.Work), "panic", p, "stack", string(debug.Stack()))
			r = job.Result{Outcome: job.OutcomeFailed, Error: fmt.Sprintf("panic: %v", p)}
		}
		r.StartedAt, r.FinishedAt = a.Started, job.At(s.o.Now())
		r = s.o.Shape(ctx, a, r)
		s.o.Mu.Lock()
		defer s.o.Mu.Unlock()
		s.Busy--
		s.EndLocked(a, r)
		s.StartLocked()
	}()
	r = s.o.Run(ctx, a)
}

// EndLocked gives an attempt that does not run its result.
func (s *Set[W]) EndLocked(a *Attempt[W], r job.Result) {
	if r.FinishedAt == 0 {
		r.FinishedAt = job.At(s.o.Now())
	}
	a.State, a.Result = Done, r
	l := s.lineLocked(a.Key.Group)
	l.open--
	l.pending = append(l.pending, a)
	wait.Wake(l.results)
	s.freedLocked()
}

func (s *Set[W]) freedLocked() {
	if s.o.FreedLocked != nil {
		s.o.FreedLocked()
	}
	wait.Wake(s.Room)
	s.Changed()
}

// CancelLocked stops an attempt that the leader does not want any more, and says whether that was news.
func (s *Set[W]) CancelLocked(a *Attempt[W]) bool { return s.stopLocked(a, s.o.Causes.Canceled) }

// TimeOutLocked is CancelLocked for an attempt that is over its timeout as the leader counts it: from when it gave it
// out, which is sooner than from when it began here.
func (s *Set[W]) TimeOutLocked(a *Attempt[W]) bool { return s.stopLocked(a, s.o.Causes.Timeout) }

func (s *Set[W]) stopLocked(a *Attempt[W], cause error) bool {
	if a == nil || a.canceled || a.State == Done {
		return false
	}
	a.canceled = true
	if a.State == Queued {
		s.EndLocked(a, job.Result{Outcome: job.OutcomeCanceled, Error: "canceled before it started"})
	} else {
		a.stop(cause)
	}
	return true
}

// Lease is until when work is certainly this worker's, on Options.Elapsed. The zero value has ended.
type Lease struct{ end time.Duration }

// Grant is the lease by the answer to a call that was sent then. A worker uses two thirds: the leader counts all of it,
// and from later.
func Grant(sent, ttl time.Duration) Lease { return Lease{sent + ttl*2/3} }

// Extend is for the answer to a heartbeat. An answer that comes late makes no lease shorter.
func (l *Lease) Extend(sent, ttl time.Duration) { l.end = max(l.end, Grant(sent, ttl).end) }

// Left is how much of it there is.
func (l *Lease) Left(now time.Duration) time.Duration { return l.end - now }

// Beats is how many heartbeats are sent in a lease. LeaseTick bounds every sleep that waits for one to end: timers
// stand still while the machine is suspended.
const (
	Beats     = 5
	LeaseTick = time.Second
)

// GiveUpLocked stops what runs without a lease: the leader may give it to others. What was not started must not start
// under this claim any more, even if the next lease comes in a moment, so it is returned; should the leader have moved
// on, it refuses that by the fence. It says how long the shortest of the other leases is.
func (s *Set[W]) GiveUpLocked() time.Duration {
	now, left := s.o.Elapsed(), time.Duration(math.MaxInt64)
	for _, a := range s.queue {
		if a.State == Queued && a.Lease.Left(now) <= 0 {
			s.EndLocked(a, job.Result{Outcome: job.OutcomeReturned})
		}
	}
	for _, a := range s.Held {
		if l := a.Lease.Left(now); l > 0 && a.State != Done {
			left = min(left, l)
		} else if a.State == Running {
			a.stop(s.o.Causes.LeaseLost)
		}
	}
	return left
}

// WatchLeases looks at the leases until ctx ends.
func (s *Set[W]) WatchLeases(ctx context.Context) {
	for {
		s.o.Mu.Lock()
		again := s.o.LeasesLocked()
		s.o.Mu.Unlock()
		if !wait.For(ctx, again) {
			return
		}
	}
}
