package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

var (
	errNet  = errors.New("connection refused")
	success = job.Result{Outcome: job.OutcomeSucceeded}
)

// fakeLeader is the leader of a group, as package scheduler is to a worker. Its log commits at once.
type fakeLeader struct {
	mu     sync.Mutex
	ttl    time.Duration
	group  uint32
	term   uint64
	issued uint64        // incarnations and nonces
	fence  uint64        // the highest that was given out
	wake   chan struct{} // closed and replaced when there may be something for a poll

	next      []job.Assignment        // not claimed; one without a fence gets one when it is
	owed      int                     // so many of them are claimed for the next poll, whatever that offers
	sessions  map[uint64]*fakeSession // of this term, by incarnation
	claims    map[uint64]*fakeClaim
	watch     []job.Ref // said by the next poll
	quiet     bool      // polls do not say what is to stop
	unwatched bool      // nobody wants the output of attempts

	// before may fail or delay a call, after may lose its answer. ack says whether a result is named in the answer to a
	// report, ended hears of those that are committed. nil is fine.
	before func(ctx context.Context, call string) error
	after  func(call string) error
	ack    func(job.Result) bool
	ended  func(a job.Assignment, worker string, r job.Result)

	leaderLog
	inflight map[string]int
}

// leaderLog is what a leader saw.
type leaderLog struct {
	polls   []job.Poll
	beats   []job.Heartbeat
	beatAt  []time.Time
	reports []job.Report
	outputs []job.Output
	sent    int // runs in answers to polls
	results map[uint64]job.Result
	most    map[string]int // calls of a kind at a time
}

type fakeSession struct {
	job.Session           // that its last poll had
	poll        job.Poll  // its last one
	polls       int       // how many there were
	waits       bool      // the last one has not been answered
	answered    time.Time // when it was
	capacity    int       // runs that it takes, with those in hand
}

type fakeClaim struct {
	job.Assignment
	by              job.Session
	unsent, arrived bool // it was in no answer; it is known to have been received
	stop            string
	stopSaid        bool
	until           time.Time
}

func newFakeLeader(group uint32) *fakeLeader {
	return &fakeLeader{group: group, ttl: 30 * time.Second, term: 1, wake: make(chan struct{}),
		sessions: map[uint64]*fakeSession{}, claims: map[uint64]*fakeClaim{}, inflight: map[string]int{},
		leaderLog: leaderLog{results: map[uint64]job.Result{}, most: map[string]int{}}}
}

func (l *fakeLeader) enter(ctx context.Context, call string, note func()) error {
	l.mu.Lock()
	note()
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

func (l *fakeLeader) changedLocked() { close(l.wake); l.wake = make(chan struct{}) }

// readLocked reads a session that this leader may act on.
func (l *fakeLeader) readLocked(text string) (s job.Session, err error) {
	s, err = job.ParseSession(text)
	switch {
	case err != nil:
	case s.Group != l.group || s.Fence > l.fence:
		err = job.Errorf(job.CodeSessionUnknown, "", "not of this group, or of its history")
	case s.Term > l.term:
		err = job.Errorf(job.CodeNoLeader, "", "a later leader wrote this session")
	}
	return s, err
}

func (l *fakeLeader) Poll(ctx context.Context, p job.Poll) (_ job.PollReply, err error) {
	defer l.leave("poll", &err)
	if err := l.enter(ctx, "poll", func() { l.polls = append(l.polls, p) }); err != nil {
		return job.PollReply{}, err
	}
	came := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var seen job.Session
	if p.Session == "" {
		l.issued++
		seen = job.Session{Worker: p.Worker, Incarnation: l.issued, Group: l.group}
		if p.Secret != "" {
			seen.Owner = uint64(crc32.ChecksumIEEE([]byte(p.Secret)))
		}
	} else if seen, err = l.readLocked(p.Session); err != nil {
		return job.PollReply{}, err
	}
	if seen.Term != l.term { // it decides nothing
		l.issued++
		seen.Term, seen.Serial, seen.Nonce = l.term, 1, l.issued
		return job.PollReply{Session: seen.String(), Opened: true, Lease: job.Duration(l.ttl)}, nil
	}
	x, err := l.presentLocked(&p, seen)
	if err != nil {
		return job.PollReply{}, err
	}
	timer := time.NewTimer(min(time.Duration(p.Wait), l.ttl/3))
	defer timer.Stop()
	mine := x.polls
	defer func() {
		if x.polls == mine {
			x.waits, x.answered = false, time.Now()
		}
	}()
	for over := p.Wait <= 0; ; {
		l.claimLocked()
		switch line := l.lineLocked(x); {
		case l.sessions[x.Incarnation] != x:
			return job.PollReply{}, job.Errorf(job.CodeNoLeader, "", "the leadership ended")
		case x.polls != mine:
			return job.PollReply{}, errNet // its worker gave it up
		case ctx.Err() != nil:
			return job.PollReply{}, ctx.Err()
		case over, len(line)+len(l.stopsLocked(x))+len(l.watch) > 0,
			p.Shared && p.Free <= 0 && !p.Told && len(l.next) > 0:
			return l.answerLocked(x, seen, line, came), nil
		}
		wake := l.wake
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
			over = true
		}
		l.mu.Lock()
	}
}

// presentLocked finds the session of a poll, or makes it known to this leader.
func (l *fakeLeader) presentLocked(p *job.Poll, seen job.Session) (*fakeSession, error) {
	x := l.sessions[seen.Incarnation]
	switch {
	case x == nil:
		for _, c := range l.claims { // of other processes with the name
			switch owned := c.by.Owner != 0 && seen.Owner != 0; {
			case c.by.Worker != seen.Worker || c.by.Incarnation == seen.Incarnation || !owned:
			case c.by.Owner != seen.Owner:
				return nil, job.Errorf(job.CodeWorkerNameInUse, "", "a living worker has the name")
			default:
				l.releaseLocked(c)
			}
		}
		x = &fakeSession{}
		l.sessions[seen.Incarnation] = x
	case seen.Serial < x.Serial || seen.Serial == x.Serial && seen.Nonce != x.Nonce:
		return nil, job.Errorf(job.CodeWorkerForked, "", "two processes act as one")
	}
	for _, c := range l.claims {
		if c.by.Incarnation == seen.Incarnation {
			c.arrived = c.arrived || c.Fence <= seen.Fence
			c.unsent = c.unsent || !c.arrived && x.polls == 0
		}
	}
	x.Session, x.poll, x.waits = seen, *p, true
	x.polls++
	x.capacity = p.Free + l.openLocked(x) - len(l.lineLocked(x))
	if p.Leave {
		x.capacity = 0
	}
	return x, nil
}

// openLocked is how many claims a session has, lineLocked those that it is not known to have received.
func (l *fakeLeader) openLocked(x *fakeSession) (n int) {
	for _, c := range l.claims {
		if c.by.Incarnation == x.Incarnation {
			n++
		}
	}
	return n
}

func (l *fakeLeader) lineLocked(x *fakeSession) (out []*fakeClaim) {
	for _, c := range l.claims {
		if c.by.Incarnation == x.Incarnation && !c.arrived {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *fakeClaim) int { return cmp.Compare(a.Fence, b.Fence) })
	return out
}

func (l *fakeLeader) stopsLocked(x *fakeSession) (out []*fakeClaim) {
	for _, c := range l.claims {
		if c.by.Incarnation == x.Incarnation && c.stop != "" && !c.stopSaid && !c.unsent && !l.quiet {
			out = append(out, c)
		}
	}
	return out
}

// claimLocked claims runs for those whose offers stand: polls that wait, and for a while those that were answered.
func (l *fakeLeader) claimLocked() {
	for _, inc := range slices.Sorted(maps.Keys(l.sessions)) {
		x := l.sessions[inc]
		stands := x.waits || time.Since(x.answered) < time.Duration(x.poll.Hold)
		for stands && len(l.next) > 0 && (l.owed > 0 || l.openLocked(x) < x.capacity) {
			c := &fakeClaim{Assignment: l.next[0], by: x.Session, unsent: true, until: time.Now().Add(l.ttl)}
			l.next, l.owed = l.next[1:], max(0, l.owed-1)
			c.Fence = cmp.Or(c.Fence, l.fence+1)
			l.fence = max(l.fence, c.Fence)
			l.claims[c.Fence] = c
		}
	}
}

func (l *fakeLeader) answerLocked(x *fakeSession, next job.Session, line []*fakeClaim, came time.Time) job.PollReply {
	l.issued++
	next.Serial, next.Nonce = next.Serial+1, l.issued
	reply := job.PollReply{Lease: job.Duration(l.ttl), Waited: job.Duration(time.Since(came)), Watch: l.watch}
	for _, c := range line {
		c.unsent, c.until = false, time.Now().Add(l.ttl)
		next.Fence = max(next.Fence, c.Fence)
		reply.Runs = append(reply.Runs, c.Assignment)
	}
	for _, c := range l.stopsLocked(x) {
		c.stopSaid = true
		reply.Stop = append(reply.Stop, job.Stop{Ref: job.Ref{Fence: c.Fence}, Why: c.stop})
	}
	if x.poll.Shared {
		reply.Ready = len(l.next)
	}
	l.watch = nil
	l.sent += len(line)
	reply.Session = next.String()
	return reply
}

// namedLocked is the claim that a worker names; nil: it is not, or not any more, the worker's.
func (l *fakeLeader) namedLocked(by job.Session, fence uint64) *fakeClaim {
	c := l.claims[fence]
	if c == nil || c.unsent || c.by.Incarnation != by.Incarnation || c.by.Owner != by.Owner {
		return nil
	}
	c.arrived = true
	return c
}

func (l *fakeLeader) Heartbeat(ctx context.Context, h job.Heartbeat) (reply job.HeartbeatReply, err error) {
	defer l.leave("heartbeat", &err)
	note := func() { l.beats, l.beatAt = append(l.beats, h), append(l.beatAt, time.Now()) }
	if err := l.enter(ctx, "heartbeat", note); err != nil {
		return reply, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	by, err := l.readLocked(h.Session)
	if err != nil {
		return reply, err
	}
	reply.Lease = job.Duration(l.ttl)
	for _, b := range h.Runs {
		a := job.Answer{Ref: b, Status: job.StatusGone}
		if c := l.namedLocked(by, b.Fence); c != nil {
			if a.Status = job.StatusOK; c.stop != "" {
				a.Status, a.Why = job.StatusStop, c.stop
			}
			if c.stop != job.StopTimeout {
				c.until = time.Now().Add(l.ttl)
			}
		}
		reply.Runs = append(reply.Runs, a)
	}
	return reply, nil
}

func (l *fakeLeader) Report(ctx context.Context, r job.Report) (reply job.ReportReply, err error) {
	defer l.leave("report", &err)
	if err := l.enter(ctx, "report", func() { l.reports = append(l.reports, r) }); err != nil {
		return reply, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	by, err := l.readLocked(r.Session)
	if err != nil {
		return reply, err
	}
	for _, res := range r.Results {
		a := job.Answer{Ref: res.Ref, Status: job.StatusGone}
		switch c := l.namedLocked(by, res.Fence); {
		case l.ack != nil && !l.ack(res):
			continue
		case c != nil:
			a.Status = job.StatusOK
			l.results[res.Fence] = res
			delete(l.claims, res.Fence)
			if x := l.sessions[by.Incarnation]; x != nil && x.poll.Shared {
				x.capacity-- // the slot may be another group's by now
			}
			if l.ended != nil {
				l.ended(c.Assignment, by.Worker, res)
			}
		}
		reply.Results = append(reply.Results, a)
	}
	l.changedLocked()
	return reply, nil
}

func (l *fakeLeader) Output(ctx context.Context, o job.Output) (reply job.OutputReply, err error) {
	defer l.leave("output", &err)
	err = l.enter(ctx, "output", func() { l.outputs = append(l.outputs, o) })
	return job.OutputReply{Watched: !l.unwatched}, err
}

// releaseLocked takes a claim back: the run is to be claimed anew.
func (l *fakeLeader) releaseLocked(c *fakeClaim) {
	delete(l.claims, c.Fence)
	c.Assignment.Fence = 0
	l.next = slices.Insert(l.next, 0, c.Assignment)
	l.changedLocked()
}

// do changes the leader, and wakes its polls.
func (l *fakeLeader) do(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.changedLocked()
}

func (l *fakeLeader) assign(as ...job.Assignment) { l.do(func() { l.next = append(l.next, as...) }) }

func (l *fakeLeader) stop(why string, fences ...uint64) {
	l.do(func() {
		for _, f := range fences {
			l.claims[f].stop = why
		}
	})
}

// fork has another process go on with the session of a worker.
func (l *fakeLeader) fork() {
	l.do(func() {
		for _, x := range l.sessions {
			x.Serial += 1000
		}
	})
}

// depose makes a new leader, which knows what is in the log: claims, and not which of them arrived.
func (l *fakeLeader) depose() {
	l.do(func() {
		l.term++
		clear(l.sessions)
		for _, c := range l.claims {
			c.unsent, c.arrived, c.stopSaid, c.until = false, false, false, time.Now().Add(l.ttl)
		}
	})
}

func (l *fakeLeader) hook(before func(ctx context.Context, call string) error) {
	l.do(func() { l.before = before })
}
func (l *fakeLeader) lose(after func(call string) error) { l.do(func() { l.after = after }) }

// log is what the leader has seen by now.
func (l *fakeLeader) log() leaderLog {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.leaderLog
	c.results, c.most = maps.Clone(c.results), maps.Clone(c.most)
	return c
}

// failing fails calls of one kind; "": all.
func failing(call string, err error) func(context.Context, string) error {
	return func(_ context.Context, c string) error {
		if call == "" || c == call {
			return err
		}
		return nil
	}
}

// losing loses the answers to calls of one kind.
func losing(call string, err error) func(string) error {
	return func(c string) error { return failing(call, err)(context.Background(), c) }
}

// of makes assignments of a group.
func of(group int, fences ...uint64) []job.Assignment {
	out := make([]job.Assignment, len(fences))
	for i, f := range fences {
		out[i] = job.Assignment{Run: job.RunKey{Job: job.ID(group)<<job.GroupShift | 7, At: int64(1000 * f),
			Origin: job.OriginSchedule}, Attempt: 1, Fence: f, Type: job.TypeQueue, Timeout: job.Duration(time.Hour)}
	}
	return out
}

func work(fences ...uint64) []job.Assignment { return of(0, fences...) }

// upTo is the fences from one on.
func upTo(first, last uint64) (out []uint64) {
	for f := first; f <= last; f++ {
		out = append(out, f)
	}
	return out
}

// fakeRunner runs attempts that end when the test says so.
type fakeRunner struct {
	mu    sync.Mutex
	ends  map[uint64]chan job.Result
	ctx   map[uint64]context.Context
	order []uint64 // as they were started
}

func (r *fakeRunner) run(ctx context.Context, a job.Assignment) job.Result {
	end := make(chan job.Result, 1)
	r.mu.Lock()
	r.ends[a.Fence], r.ctx[a.Fence] = end, ctx
	r.order = append(r.order, a.Fence)
	r.mu.Unlock()
	select {
	case res := <-end:
		return res
	case <-ctx.Done():
		return job.Result{Outcome: job.OutcomeFailed, Error: "stopped", Permanent: true}
	}
}

// end ends attempts, unless they have ended.
func (r *fakeRunner) end(res job.Result, fences ...uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range fences {
		select {
		case r.ends[f] <- res:
		default:
		}
	}
}

// started are the fences in the order of their starts.
func (r *fakeRunner) started() []uint64 {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.order)
}

// cause is why an attempt was stopped.
func (r *fakeRunner) cause(fence uint64) error {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return context.Cause(r.ctx[fence])
}

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
	*testing.T
	leader *fakeLeader
	runner *fakeRunner
	clock  *fakeClock
	worker *Worker
	stop   context.CancelFunc
	ended  chan error
}

// inBubble runs f with a worker that has a session and waits for work. It stops the worker afterwards.
func inBubble(t *testing.T, change func(*Options, *bench), f func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, leader: newFakeLeader(0), clock: &fakeClock{start: time.Now()}, ended: make(chan error, 1),
			runner: &fakeRunner{ends: map[uint64]chan job.Result{}, ctx: map[uint64]context.Context{}}}
		o := Options{Name: "w1", Secret: "s", Slots: 4, Types: []job.Type{job.TypeQueue}, Groups: OneGroup(b.leader),
			Clock: b.clock, Do: b.runner.run, DrainTimeout: 5 * time.Second}
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
		b.after(time.Second)
		f(b)
	})
}

func slots(n int) func(*Options, *bench) {
	return func(o *Options, _ *bench) { o.Slots = n }
}

// after lets time pass and everything settle.
func (b *bench) after(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

// begin assigns runs that start at once.
func (b *bench) begin(fences ...uint64) {
	b.Helper()
	b.leader.assign(work(fences...)...)
	b.wantStarted(fences...)
}

func (b *bench) wantStarted(want ...uint64) {
	b.Helper()
	got := b.runner.started()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.Fatalf("started %v, want %v", got, want)
	}
}

// wantResult looks in a moment at what was reported.
func (b *bench) wantResult(fence uint64, outcome job.Outcome, text string) job.Result {
	b.Helper()
	b.after(100 * time.Millisecond)
	res, ok := b.leader.log().results[fence]
	if !ok || res.Outcome != outcome || res.Error != text {
		b.Fatalf("fence %d: reported %v: %+v, want %s with %q", fence, ok, res, outcome, text)
	}
	return res
}

func (b *bench) wantNoResult(fences ...uint64) {
	b.Helper()
	results := b.leader.log().results
	for _, f := range fences {
		if r, ok := results[f]; ok {
			b.Fatalf("fence %d was reported: %+v", f, r)
		}
	}
}

// wantStopped fails unless an attempt was stopped for that reason; nil: it was not.
func (b *bench) wantStopped(fence uint64, want error) {
	b.Helper()
	if got := b.runner.cause(fence); got != want { //nolint:errorlint // they are not wrapped
		b.Fatalf("fence %d was stopped because of %v, want %v", fence, got, want)
	}
}

// opened are the polls that opened a session.
func opened(l *fakeLeader) []job.Poll {
	return slices.DeleteFunc(slices.Clone(l.log().polls), func(p job.Poll) bool { return p.Session != "" })
}

func (b *bench) wantBusy(want int) {
	b.Helper()
	synctest.Wait()
	if is := b.worker.Standing(); is.Busy != want {
		b.Fatalf("%d attempts run, want %d", is.Busy, want)
	}
}

// wantEnd waits for the end of a worker that is stopping.
func (b *bench) wantEnd() {
	b.Helper()
	if err := <-b.ended; err != nil {
		b.Fatal(err)
	}
}

func last[T any](s []T) T { return s[len(s)-1] }

// logged is what a worker said.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}
