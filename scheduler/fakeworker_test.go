package scheduler

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
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
	is     job.Poll                                         // what its polls say of it, with its session
	handle func(context.Context, job.Assignment) job.Result // nil: succeeds at once

	mu      sync.Mutex
	set     map[uint64]*fakeHeld
	top     uint64 // the highest fence that it was given
	s       *Scheduler
	starts  []start
	polls   []job.Poll   // the last few that it sent
	answers []job.Answer // to what it reported
	gone    []job.Answer // of heartbeats: what was taken from it
	mute    bool         // heartbeats are not sent
	deaf    bool         // answers of polls are lost
	stopAll context.CancelFunc
	life    context.Context
	wg      sync.WaitGroup
}

type fakeHeld struct {
	a      job.Assignment
	began  time.Time
	result *job.Result
	stop   context.CancelFunc
}

func (w *world) worker(name string, slots int, edit func(*fakeWorker)) *fakeWorker {
	f := &fakeWorker{w: w, set: map[uint64]*fakeHeld{},
		is: job.Poll{Worker: name, Secret: "s-" + name, Types: []job.Type{job.TypeShell}, Slots: slots}}
	if edit != nil {
		edit(f)
	}
	return f
}

// join goes to the current leader and works until leave or the end of the test.
func (f *fakeWorker) join() error {
	s := f.w.s
	f.mu.Lock()
	f.s = s
	f.life, f.stopAll = context.WithCancel(context.Background())
	life := f.life
	for _, h := range f.set {
		if h.result != nil {
			f.wg.Go(func() { f.report(life, s, h) })
		}
	}
	f.mu.Unlock()
	for range 2 { // the first one is answered with a session of this leader, and decides nothing
		if err := f.poll(life, s, job.Poll{}); err != nil {
			f.leave()
			return err
		}
	}
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

// leave ends the calls; attempts go on.
func (f *fakeWorker) leave() {
	f.mu.Lock()
	stop := f.stopAll
	f.mu.Unlock()
	if stop != nil {
		stop()
		f.wg.Wait()
	}
}

// crash is leave, and everything is forgotten: what joins after it is another process in the same directory.
func (f *fakeWorker) crash() {
	f.leave()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.set {
		h.stop()
	}
	f.set, f.is.Session, f.top = map[uint64]*fakeHeld{}, "", 0
}

func (f *fakeWorker) setDeaf(deaf bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = deaf
}

func (f *fakeWorker) session() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.is.Session
}

// over says that a call need not be tried again with this leader.
func over(ctx context.Context, err error) bool {
	return ctx.Err() != nil || job.CodeOf(err) == job.CodeNotLeader
}

// poll asks once, and takes what is in the answer.
func (f *fakeWorker) poll(ctx context.Context, s *Scheduler, q job.Poll) error {
	f.mu.Lock()
	p := f.is
	p.Free, p.Wait, p.Hold = q.Free, q.Wait, job.Duration(maxHold)
	if p.Session != "" {
		p.Worker, p.Secret = "", ""
	}
	f.polls = append(f.polls[max(0, len(f.polls)-7):], p)
	f.mu.Unlock()
	r, err := s.Poll(ctx, p)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.deaf {
		return err
	}
	for _, a := range r.Runs {
		f.takeLocked(a)
	}
	for _, c := range r.Stop {
		if h := f.set[c.Fence]; h != nil {
			h.stop()
		}
	}
	f.is.Session = r.Session // not before its runs are taken
	return nil
}

// late lets a poll arrive that was sent before, perhaps to another leader. Nobody reads the answer.
func (f *fakeWorker) late(i int) {
	f.mu.Lock()
	p := f.polls[i%len(f.polls)]
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%3)*time.Second)
	defer cancel()
	_, _ = f.w.s.Poll(ctx, p)
}

func (f *fakeWorker) pollLoop(ctx context.Context, s *Scheduler) {
	for ctx.Err() == nil {
		f.mu.Lock()
		p := job.Poll{Free: max(0, f.is.Slots-len(f.set)), Wait: job.Duration(time.Second)}
		if p.Free == 0 {
			p.Wait = job.Duration(20 * time.Millisecond) // a worker polls again when it has capacity
		}
		deaf := f.deaf
		f.mu.Unlock()
		err := f.poll(ctx, s, p)
		switch code := job.CodeOf(err); {
		case err != nil && over(ctx, err):
			return
		case code == job.CodeWorkerForked || code == job.CodeSessionUnknown:
			f.w.t.Errorf("%s: %v", f.is.Worker, err)
			return
		case err != nil || deaf:
			sleepCtx(ctx, 100*time.Millisecond)
		}
	}
}

func (f *fakeWorker) takeLocked(a job.Assignment) {
	if a.Fence <= f.top {
		f.w.t.Errorf("%s was given fence %d after %d", f.is.Worker, a.Fence, f.top)
		return
	}
	h := &fakeHeld{a: a, began: time.Now()}
	started := job.At(f.w.clock.Now())
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	f.top, f.set[a.Fence] = a.Fence, h
	f.starts = append(f.starts, start{a, h.began, f.is.Worker})
	handle := f.handle
	f.w.t.Cleanup(h.stop)
	go func() {
		r := job.Result{Outcome: job.OutcomeSucceeded}
		if handle != nil {
			r = handle(ctx, a)
		}
		r.Ref, r.StartedAt, r.FinishedAt = job.Ref{Fence: a.Fence}, started, job.At(f.w.clock.Now())
		f.mu.Lock()
		h.result = &r
		mine, life, s := f.set[a.Fence] == h, f.life, f.s // it may be with another leader by now
		f.mu.Unlock()
		if mine {
			f.report(life, s, h)
		}
	}()
}

// report hands in a result until it is answered.
func (f *fakeWorker) report(ctx context.Context, s *Scheduler, h *fakeHeld) {
	for ctx.Err() == nil {
		f.mu.Lock()
		r := job.Report{Session: f.is.Session, Results: []job.Result{*h.result}}
		f.mu.Unlock()
		reply, err := s.Report(ctx, r)
		if err != nil && over(ctx, err) {
			return
		}
		for _, a := range reply.Results {
			f.mu.Lock()
			f.answers = append(f.answers, a)
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

// beatLoop names all that is held.
func (f *fakeWorker) beatLoop(ctx context.Context, s *Scheduler) {
	for {
		sleepCtx(ctx, s.o.TTL/5)
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		m := job.Heartbeat{Session: f.is.Session}
		for fence := range f.set {
			m.Runs = append(m.Runs, job.Ref{Fence: fence})
		}
		mute := f.mute || len(m.Runs) == 0
		f.mu.Unlock()
		if mute {
			continue
		}
		r, err := s.Heartbeat(ctx, m)
		if err != nil && over(ctx, err) {
			return
		}
		f.mu.Lock()
		for _, a := range r.Runs {
			h := f.set[a.Fence]
			switch {
			case h == nil || a.Status == job.StatusOK:
			case a.Status == job.StatusStop:
				h.stop()
			case h.result == nil: // otherwise its report is answered with that
				h.stop()
				delete(f.set, a.Fence)
				f.gone = append(f.gone, a)
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

// hand is a worker whose calls a test makes itself.
type hand struct {
	*world
	is    job.Poll // what its polls say of it, with its session
	got   []job.Assignment
	ended atomic.Int64 // how many of them were reported
}

// hand makes a worker that the leader knows and that offers nothing yet.
func (w *world) hand(name string, slots int, edit ...func(*job.Poll)) *hand {
	w.t.Helper()
	h := &hand{world: w, is: job.Poll{Worker: name, Secret: "s-" + name, Types: []job.Type{job.TypeShell}, Slots: slots}}
	for _, e := range edit {
		e(&h.is)
	}
	if err := h.enter(); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// enter goes to the current leader.
func (h *hand) enter() error {
	for range 2 {
		r, err := h.ask(job.Poll{Hold: job.Duration(maxHold)})
		if err != nil {
			return err
		}
		h.take(r)
	}
	return nil
}

// ask polls, and leaves the answer to its caller.
func (h *hand) ask(p job.Poll) (job.PollReply, error) { return h.askWith(context.Background(), p) }

func (h *hand) askWith(ctx context.Context, p job.Poll) (job.PollReply, error) {
	q := h.is
	q.Free, q.Wait, q.Hold, q.Leave, q.Told, q.From = p.Free, p.Wait, p.Hold, p.Leave, p.Told, p.From
	if p.Session != "" {
		q.Session = p.Session
	}
	return h.s.Poll(ctx, q)
}

func (h *hand) take(r job.PollReply) []job.Assignment {
	h.got, h.is.Session = append(h.got, r.Runs...), r.Session
	return r.Runs
}

// poll polls and takes the answer.
func (h *hand) poll(p job.Poll) job.PollReply {
	h.t.Helper()
	r, err := h.ask(p)
	if err != nil {
		h.t.Fatal(err)
	}
	h.take(r)
	return r
}

// offer is a poll whose slots are offered for some seconds after its answer, which comes at once.
func (h *hand) offer(free int) job.PollReply {
	h.t.Helper()
	return h.poll(job.Poll{Free: free, Hold: job.Duration(maxHold)})
}

// wants polls with all its free slots until it has n more runs.
func (h *hand) wants(n int) []job.Assignment {
	h.t.Helper()
	had := len(h.got)
	for len(h.got) < had+n {
		free := h.is.Slots - len(h.got) + int(h.ended.Load())
		r := h.poll(job.Poll{Free: free, Wait: job.Duration(10 * time.Second), Hold: job.Duration(maxHold)})
		if len(r.Runs) == 0 {
			h.t.Fatalf("%d of %d runs", len(h.got)-had, n)
		}
	}
	return h.got[had:]
}

// one has one more run of a job of its own.
func (h *hand) one(edit func(*job.Spec)) (job.ID, job.Assignment) {
	h.t.Helper()
	id := h.create("@manual", edit)
	h.trigger(id)
	return id, h.wants(1)[0]
}

// names sends a heartbeat that names claims by their fences.
func (h *hand) names(fences ...uint64) []job.Answer {
	h.t.Helper()
	m := job.Heartbeat{Session: h.is.Session}
	for _, f := range fences {
		m.Runs = append(m.Runs, job.Ref{Fence: f})
	}
	r, err := h.s.Heartbeat(context.Background(), m)
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Runs
}

// report hands in one result, by its fence.
func (h *hand) report(a *job.Assignment, outcome job.Outcome) (job.Answer, error) {
	h.ended.Add(1)
	r, err := h.s.Report(context.Background(), job.Report{Session: h.is.Session,
		Results: []job.Result{{Ref: job.Ref{Fence: a.Fence}, Outcome: outcome}}})
	if err != nil {
		return job.Answer{}, err
	}
	return r.Results[0], nil
}

func (h *hand) succeeds(a *job.Assignment) {
	h.t.Helper()
	if answer, err := h.report(a, job.OutcomeSucceeded); err != nil || answer.Status != job.StatusOK {
		h.t.Errorf("%+v %v", answer, err)
	}
}

func (h *hand) incarnation() uint64 {
	x, _ := job.ParseSession(h.is.Session)
	return x.Incarnation
}
