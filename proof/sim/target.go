package sim

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// behaviour is how the target of a job behaves.
type behaviour struct {
	fail, permanent, hang float64       // how often
	least, most           time.Duration // how long it takes
	retryAfter            time.Duration // asked for by a failure, now and then
}

// body is one attempt in a process: what happens in it depends on seed, run and attempt only, not on worker and time.
func (m *behaviour) dice(seed uint64, a job.Assignment) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(a.Run.String()))
	return rand.New(rand.NewPCG(seed, h.Sum64()+uint64(a.Attempt)*7919))
}

// recorder keeps what the world saw of the cluster.
type recorder struct {
	t    *times
	calm chan struct{} // closed at the end: from then on targets answer at once

	mu         sync.Mutex
	effects    []*checker.Effect
	handed     []checker.Handed
	calls      []checker.Call
	faults     []*checker.Fault
	behaviours map[string]*behaviour // by name of the job, as checker.In has it
	log        []string
	archives   map[uint32]*archive // by group
	told       []checker.Notified
	reads      []checker.Read
	restored   *checker.Restored
	states     []checker.Replica
}

func (r *recorder) behaviour(name string) *behaviour {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.behaviours[name]; m != nil {
		return m
	}
	return &behaviour{most: time.Second}
}

// process is what an attempt runs in: it can die and stand still.
type process struct {
	name string
	dead chan struct{}

	cold   atomic.Bool // frozen with its timers
	mu     sync.Mutex
	thawed chan struct{} // not nil while it is paused; closed when it goes on
}

func newProcess(name string) *process { return &process{name: name, dead: make(chan struct{})} }

func (p *process) gone() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// freeze makes everything that asks awake wait.
func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thawed == nil {
		p.thawed = make(chan struct{})
	}
}

func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thawed != nil {
		close(p.thawed)
		p.thawed = nil
	}
}

// awake waits until the process does not stand still. It says false if it died.
func (p *process) awake() bool {
	for {
		p.mu.Lock()
		thawed := p.thawed
		p.mu.Unlock()
		if p.gone() {
			return false
		}
		if thawed == nil {
			return true
		}
		select {
		case <-thawed:
		case <-p.dead:
			return false
		}
	}
}

// runner carries out attempts in place of http and shell: it writes down that one began, takes its time, and ends as
// the dice say.
type runner struct {
	rec  *recorder
	proc *process
	seed uint64
}

var _ executor.Runner = (*runner)(nil)

func (r *runner) Run(ctx context.Context, a job.Assignment) job.Result {
	// A process that stands still begins nothing; when it goes on, it looks at its lease first, as executors look at
	// their context.
	if !r.proc.awake() || ctx.Err() != nil {
		return job.Result{Outcome: job.OutcomeFailed, Error: "not begun"}
	}
	m := r.rec.behaviour(checker.In(a.Namespace, a.JobName))
	dice := m.dice(r.seed, a)
	e := &checker.Effect{Worker: r.proc.name, Run: a.Run, Fence: a.Fence, Attempt: a.Attempt, Key: a.Key,
		Start: r.rec.t.instant(), Got: received(&a)}
	r.rec.mu.Lock()
	r.rec.effects = append(r.rec.effects, e)
	r.rec.mu.Unlock()

	took := m.least
	if d := m.most - m.least; d > 0 {
		took += time.Duration(dice.Int64N(int64(d)))
	}
	roll := dice.Float64()
	if roll < m.hang {
		took = 24 * 365 * time.Hour
	}
	t := time.NewTimer(max(took, time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.rec.calm:
		time.Sleep(time.Duration(1+dice.IntN(200)) * time.Millisecond)
	case <-ctx.Done():
	case <-r.proc.dead:
	}
	if !r.proc.awake() {
		r.end(e, checker.Cut, 0)
		return job.Result{Outcome: job.OutcomeFailed, Error: "cut off"}
	}
	switch cause := context.Cause(ctx); {
	case cause == nil:
	case errors.Is(cause, worker.ErrTimeout):
		r.end(e, checker.TimedOut, 0)
		return job.Result{Outcome: job.OutcomeFailed, Error: "timed out"}
	default:
		r.end(e, checker.Canceled, 0)
		return job.Result{Outcome: job.OutcomeFailed, Error: cause.Error()}
	}
	roll -= m.hang
	switch {
	case roll < m.permanent:
		r.end(e, checker.Permanent, 0)
		return job.Result{Outcome: job.OutcomeFailed, Permanent: true, Error: "useless"}
	case roll < m.permanent+m.fail:
		var after time.Duration
		if m.retryAfter > 0 && dice.IntN(4) == 0 {
			after = m.retryAfter
		}
		r.end(e, checker.Failed, after)
		return job.Result{Outcome: job.OutcomeFailed, Error: "no luck", RetryAfter: job.Duration(after)}
	}
	r.end(e, checker.Succeeded, 0)
	return job.Result{Outcome: job.OutcomeSucceeded, Output: "done"}
}

// received is what an assignment asks for.
func received(a *job.Assignment) *checker.Received {
	return &checker.Received{Type: a.Type, Payload: a.Payload, Timeout: a.Timeout, Delivery: a.Delivery}
}

func (r *runner) end(e *checker.Effect, o checker.EffectOutcome, after time.Duration) {
	now := r.rec.t.instant()
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	e.End, e.Outcome, e.RetryAfter = now, o, after
}
