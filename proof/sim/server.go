package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/sim/network"
	"github.com/carillon-scheduler/carillon/store"
)

var runnerTypes = []job.Type{job.TypeHTTP, job.TypeShell, job.TypeQueue}

// server is a machine with a node on it, over all the lives of that.
type server struct {
	c     *cluster
	id    string
	host  *network.Host
	dir   string
	clock *clock
	disk  disk

	voteless bool // a fault takes its vote away or has done so; under the lock of the cluster

	mu    sync.Mutex
	life  *life // nil: it is down
	wiped bool  // its first data directory is gone: it joins the nodes that are there
}

// life is one process.
type life struct {
	*process
	s       *server
	n       *node.Node
	cancel  context.CancelFunc
	done    chan struct{} // closed when everything of it has ended
	stopped atomic.Bool   // on purpose
}

// disk is a machine's disk: whole, slow or failing.
type disk struct {
	mu    sync.Mutex
	rng   *rand.Rand
	slow  time.Duration // a write takes up to this long
	fails int           // this many more writes, then one fails; 0: none does
	hangs chan struct{} // not nil: writes wait until it is closed
	low   bool          // it is almost full
}

// space is how much room there is.
func (d *disk) space() (free, total uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.low {
		return 1 << 20, 1 << 40, nil
	}
	return 1 << 39, 1 << 40, nil
}

func (d *disk) fill(low bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.low = low
}

var errDisk = errors.New("input/output error (simulated)")

// write is called before every write of a process.
func (d *disk) write(p *process) error {
	if !p.awake() {
		return faultpoint.ErrProcessGone
	}
	d.mu.Lock()
	var wait time.Duration
	if d.slow > 0 {
		wait = time.Duration(d.rng.Int64N(int64(d.slow)))
	}
	hangs := d.hangs
	failed := false
	if d.fails > 0 {
		d.fails--
		failed = d.fails == 0
	}
	d.mu.Unlock()
	if failed {
		return errDisk
	}
	if hangs != nil {
		select {
		case <-hangs:
		case <-p.dead:
			return faultpoint.ErrProcessGone
		}
	}
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-p.dead:
			return faultpoint.ErrProcessGone
		}
	}
	return nil
}

// hang makes every write wait until the returned function is called.
func (d *disk) hang() (over func()) {
	c := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs = c
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.hangs = nil
		close(c)
	}
}

func (d *disk) set(slow time.Duration, fails int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow, d.fails = slow, fails
}

// start brings the node up, as a supervisor does: until it works.
func (s *server) start() {
	for tries := 0; ; tries++ {
		err := s.open()
		if err == nil {
			return
		}
		s.c.event("%s does not start: %v", s.id, err)
		if !errors.Is(err, errDisk) && tries > 5 {
			s.c.problem("%s does not start: %v", s.id, err)
			return
		}
		time.Sleep(time.Second)
	}
}

func (s *server) open() error {
	p := newProcess(s.id)
	l := &life{process: p, s: s, done: make(chan struct{})}
	o := &s.c.o
	cfg := node.Config{
		NodeID: s.id, Listen: s.host.Addr, Advertise: s.host.Addr, DataDir: s.dir,
		Bootstrap: s.c.forms == nil && s.id == "n1", Groups: o.groups, Cluster: s.c.forms[s.id],
		Executors: o.takes(), Slots: o.slots, Tags: nodeTags, Version: "sim",
		Logger:        slog.New(&coldLog{Handler: s.c.logs.handler(s.id), p: p}),
		HistoryMaxAge: cmp.Or(o.historyAge, 100*365*24*time.Hour), HistoryMaxCount: cmp.Or(o.historyCount, 1<<40),
		DrainTimeout: 10 * time.Second,
		Clock:        s.clock, TTL: o.ttl, Raft: o.raft,
		Store:   node.StoreConfig{MmapSize: 8 << 20, RecentNames: 5, NoSync: true},
		Members: o.members,
		Machine: node.Machine{
			Node: faultpoint.Node{
				NoSocket: true,
				Listen:   s.host.Listen,
				Dial:     s.host.Dial(p.dead), Write: func(string) error { return s.disk.write(p) },
				Leading: s.c.leads(s.id), DiskSpace: s.disk.space, Pace: o.pace,
			},
			Runners: map[job.Type]executor.Runner{}, WorkerClock: &clock{t: s.c.t},
			Leader: func(far worker.Leader) worker.Leader { return &handedTo{far, s.c.rec, s.id} },
		},
		Fatal: l.fatal,
	}
	s.mu.Lock()
	if s.c.forms == nil && (s.wiped || s.id != "n1") {
		cfg.Bootstrap = false
		for _, o := range s.c.servers {
			if o != s && (s.wiped || o.id == "n1") {
				cfg.Join = append(cfg.Join, o.host.Addr)
			}
		}
	}
	s.mu.Unlock()
	for _, t := range o.takes() {
		cfg.Machine.Runners[t] = &runner{rec: s.c.rec, proc: p, seed: s.c.seed}
	}
	n, err := node.Open(cfg)
	if err != nil {
		return err
	}
	if p.gone() { // the disk failed in the middle of it
		s.c.net.Vanish(s.host)
		n.Kill()
		return errDisk
	}
	l.n = n
	s.c.follow(l)
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	s.mu.Lock()
	s.life = l
	s.mu.Unlock()
	s.c.bg.Go(func() {
		err := n.Run(ctx)
		if !l.stopped.Load() && !p.gone() {
			s.c.problem("%s ended by itself: %v", s.id, err)
		}
		close(l.done)
		cancel()
	})
	return nil
}

// fatal is the end of a process whose disk failed. It returns, unlike the real one, into a process that is cut off from
// everything.
func (l *life) fatal(err error) {
	if l.gone() {
		return
	}
	if !errors.Is(err, errDisk) {
		l.s.c.problem("%s: fatal: %v", l.s.id, err)
	}
	l.s.c.event("%s: fatal: %v", l.s.id, err)
	l.die()
	if l.n == nil {
		return // during Open
	}
	s := l.s
	s.c.bg.Go(func() {
		f := s.c.fault(checker.FaultKill, s.id, "", 0)
		l.n.Kill()
		<-l.done
		time.Sleep(time.Second) // the supervisor
		s.mu.Lock()
		mine := s.life == l
		if mine {
			s.life = nil
		}
		s.mu.Unlock()
		if mine && !s.c.ending.Load() {
			s.start()
			s.c.event("%s is back", s.id)
		}
		s.c.over(f)
	})
}

// die cuts a process off from the world, at once.
func (l *life) die() {
	l.mu.Lock()
	if l.gone() {
		l.mu.Unlock()
		return
	}
	close(l.dead)
	l.mu.Unlock()
	l.s.c.net.Vanish(l.s.host)
	l.thaw()
}

// state is this server's replica of a group; nil: it has none right now.
func (s *server) state(group uint32) *store.Store {
	if l := s.current(); l != nil {
		return l.n.States()[group]
	}
	return nil
}

func (s *server) current() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// take makes the server have no process, and returns the one that it had.
func (s *server) take() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.life
	if l == nil || l.gone() {
		return nil // its end is its owner's business
	}
	s.life = nil
	return l
}

// kill is kill -9; it returns when the data directory is free again. It says false if there was nothing to kill.
func (s *server) kill() bool {
	l := s.take()
	if l == nil {
		return false
	}
	l.stopped.Store(true)
	l.die()
	l.n.Kill()
	<-l.done
	return true
}

// stop is SIGTERM. A process that stands still gets it when it goes on.
func (s *server) stop() bool {
	l := s.take()
	if l == nil {
		return false
	}
	l.stopped.Store(true)
	l.awake()
	l.cancel()
	<-l.done
	return true
}

// workman is a machine with a worker of its own, without a node.
type workman struct {
	c     *cluster
	name  string
	host  *network.Host
	clock *clock
	tags  map[string]string
	space string // whose runs it takes; empty: those of all
	// secret is "" for the worker that lives in its directory, whose processes follow each other; a second one of its
	// name has another.
	secret string

	mu   sync.Mutex
	proc *process
	w    *worker.Worker
	stop context.CancelFunc
	done chan struct{}
}

func (w *workman) start() {
	p := newProcess(w.name)
	var addrs []string
	for _, s := range w.c.servers {
		addrs = append(addrs, s.host.Addr)
	}
	ctx, cancel := context.WithCancel(context.Background())
	groups, hangUp := w.far(addrs, client.WithDial(w.host.Dial(p.dead)))
	runners := map[job.Type]executor.Runner{}
	for _, t := range w.c.o.takes() {
		runners[t] = &runner{rec: w.c.rec, proc: p, seed: w.c.seed}
	}
	x, err := executor.NewWorker(worker.Options{Name: w.name, Secret: cmp.Or(w.secret, "secret of "+w.name), Slots: 4,
		Namespace: w.space, Tags: w.tags, Groups: groups, Clock: w.clock, Pace: w.c.o.pace,
		DrainTimeout: 10 * time.Second, Logger: slog.New(w.c.logs.handler(w.name))}, runners)
	if err != nil {
		w.c.problem("%s: %v", w.name, err)
		cancel()
		hangUp()
		return
	}
	done := make(chan struct{})
	w.mu.Lock()
	w.proc, w.w, w.stop, w.done = p, x, cancel, done
	w.mu.Unlock()
	w.c.bg.Go(func() {
		x.Run(ctx)
		hangUp()
		cancel()
		close(done)
	})
}

func (w *workman) kill() bool {
	w.mu.Lock()
	p, x, done := w.proc, w.w, w.done
	w.w = nil
	w.mu.Unlock()
	if x == nil {
		return false
	}
	p.mu.Lock()
	close(p.dead)
	p.mu.Unlock()
	w.c.net.BreakOff(w.host, func(*network.Host) bool { return true })
	p.thaw()
	x.Kill()
	<-done
	return true
}

func (w *workman) end() bool {
	w.mu.Lock()
	x, stop, done := w.w, w.stop, w.done
	w.w = nil
	w.mu.Unlock()
	if x == nil {
		return false
	}
	stop()
	<-done
	return true
}

func (w *workman) where() (string, *network.Host, *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.name, w.host, w.proc
}

// handedTo writes down what a worker is given.
type handedTo struct {
	worker.Leader
	rec  *recorder
	name string
}

func (h *handedTo) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	r, err := h.Leader.Poll(ctx, p)
	if err == nil {
		h.rec.hand(h.name, &r)
	}
	return r, err
}

// hand writes down what is in the answer to a poll.
func (r *recorder) hand(name string, reply *job.PollReply) {
	if len(reply.Runs) == 0 {
		return
	}
	session, err := job.ParseSession(reply.Session)
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range reply.Runs {
		r.handed = append(r.handed, checker.Handed{Worker: name, Incarnation: session.Incarnation, Term: session.Term,
			Run: a.Run, Fence: a.Fence, Attempt: a.Attempt, Key: a.Key, At: r.t.instant(), Got: received(&a)})
	}
}

func dataDir(root, id string) string { return filepath.Join(root, id) }

func memberOf(id int) string { return fmt.Sprintf("n%d", id+1) }
