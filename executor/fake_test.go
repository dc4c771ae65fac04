package executor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

var errNet = errors.New("connection refused")

// fakeLeader keeps sessions as the real one does. before may fail or delay a call, after may lose its answer.
type fakeLeader struct {
	mu    sync.Mutex
	ttl   time.Duration
	group uint32
	term  uint64
	issue uint64 // incarnations issued
	// counts: it opens a session only for a registration that names its term and an incarnation.
	counts bool
	known  job.SessionRef
	wake   chan struct{} // closed and replaced when something may have changed for a poll

	next    []job.Assignment // to be assigned
	cancels []uint64         // said until the attempt is reported
	told    int              // how many of them a poll has said
	owed    int              // of next, claimed for the worker before it registered: it gets them whatever it offers
	count   map[uint64]int   // how often a fence was reported
	ack     func(job.Result) bool

	before func(ctx context.Context, call string) error
	after  func(call string) error

	leaderLog
	inflight map[string]int
}

// leaderLog is what a leader saw.
type leaderLog struct {
	registers []job.Register
	polls     []job.Poll
	beats     []job.Heartbeat
	beatTimes []time.Time
	reports   []job.Report
	sent      []job.Assignment // of this session; the number is the place
	results   map[uint64]job.Result
	most      map[string]int // calls of a kind at a time
}

func newFakeLeader() *fakeLeader {
	return &fakeLeader{ttl: 30 * time.Second, term: 1, wake: make(chan struct{}), count: map[uint64]int{}, inflight: map[string]int{},
		leaderLog: leaderLog{results: map[uint64]job.Result{}, most: map[string]int{}}}
}

func (l *fakeLeader) enter(ctx context.Context, call string) error {
	l.mu.Lock()
	l.inflight[call]++
	l.most[call] = max(l.most[call], l.inflight[call])
	f := l.before
	l.mu.Unlock()
	if f != nil {
		return f(ctx, call)
	}
	return nil
}

func (l *fakeLeader) leave(call string, err *error) {
	l.mu.Lock()
	l.inflight[call]--
	f := l.after
	l.mu.Unlock()
	if f != nil && *err == nil {
		*err = f(call)
	}
}

func (l *fakeLeader) changed() { close(l.wake); l.wake = make(chan struct{}) }

func (l *fakeLeader) Register(ctx context.Context, r job.Register) (_ job.Session, err error) {
	defer l.leave("register", &err)
	l.mu.Lock()
	l.registers = append(l.registers, r)
	l.mu.Unlock()
	if err := l.enter(ctx, "register"); err != nil {
		return job.Session{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	inc := r.Incarnation
	if inc == 0 {
		l.issue++
		inc = l.issue
	}
	if l.counts && (r.Incarnation == 0 || r.Term != l.term) {
		return job.Session{SessionRef: job.SessionRef{Worker: r.Worker, Incarnation: inc, Group: l.group, Term: l.term, Registration: r.Registration}, TTL: job.Duration(l.ttl), Again: true}, nil
	}
	// What the worker does not hold was never received (or was released): it is assigned again on the new session.
	var again []job.Assignment
	for _, a := range l.sent {
		held := slices.ContainsFunc(r.Held, func(h job.Held) bool { return h.Fence == a.Fence })
		if _, done := l.results[a.Fence]; !held && !done {
			a.Term = 0
			again = append(again, a)
		}
	}
	l.next, l.owed = append(again, l.next...), len(again)
	l.sent, l.told = nil, 0
	l.known = job.SessionRef{Worker: r.Worker, Incarnation: inc, Group: l.group, Term: l.term, Registration: r.Registration}
	return job.Session{SessionRef: l.known, TTL: job.Duration(l.ttl)}, nil
}

func (l *fakeLeader) check(s job.SessionRef) error {
	if s != l.known {
		return job.Errorf(job.CodeSessionUnknown, "", "no such session")
	}
	return nil
}

func (l *fakeLeader) Poll(ctx context.Context, p job.Poll) (_ job.PollReply, err error) {
	defer l.leave("poll", &err)
	l.mu.Lock()
	l.polls = append(l.polls, p)
	l.mu.Unlock()
	if err := l.enter(ctx, "poll"); err != nil {
		return job.PollReply{}, err
	}
	timer := time.NewTimer(time.Duration(p.Wait))
	defer timer.Stop()
	for {
		l.mu.Lock()
		if err := l.check(p.Session); err != nil {
			l.mu.Unlock()
			return job.PollReply{}, err
		}
		var reply job.PollReply
		if int(p.Acked) < len(l.sent) {
			reply.Assignments = slices.Clone(l.sent[p.Acked:])
		}
		for free := p.Free - len(reply.Assignments); (free > 0 || l.owed > 0) && len(l.next) > 0; free-- {
			a := l.next[0]
			l.next, l.owed = l.next[1:], max(0, l.owed-1)
			a.Number = uint64(len(l.sent)) + 1
			if a.Term == 0 {
				a.Term = l.term
			}
			l.sent = append(l.sent, a)
			reply.Assignments = append(reply.Assignments, a)
		}
		if l.told < len(l.cancels) {
			reply.Cancel, l.told = slices.Clone(l.cancels), len(l.cancels)
		}
		hint := false
		if p.Number != 0 {
			reply.Number, reply.Ready = p.Number, len(l.next)
			hint = p.Free == 0 && !p.Told && len(l.next) > 0
		}
		wake := l.wake
		l.mu.Unlock()
		if len(reply.Assignments)+len(reply.Cancel) > 0 || hint || p.Wait == 0 {
			return reply, nil
		}
		select {
		case <-ctx.Done():
			return job.PollReply{}, ctx.Err()
		case <-timer.C:
			return reply, nil
		case <-wake:
		}
	}
}

func (l *fakeLeader) Heartbeat(ctx context.Context, h job.Heartbeat) (_ job.HeartbeatReply, err error) {
	defer l.leave("heartbeat", &err)
	l.mu.Lock()
	l.beats, l.beatTimes = append(l.beats, h), append(l.beatTimes, time.Now())
	l.mu.Unlock()
	if err := l.enter(ctx, "heartbeat"); err != nil {
		return job.HeartbeatReply{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(h.Session); err != nil {
		return job.HeartbeatReply{}, err
	}
	return job.HeartbeatReply{Cancel: slices.Clone(l.cancels)}, nil
}

func (l *fakeLeader) Report(ctx context.Context, r job.Report) (_ job.ReportReply, err error) {
	defer l.leave("report", &err)
	l.mu.Lock()
	l.reports = append(l.reports, r)
	l.mu.Unlock()
	if err := l.enter(ctx, "report"); err != nil {
		return job.ReportReply{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(r.Session); err != nil {
		return job.ReportReply{}, err
	}
	var reply job.ReportReply
	for _, res := range r.Results {
		if l.ack != nil && !l.ack(res) {
			continue
		}
		_, repeated := l.results[res.Fence]
		if !repeated {
			l.results[res.Fence] = res
		}
		l.count[res.Fence]++
		l.cancels = slices.DeleteFunc(l.cancels, func(f uint64) bool { return f == res.Fence })
		l.told = min(l.told, len(l.cancels))
		reply.Acks = append(reply.Acks, job.Ack{Fence: res.Fence, Stale: repeated})
	}
	return reply, nil
}

// assign makes assignments with these fences.
func (l *fakeLeader) assign(as ...job.Assignment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = append(l.next, as...)
	l.changed()
}

func (l *fakeLeader) cancel(fences ...uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancels = append(l.cancels, fences...)
	l.changed()
}

// depose makes a new leader of a higher term, which does not know the session.
func (l *fakeLeader) depose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term++
	l.known = job.SessionRef{}
	l.changed()
}

func (l *fakeLeader) hook(before func(ctx context.Context, call string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before = before
}

// log is what the leader has seen by now.
func (l *fakeLeader) log() leaderLog {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.leaderLog
	c.registers, c.polls, c.beats = slices.Clone(c.registers), slices.Clone(c.polls), slices.Clone(c.beats)
	c.beatTimes, c.reports, c.sent = slices.Clone(c.beatTimes), slices.Clone(c.reports), slices.Clone(c.sent)
	c.results, c.most = maps.Clone(c.results), maps.Clone(c.most)
	return c
}

func work(fences ...uint64) []job.Assignment {
	out := make([]job.Assignment, len(fences))
	for i, f := range fences {
		out[i] = job.Assignment{Run: job.RunKey{Job: 7, At: int64(1000 * f), Origin: job.OriginSchedule}, Attempt: 1, Fence: f,
			Type: job.TypeQueue, Timeout: job.Duration(time.Hour)}
	}
	return out
}

// fakeRunner runs attempts that end when the test says so, or at once.
type fakeRunner struct {
	mu    sync.Mutex
	auto  bool
	calls map[uint64]*call
	runs  map[uint64]int
	order []uint64
}

type call struct {
	ctx   context.Context
	end   chan job.Result
	cause error // after it ended
}

func (r *fakeRunner) Run(ctx context.Context, a job.Assignment) job.Result {
	c := &call{ctx: ctx, end: make(chan job.Result, 1)}
	r.mu.Lock()
	r.calls[a.Fence] = c
	r.runs[a.Fence]++
	r.order = append(r.order, a.Fence)
	auto := r.auto
	r.mu.Unlock()
	if auto {
		return job.Result{Outcome: job.OutcomeSucceeded}
	}
	select {
	case res := <-c.end:
		return res
	case <-ctx.Done():
		r.mu.Lock()
		c.cause = context.Cause(ctx)
		r.mu.Unlock()
		return job.Result{Outcome: job.OutcomeFailed, Error: "stopped", Permanent: true}
	}
}

func (r *fakeRunner) finish(t *testing.T, fence uint64, res job.Result) {
	t.Helper()
	r.mu.Lock()
	c := r.calls[fence]
	r.mu.Unlock()
	if c == nil {
		t.Fatalf("fence %d was not started", fence)
	}
	c.end <- res
}

// end has an attempt succeed, unless it has ended.
func (r *fakeRunner) end(fence uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.calls[fence].end <- success:
	default:
	}
}

func (r *fakeRunner) ran(fence uint64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[fence]
}

func (r *fakeRunner) started() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.order)
	slices.Sort(out)
	return out
}

func (r *fakeRunner) cause(fence uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[fence]; c != nil {
		return c.cause
	}
	return nil
}

var success = job.Result{Outcome: job.OutcomeSucceeded}

// fakeClock is the bubble's clock, plus a time during which the machine was suspended.
type fakeClock struct {
	mu    sync.Mutex
	start time.Time
	slept time.Duration
}

func (c *fakeClock) Now() time.Time { return time.Now() }
func (c *fakeClock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.start) + c.slept
}
func (c *fakeClock) suspend(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept += d
}

// bench is a worker at a fake leader, in a bubble.
type bench struct {
	t      *testing.T
	leader *fakeLeader
	runner *fakeRunner
	clock  *fakeClock
	worker *Worker
	stop   context.CancelFunc
	ended  chan error
}

// inBubble runs f with a worker that has registered and waits for work. It stops the worker afterwards.
func inBubble(t *testing.T, change func(*Options, *bench), f func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, leader: newFakeLeader(), clock: &fakeClock{start: time.Now()}, ended: make(chan error, 1),
			runner: &fakeRunner{calls: map[uint64]*call{}, runs: map[uint64]int{}}}
		o := Options{Name: "w1", Secret: "s", Slots: 4, Groups: OneGroup(b.leader), Clock: b.clock,
			Runners: map[job.Type]Runner{job.TypeQueue: b.runner}, DrainTimeout: 5 * time.Second}
		if change != nil {
			change(&o, b)
		}
		var err error
		if b.worker, err = New(o); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		b.stop = stop
		t.Cleanup(func() {
			b.leader.hook(nil)
			stop()
			<-b.ended
		})
		go func() {
			b.ended <- b.worker.Run(ctx)
			close(b.ended)
		}()
		synctest.Wait()
		f(b)
	})
}

// after lets time pass and everything settle.
func (b *bench) after(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

func (b *bench) wantStarted(want ...uint64) {
	b.t.Helper()
	synctest.Wait()
	if got := b.runner.started(); !slices.Equal(got, want) {
		b.t.Fatalf("started %v, want %v", got, want)
	}
}

func (b *bench) wantResult(fence uint64, outcome job.Outcome, text string) job.Result {
	b.t.Helper()
	res, ok := b.leader.log().results[fence]
	if !ok || res.Outcome != outcome || res.Error != text {
		b.t.Fatalf("fence %d: reported %v: %+v, want outcome %d with %q", fence, ok, res, outcome, text)
	}
	return res
}

func (b *bench) wantNoResult(fence uint64) {
	b.t.Helper()
	if _, ok := b.leader.log().results[fence]; ok {
		b.t.Fatalf("fence %d was reported", fence)
	}
}

func (b *bench) wantBusy(want int) {
	b.t.Helper()
	synctest.Wait()
	if busy, _ := b.worker.Stats(); busy != want {
		b.t.Fatalf("%d attempts run, want %d", busy, want)
	}
}

func last[T any](s []T) T { return s[len(s)-1] }
