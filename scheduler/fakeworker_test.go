package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// start is an attempt that a worker began.
type start struct {
	job.Assignment
	at     time.Time
	worker string
}

// fakeWorker speaks the protocol as a good worker does.
type fakeWorker struct {
	w      *world
	reg    job.Register
	handle func(context.Context, job.Assignment) job.Result // nil: succeeds at once

	mu      sync.Mutex
	set     map[uint64]*fakeHeld
	acked   uint64
	s       *Scheduler
	ref     job.SessionRef
	starts  []start
	acks    []job.Ack
	mute    bool // heartbeats are not sent
	deaf    bool // answers of polls are lost
	stopAll context.CancelFunc
	life    context.Context
	wg      sync.WaitGroup
}

type fakeHeld struct {
	a       job.Assignment
	started job.Instant
	result  *job.Result
	stop    context.CancelFunc
}

func (w *world) worker(name string, slots int, edit func(*fakeWorker)) *fakeWorker {
	f := &fakeWorker{w: w, set: map[uint64]*fakeHeld{},
		reg: job.Register{Worker: name, Secret: "s-" + name, Types: []job.Type{job.TypeShell}, Slots: slots}}
	if edit != nil {
		edit(f)
	}
	return f
}

// join registers with the current leader and works until leave or the end of the test.
func (f *fakeWorker) join() error {
	f.mu.Lock()
	req := f.reg
	req.Held = f.heldLocked()
	f.mu.Unlock()
	s := f.w.s
	session, err := s.Register(context.Background(), req)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.s, f.ref, f.acked = s, session.SessionRef, 0
	if f.reg.Incarnation != 0 && f.reg.Incarnation != session.Incarnation { // it is taken for a new process
		for _, h := range f.set {
			h.stop()
		}
	}
	f.reg.Incarnation = session.Incarnation
	f.life, f.stopAll = context.WithCancel(context.Background())
	life := f.life
	for _, h := range f.set {
		if h.result != nil {
			f.wg.Go(func() { f.report(life, s, h) })
		}
	}
	f.mu.Unlock()
	f.wg.Go(func() { f.pollLoop(life, s) })
	f.wg.Go(func() { f.beatLoop(life, s) })
	f.w.t.Cleanup(f.leave)
	return nil
}

func (f *fakeWorker) mustJoin() *fakeWorker {
	f.w.t.Helper()
	if err := f.join(); err != nil {
		f.w.t.Fatal(err)
	}
	return f
}

// leave ends the session's loops; attempts go on.
func (f *fakeWorker) leave() {
	f.mu.Lock()
	stop := f.stopAll
	f.mu.Unlock()
	if stop != nil {
		stop()
		f.wg.Wait()
	}
}

// crash is leave, and everything in hand is lost.
func (f *fakeWorker) crash() {
	f.leave()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.set {
		h.stop()
	}
	f.set = map[uint64]*fakeHeld{}
	f.reg.Incarnation = 0
}

func (f *fakeWorker) heldLocked() []job.Held {
	var out []job.Held
	for _, h := range f.set {
		out = append(out, job.Held{Run: h.a.Run, Fence: h.a.Fence, StartedAt: h.started})
	}
	return out
}

func (f *fakeWorker) pollLoop(ctx context.Context, s *Scheduler) {
	for ctx.Err() == nil {
		f.mu.Lock()
		p := job.Poll{Session: f.ref, Acked: f.acked, Free: f.reg.Slots - len(f.set), Wait: job.Duration(time.Second)}
		if p.Free == 0 {
			p.Wait = job.Duration(20 * time.Millisecond) // a worker polls again when it has capacity
		}
		f.mu.Unlock()
		r, err := s.Poll(ctx, p)
		if err != nil {
			if ctx.Err() != nil || job.CodeOf(err) == job.CodeNotLeader || job.CodeOf(err) == job.CodeSessionUnknown {
				return
			}
			time.Sleep(100 * time.Millisecond)
			continue
		}
		f.mu.Lock()
		if f.deaf {
			f.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for _, a := range r.Assignments {
			f.takeLocked(a)
		}
		for _, c := range r.Cancel {
			if h := f.set[c]; h != nil {
				h.stop()
			}
		}
		f.mu.Unlock()
	}
}

func (f *fakeWorker) takeLocked(a job.Assignment) {
	if a.Number != f.acked+1 {
		if a.Number > f.acked {
			f.w.t.Errorf("assignment %d follows %d", a.Number, f.acked)
		}
		return
	}
	f.acked = a.Number
	if f.set[a.Fence] != nil {
		return
	}
	h := &fakeHeld{a: a, started: job.At(f.w.clock.Now())}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	f.set[a.Fence] = h
	f.starts = append(f.starts, start{a, time.Now(), f.reg.Worker})
	handle := f.handle
	f.w.t.Cleanup(h.stop)
	go func() {
		r := job.Result{Outcome: job.OutcomeSucceeded}
		if handle != nil {
			r = handle(ctx, a)
		}
		r.Run, r.Fence, r.StartedAt, r.FinishedAt = a.Run, a.Fence, h.started, job.At(f.w.clock.Now())
		f.mu.Lock()
		h.result = &r
		life, s := f.life, f.s // the session may be another one by now
		f.mu.Unlock()
		f.report(life, s, h)
	}()
}

// report hands a result in until it is acknowledged or the session is over.
func (f *fakeWorker) report(ctx context.Context, s *Scheduler, h *fakeHeld) {
	for ctx.Err() == nil {
		f.mu.Lock()
		ref, r := f.ref, *h.result
		f.mu.Unlock()
		reply, err := s.Report(ctx, job.Report{Session: ref, Results: []job.Result{r}})
		if err != nil && (job.CodeOf(err) == job.CodeNotLeader || job.CodeOf(err) == job.CodeSessionUnknown) {
			return
		}
		for _, a := range reply.Acks {
			f.mu.Lock()
			f.acks = append(f.acks, a)
			delete(f.set, a.Fence)
			f.mu.Unlock()
			return
		}
		sleepCtx(ctx, 100*time.Millisecond)
	}
}

func sleepCtx(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (f *fakeWorker) beatLoop(ctx context.Context, s *Scheduler) {
	for {
		sleepCtx(ctx, time.Duration(s.o.TTL)/5)
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		h := job.Heartbeat{Session: f.ref, Acked: f.acked, Free: f.reg.Slots - len(f.set), Held: f.heldLocked()}
		mute := f.mute
		f.mu.Unlock()
		if mute {
			continue
		}
		r, err := s.Heartbeat(ctx, h)
		if err != nil {
			if job.CodeOf(err) == job.CodeNotLeader || job.CodeOf(err) == job.CodeSessionUnknown {
				return
			}
			continue
		}
		f.mu.Lock()
		for _, c := range r.Cancel {
			if h := f.set[c]; h != nil {
				h.stop()
			}
		}
		f.mu.Unlock()
	}
}

// ran is what the worker started, oldest first.
func (f *fakeWorker) ran() []start {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.starts)
}

// ranOf is the scheduled times of a job that the worker started.
func (f *fakeWorker) ranOf(id job.ID) (out []int64) {
	for _, s := range f.ran() {
		if s.Run.Job == id {
			out = append(out, s.Run.At)
		}
	}
	return out
}

// takes makes every attempt last this long, unless it is told to stop.
func takes(d time.Duration) func(context.Context, job.Assignment) job.Result {
	return func(ctx context.Context, _ job.Assignment) job.Result {
		sleepCtx(ctx, d)
		if ctx.Err() != nil {
			return job.Result{Outcome: job.OutcomeCanceled}
		}
		return job.Result{Outcome: job.OutcomeSucceeded}
	}
}

func fails(context.Context, job.Assignment) job.Result {
	return job.Result{Outcome: job.OutcomeFailed, Error: "no"}
}
