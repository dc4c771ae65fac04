package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// Options of a measurement. Zero values take the defaults.
type Options struct {
	Binary string // of the nodes and workers
	Addr   string // a cluster that runs already; empty: start one
	Dir    string // for its data
	Secure bool   // the cluster that is started has TLS and asks for tokens
	Nodes  int
	Groups int // Raft groups with jobs
	Target string

	Jobs     int // that are due, or to be created
	Idle     int // that only lie there
	Workers  int // processes
	Slots    int // of each of them, or of each node
	Rate     int // runs a second
	Clients  int
	Bulk     int // jobs with each request of a client; 0: one, by itself
	Kills    int
	Load     int // busy processes
	Duration time.Duration

	NodeFlags  []string
	OwnWorkers bool // the nodes have workers, as they have by default
	// Progress is called now and then; total 0: unknown.
	Progress func(what string, done, total int)
}

// Bench is one measurement on one cluster.
type Bench struct {
	o       Options
	cluster *Cluster
	loaded  int // idle jobs
	dues    int // hot seconds so far, for names
}

// Open starts the cluster, or finds it.
func Open(ctx context.Context, o Options) (*Bench, error) {
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	b := &Bench{o: o}
	if o.Addr != "" {
		b.cluster = Remote(o.Binary, o.Addr)
		_, err := b.cluster.ready(ctx)
		return b, err
	}
	flags := []string{"--executors", "none"}
	if o.Target == TargetHTTP {
		flags = []string{"--executors", "http", "--slots", fmt.Sprint(o.Slots)}
	}
	if o.OwnWorkers {
		flags = nil
	}
	o.Progress("starting the cluster", 0, 0)
	var err error
	b.cluster, err = StartCluster(ctx, o.Binary, o.Dir, o.Nodes, o.Groups, o.Secure,
		append(flags, o.NodeFlags...)...)
	return b, err
}

// Close ends what Open started.
func (b *Bench) Close() { b.cluster.Stop() }

func (b *Bench) result(scenario string, s client.Status) *Result {
	return &Result{Scenario: scenario, Target: b.o.Target, Secure: b.o.Secure, Nodes: len(s.Members),
		Groups: max(0, len(s.Groups)-1), Jobs: s.Jobs}
}

// target starts what carries the runs out, and returns how to make jobs for it and how to hear what it did.
func (b *Bench) target(ctx context.Context) (t target, err error) {
	if b.o.Target == TargetHTTP {
		w, err := startWeb()
		if err != nil {
			return t, err
		}
		return target{typ: "http", payloads: []string{
			fmt.Sprintf(`{"url":%q,"method":"POST","body":{"bench":true}}`, w.url)},
			effects: w.effects, stop: func() { _ = w.srv.Close() }}, nil
	}
	dir, err := os.MkdirTemp(b.o.Dir, "workers-")
	if err != nil {
		return t, err
	}
	s, err := b.cluster.ready(ctx)
	if err != nil {
		return t, err
	}
	queues := queuesOf(len(s.Groups) - 1)
	named := queues // in the calls of the workers
	if b.o.Target != TargetQueue {
		named = nil
	}
	w, err := startCrew(b.cluster, dir, b.o.Workers, b.o.Slots, named)
	if err != nil {
		return t, err
	}
	if b.o.Target != TargetQueue { // such a worker has no session before there is a queue
		if err := b.registered(ctx, w); err != nil {
			w.stop()
			return t, err
		}
	}
	t = target{typ: "queue", effects: w.effects, crew: w, stop: w.stop}
	for _, q := range queues {
		t.payloads = append(t.payloads, `{"queue":"`+q+`","data":{"bench":true}}`)
	}
	return t, nil
}

// begin is how a scenario with runs begins: with some idle jobs, with what carries the runs out, and with a client of
// the leader. rate is how many jobs a second were created meanwhile, 0 if none were. On success the target is the
// caller's to stop.
func (b *Bench) begin(ctx context.Context, idle int) (t target, c *client.Client, rate float64, err error) {
	if rate, err = b.fill(ctx, idle); err != nil {
		return t, nil, 0, err
	}
	if t, err = b.target(ctx); err != nil {
		return t, nil, 0, err
	}
	if c, err = b.cluster.client(ctx); err != nil {
		t.stop()
	}
	return t, c, rate, err
}

// account is how a scenario with runs ends: it stops the target and holds what that saw against the history above
// after.
func (b *Bench) account(ctx context.Context, c *client.Client, t target, r *Result, after uint64,
	ids []job.ID) (*account, error) {
	seen, err := t.effects()
	if err != nil {
		return nil, err
	}
	b.o.Progress("checking", 0, 0)
	return settle(ctx, c, r, after, set(ids), seen)
}

// target is what carries runs out.
type target struct {
	typ      string
	payloads []string                 // of the jobs, in turn
	effects  func() ([]effect, error) // ends it, and says what it did
	crew     *crew
	stop     func() // ends it, whatever happened; twice is fine
}

// registered waits until all workers of a crew have a session.
func (b *Bench) registered(ctx context.Context, w *crew) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		s, err := b.cluster.ready(ctx)
		if err != nil {
			return err
		}
		n := 0
		for _, x := range s.Workers {
			for _, p := range w.workers {
				if name, _, _ := strings.Cut(x.Worker, "@"); name == p.name { // behind it may be the id of a token
					n++
				}
			}
		}
		if n == len(w.workers) {
			return nil
		}
		for _, p := range w.workers {
			if !p.alive() {
				return fmt.Errorf("worker %s ended: %s", p.name, tail(p.log))
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d workers registered", n, len(w.workers))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// meter is what the processes had used at one moment.
type meter struct{ nodes, workers usage }

func (b *Bench) meter(c *crew) (m meter) {
	sum := func(u *usage, list []*process) {
		for _, p := range list {
			if x, err := usageOf(p.pid()); err == nil {
				u.cpu += x.cpu
				u.written += x.written
			}
		}
	}
	sum(&m.nodes, b.cluster.nodes)
	if c != nil {
		sum(&m.workers, c.workers)
	}
	return m
}

// spent puts what was used since a meter into the result.
func (b *Bench) spent(r *Result, since meter, c *crew) {
	if r.Runs+r.Created == 0 {
		return
	}
	now, per := b.meter(c), float64(r.Runs+r.Created)
	r.CPUPer1000 = (now.nodes.cpu - since.nodes.cpu) / per * 1000
	r.WorkerCPU = (now.workers.cpu - since.workers.cpu) / per * 1000
	r.BytesPer = float64(now.nodes.written-since.nodes.written) / per
}

// memory is what the leader has in memory now.
func (b *Bench) memory(ctx context.Context, r *Result) {
	p, err := b.cluster.leader(ctx)
	if err != nil || p == nil {
		return
	}
	if u, err := usageOf(p.pid()); err == nil {
		r.LeaderAnon, r.LeaderFile = u.anon, u.file
	}
}

// fill brings the number of idle jobs up to n and returns how many a second were created.
func (b *Bench) fill(ctx context.Context, n int) (rate float64, err error) {
	if n <= b.loaded {
		return 0, nil
	}
	c, err := b.cluster.client(ctx)
	if err != nil {
		return 0, err
	}
	from, more := b.loaded, n-b.loaded
	line := idle(time.Now())
	_, took, err := load(ctx, c, more, shifted(line, from),
		func(done int) { b.o.Progress("loading jobs that are not due", done, more) })
	b.loaded = n
	return float64(more) / took.Seconds(), err
}

// disk is the size of a node's state file and how many jobs are in it.
func (b *Bench) disk() int64 {
	if len(b.cluster.nodes) == 0 {
		return 0
	}
	info, err := os.Stat(filepath.Join(b.o.Dir, b.cluster.nodes[0].name, datadir.StateFile))
	if err != nil {
		return 0
	}
	return info.Size()
}

// recorded waits until the history has n more records than base. It gives up when nothing happens for a minute.
func (b *Bench) recorded(ctx context.Context, c *client.Client, base uint64, n int) (time.Time, error) {
	last, moved := uint64(0), time.Now()
	for {
		s, err := c.Status(ctx)
		now := time.Now()
		if err != nil {
			return now, err
		}
		done := s.History.Last - base
		if len(s.Groups) > 1 { // each has a history of its own; what is neither due nor open is recorded
			done = uint64(max(0, n-int(s.Backlog)-s.OpenRuns))
		}
		b.o.Progress("running", int(done), n)
		switch {
		case done >= uint64(n):
			return now, nil
		case done != last:
			last, moved = done, now
		case now.Sub(moved) > time.Minute:
			return now, fmt.Errorf("%d of %d runs are recorded, and nothing happened for a minute: %s",
				done, n, s.NotReady)
		}
		time.Sleep(200 * time.Millisecond) // a status costs the leader something
	}
}
