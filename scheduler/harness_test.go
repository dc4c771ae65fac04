package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	_ "github.com/carillon-scheduler/carillon/executor" // the types of job
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// testClock is the bubble's clock with a wall that can be set.
type testClock struct {
	mu     sync.Mutex
	start  time.Time
	offset time.Duration
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset).Round(0)
}

func (c *testClock) Mono() time.Duration { return time.Since(c.start) }

func (c *testClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// testLog is a log with one member: it applies to a real state machine, a moment later, in order.
type testLog struct {
	f  *fsm.FSM
	mu sync.Mutex

	term    uint64
	index   uint64
	queue   chan *testFuture
	latency time.Duration
	// fault, if set, may refuse a command (an error that wraps ErrNotApplied) or answer it with an ambiguous error;
	// applied says whether it takes effect all the same.
	fault  func(cmd fsm.Command) (err error, applied bool)
	verify func(context.Context) error
	sound  func(age time.Duration) error       // nil: it is
	hear   func(cmd fsm.Command) time.Duration // how long the answer to a command that was applied takes
	seen   []fsm.Command                       // every command that was applied
	after  func(cmd fsm.Command)               // called when one was
}

type testFuture struct {
	cmd   fsm.Command
	data  []byte
	term  uint64
	done  chan struct{}
	reply *fsm.Reply
	err   error
}

func (f *testFuture) Wait() (*fsm.Reply, error) {
	<-f.done
	return f.reply, f.err
}

func proposeEach(propose func(fsm.Command) Future, cmds []fsm.Command) []Future {
	out := make([]Future, len(cmds))
	for i, cmd := range cmds {
		out[i] = propose(cmd)
	}
	return out
}

func (l *testLog) ProposeAll(cmds ...fsm.Command) []Future { return proposeEach(l.Propose, cmds) }

func (l *testLog) Propose(cmd fsm.Command) Future {
	f := &testFuture{cmd: cmd, done: make(chan struct{})}
	data, err := fsm.Encode(cmd)
	if err != nil {
		f.err = fmt.Errorf("%w: %w", ErrNotApplied, err)
		close(f.done)
		return f
	}
	l.mu.Lock()
	f.data, f.term = data, l.term
	l.mu.Unlock()
	l.queue <- f
	return f
}

func (l *testLog) Confirm(_ context.Context, age time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sound != nil {
		return l.sound(age)
	}
	return nil
}

func (l *testLog) VerifyLeader(ctx context.Context) error {
	l.mu.Lock()
	v := l.verify
	l.mu.Unlock()
	if v != nil {
		return v(ctx)
	}
	return nil
}

func (l *testLog) run() {
	for f := range l.queue {
		time.Sleep(l.latency)
		l.mu.Lock()
		fault := l.fault
		l.mu.Unlock()
		applied := true
		if fault != nil {
			f.err, applied = fault(f.cmd)
			if f.err == nil {
				applied = true
			}
		}
		if applied {
			l.index++
			switch r := l.f.Apply(&raft.Log{Index: l.index, Term: f.term, Type: raft.LogCommand, Data: f.data}).(type) {
			case *fsm.Reply:
				if f.err == nil {
					f.reply = r
				}
			case error:
				f.err = r
			}
			l.mu.Lock()
			l.seen = append(l.seen, f.cmd)
			hear, after := l.hear, l.after
			l.mu.Unlock()
			if after != nil {
				after(f.cmd)
			}
			if hear != nil {
				go func() {
					time.Sleep(hear(f.cmd))
					close(f.done)
				}()
				continue
			}
		}
		close(f.done)
	}
}

// world is a store, a log and, one after the other, the leaderships over them.
type world struct {
	t     *testing.T
	st    *store.Store
	log   *testLog
	clock *testClock
	opts  Options
	next  uint64

	s     *Scheduler
	leave func()
}

// run runs a scenario in virtual time.
func run(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true, MmapSize: 1 << 28})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, st: st, clock: &testClock{start: time.Now()},
			log: &testLog{f: fsm.New(st, fsm.Options{}), queue: make(chan *testFuture, 1024), latency: time.Millisecond}}
		done := make(chan struct{})
		go func() { w.log.run(); close(done) }()
		t.Cleanup(func() {
			w.stop()
			close(w.log.queue)
			<-done
			st.Close()
		})
		// Midnight of the year 2000 is a busy instant; nothing in the tests should depend on it.
		time.Sleep(time.Hour + 7*time.Second + 250*time.Millisecond)
		fn(t, w)
	})
}

// lead begins a leadership and waits until it serves.
func (w *world) lead() *Scheduler {
	w.t.Helper()
	w.start()
	synctest.Wait()
	for i := 0; w.s.Ready() != nil; i++ {
		if i > 100 {
			w.t.Fatalf("not ready: %v", w.s.Ready())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return w.s
}

// start begins a leadership.
func (w *world) start() {
	w.stop()
	w.log.mu.Lock()
	w.log.term++
	term := w.log.term
	w.log.mu.Unlock()
	o := w.opts
	o.Store, o.Term, o.Clock = w.st, term, w.clock
	if o.Proposer == nil {
		o.Proposer = w.log
	}
	if testing.Verbose() && o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	s := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	w.s = s
	w.leave = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// stop ends the leadership; no node leads then.
func (w *world) stop() {
	if w.leave != nil {
		w.leave()
		w.leave = nil
	}
}

func (w *world) do(cmd fsm.Command) *fsm.Reply {
	w.t.Helper()
	r, err := w.s.Propose(context.Background(), cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) head() fsm.Head {
	w.t.Helper()
	now, err := w.s.Stamp()
	if err != nil {
		w.t.Fatal(err)
	}
	return w.s.head(now)
}

// create makes a job of type shell unless edit says otherwise.
func (w *world) create(sched string, edit func(*job.Spec)) job.ID {
	w.t.Helper()
	spec := job.Spec{Type: job.TypeShell, Schedule: sched, Payload: []byte(`{"command":"true"}`)}
	if edit != nil {
		edit(&spec)
	}
	spec.Normalize()
	if err := spec.Validate(); err != nil {
		w.t.Fatal(err)
	}
	h := w.head()
	w.next = max(w.next, w.st.Counters().NextJob) + 1
	id := job.ID(w.next)
	sc, err := Compile(&spec, id)
	if err != nil {
		w.t.Fatal(err)
	}
	next := NextAfter(&spec, sc, 0, h.Now)
	if spec.OneOff() {
		next = NextAfter(&spec, sc, 0, 0)
	}
	def := store.Definition{Spec: spec, Version: 1, CreatedAt: h.Now, UpdatedAt: h.Now}
	data := def.Append(nil)
	r := w.do(&fsm.Create{Head: h, Items: []fsm.CreateItem{{Job: uint64(id), Def: data, Next: next}}})
	if r.Items[0].Code != fsm.CodeOK {
		w.t.Fatalf("create: %+v", r.Items[0])
	}
	return id
}

func (w *world) trigger(id job.ID) fsm.Outcome {
	w.t.Helper()
	return w.do(&fsm.Trigger{Head: w.head(), Job: uint64(id)}).Items[0]
}

func (w *world) state(id job.ID) (store.State, store.Place) {
	w.t.Helper()
	var s store.State
	var p store.Place
	if err := w.st.View(func(v *store.View) (err error) {
		s, p, _, err = v.State(id)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return s, p
}

// history is a job's records, oldest first, and after them the interval that is not written out yet.
func (w *world) history(id job.ID) []store.Record {
	w.t.Helper()
	var out []store.Record
	if err := w.st.View(func(v *store.View) error {
		s, _, _, err := v.State(id)
		if err != nil {
			return err
		}
		if err := v.EachRecord(0, func(_ uint64, r store.Record) bool {
			if r.Job == id {
				out = append(out, r)
			}
			return true
		}); err != nil {
			return err
		}
		if !s.NotRun.Empty() {
			out = append(out, store.Record{Job: id, Status: s.NotRun.Status, Reason: s.NotRun.Reason, Interval: s.NotRun})
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// summary is a job's history in short: "succeeded", "failed(timeout)", "missed(outage)x3".
func (w *world) summary(id job.ID) []string {
	var out []string
	for _, r := range w.history(id) {
		s := r.Status.String()
		if r.Reason != 0 {
			s += "(" + r.Reason.String() + ")"
		}
		if n := r.Interval.Count; n > 0 {
			s += fmt.Sprintf("x%d", n)
		}
		out = append(out, s)
	}
	return out
}

func (w *world) wantHistory(id job.ID, want ...string) {
	w.t.Helper()
	if got := w.summary(id); !slices.Equal(got, want) {
		w.t.Errorf("history of %s: %q, want %q", id, got, want)
	}
}

func (w *world) rows(id job.ID) map[job.RunKey]store.Row {
	w.t.Helper()
	out := map[job.RunKey]store.Row{}
	if err := w.st.View(func(v *store.View) error {
		return v.EachRun(job.RunKey{}, func(k job.RunKey, r store.Row) bool {
			if k.Job == id {
				out[k] = r
			}
			return true
		})
	}); err != nil {
		w.t.Fatal(err)
	}
	return out
}

var errAmbiguous = errors.New("leadership lost while committing log")

// notApplied is the fault of a leadership transfer.
func notApplied(fsm.Command) (error, bool) { return fmt.Errorf("%w: transfer", ErrNotApplied), false }

// applied counts the commands of a type that took effect.
func applied[T any](w *world) (out []*T) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	for _, c := range w.log.seen {
		if x, ok := any(c).(*T); ok {
			out = append(out, x)
		}
	}
	return out
}

func (w *world) setFault(fn func(fsm.Command) (error, bool)) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.log.fault = fn
}

func (w *world) definition(id job.ID) store.Definition {
	w.t.Helper()
	var def store.Definition
	if err := w.st.View(func(v *store.View) (err error) {
		def, _, err = v.Definition(id)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return def
}

// update replaces a definition and leaves the due time alone.
func (w *world) update(id job.ID, def store.Definition) fsm.Outcome {
	w.t.Helper()
	data := def.Append(nil)
	s, p := w.state(id)
	next := fsm.When{At: p.At, Ready: p.Ready}
	if p.Parked {
		next = fsm.When{At: s.ParkedAt, Ready: s.ParkedReady}
	}
	return w.do(&fsm.Update{Head: w.head(), Job: uint64(id), Version: def.Version - 1, Def: data,
		Seen: fsm.Seen{Gen: s.Gen, Parked: p.Parked, At: p.At, Ready: p.Ready}, Next: next}).Items[0]
}
