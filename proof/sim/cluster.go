package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/sim/network"
	"github.com/carillon-scheduler/carillon/store"
)

// cluster is a simulated cluster and everything around it.
type cluster struct {
	seed         uint64
	o            options
	p            *plan
	t            *times
	net          *network.Network
	rec          *recorder
	logs         *logs
	servers      []*server
	workers      []*workman
	queueWorkers []*queueWorker
	clients      []*client.Client // one a node
	http         *http.Client
	hooks        *http.Server        // receives notifications
	forms        map[string][]string // by node: the addresses that it is to form a cluster with; nil: n1 begins it

	bg     sync.WaitGroup // processes and their supervisors
	ending atomic.Bool

	mu       sync.Mutex
	problems []string
	kinds    map[string]int // faults that took place
	ids      map[string]job.ID
	names    map[int]string // of the planned jobs, as they are called now
	keys     int
	asked    []asked // what was answered
	made     map[int]*madeJob

	listed     chan struct{} // closed when the first node hears that there are new groups
	listedOnce sync.Once
}

// event notes something for the log of the seed.
func (c *cluster) event(format string, args ...any) {
	line := fmt.Sprintf("%s %s", c.t.now().Format("2006-01-02T15:04:05.000"), fmt.Sprintf(format, args...))
	c.rec.mu.Lock()
	c.rec.log = append(c.rec.log, line)
	c.rec.mu.Unlock()
	if c.logs.out != nil {
		fmt.Fprintln(c.logs.out, line)
	}
}

// problem notes something that must not be, whatever the faults.
func (c *cluster) problem(format string, args ...any) {
	c.event("PROBLEM: "+format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func newCluster(p *plan, dir string, l *logs) *cluster {
	c := &cluster{seed: p.seed, o: p.o, p: p, logs: l, kinds: map[string]int{}, ids: map[string]job.ID{},
		names: map[int]string{}, made: map[int]*madeJob{}, listed: make(chan struct{})}
	c.t = &times{start: time.Now(), base: p.o.base}
	c.net = network.New(rand.New(rand.NewPCG(p.seed, 2)), p.o.latency)
	c.rec = &recorder{t: c.t, calm: make(chan struct{}), behaviours: map[string]*behaviour{},
		archives: map[uint32]*archive{}}
	for i := range p.o.nodes {
		id := memberOf(i)
		s := &server{c: c, id: id, host: c.net.Host(id), dir: dataDir(dir, id), clock: &clock{t: c.t}}
		s.disk.rng = rand.New(rand.NewPCG(p.seed, 100+uint64(i)))
		c.servers = append(c.servers, s)
	}
	for i := range p.o.workers {
		name := fmt.Sprintf("w%d", i+1)
		c.workers = append(c.workers,
			&workman{c: c, name: name, host: c.net.Host(name), clock: &clock{t: c.t}, tags: remoteTags})
	}
	if n := len(c.workers); p.o.kept && n > 1 {
		c.workers[n-1].space = otherSpace
	}
	for i, pl := range p.o.queueWorkers {
		c.queueWorkers = append(c.queueWorkers, newQueueWorker(c, i, pl))
	}
	c.receive(c.net.Host("hooks"))
	here := c.net.Host("client")
	c.http = &http.Client{Transport: &http.Transport{DialContext: here.Dial(nil), MaxIdleConnsPerHost: 4,
		IdleConnTimeout: time.Minute}}
	for _, s := range c.servers {
		c.clients = append(c.clients,
			client.New(s.host.Addr, client.WithHTTPClient(c.http), client.WithAttempts(1), client.WithTimeout(0)))
	}
	return c
}

// noteOutages keeps every outage of a group.
func (c *cluster) noteOutages(group uint32, st *store.Store) func(*store.Changes) {
	seen := 0
	var last store.Outage
	return func(*store.Changes) {
		list := st.Info().Outages
		if len(list) == 0 || len(list) == seen && list[len(list)-1] == last {
			return
		}
		seen, last = len(list), list[len(list)-1]
		c.rec.mu.Lock()
		defer c.rec.mu.Unlock()
		a := c.rec.archiveOf(group)
		for _, o := range list {
			a.outages[checker.Outage{From: job.Instant(o.From), To: job.Instant(o.To)}] = struct{}{}
		}
	}
}

// up starts everything and waits until all nodes are voters.
func (c *cluster) up() bool {
	for _, s := range c.servers {
		s.start()
	}
	for _, w := range c.workers {
		w.start()
	}
	for _, p := range c.queueWorkers {
		p.start()
	}
	return c.eventually(3*time.Hour+20*c.o.members.Interval, "all nodes are voters", func(ctx context.Context) error {
		s, err := c.clients[0].Status(ctx)
		if err != nil || !s.Ready || len(s.Members) != len(c.servers) {
			return fmt.Errorf("ready %t, %d members, %w", s.Ready, len(s.Members), err)
		}
		for _, m := range s.Members {
			if !strings.EqualFold(m.Suffrage, "voter") {
				return fmt.Errorf("%s is a %s", m.ID, m.Suffrage)
			}
		}
		return c.groupsUp(c.o.groups)
	})
}

// eventually asks every second. If it takes too long, that is a problem.
func (c *cluster) eventually(limit time.Duration, what string, wrong func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var why error
	for ctx.Err() == nil {
		err := wrong(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			why = err
		}
		select {
		case <-time.After(time.Second + time.Duration(c.o.pace)*100*time.Millisecond):
		case <-ctx.Done():
		}
	}
	c.problem("it is not so after %s: %s: %v", limit, what, why)
	return false
}

// leader is the server that leads, -1 if none does.
func (c *cluster) leader() int {
	for i, s := range c.servers {
		if l := s.current(); l != nil && !l.gone() && l.n.Leads() {
			return i
		}
	}
	return -1
}

// play does what the plan says, and returns when its time is over and all faults are.
func (c *cluster) play() {
	var wg sync.WaitGroup
	began := time.Now()
	at := func(d time.Duration, fn func()) {
		wg.Go(func() {
			if d > 0 {
				time.Sleep(d)
			}
			fn()
		})
	}
	for i := range c.p.calls {
		pc := c.p.calls[i]
		at(pc.at, func() { c.do(pc) })
	}
	for i := range c.p.faults {
		f := c.p.faults[i]
		at(f.at, func() { c.inflict(f) })
	}
	at(c.o.length, func() {})
	wg.Wait()
	c.event("the plan is done after %s", time.Since(began))
}

// down stops everything in good order and waits for it.
func (c *cluster) down() {
	c.ending.Store(true)
	var wg sync.WaitGroup
	for _, w := range c.workers {
		wg.Go(func() { w.end() })
	}
	for _, p := range c.queueWorkers {
		wg.Go(func() { p.end() })
	}
	wg.Wait()
	for _, s := range c.servers {
		wg.Go(func() { s.stop() })
	}
	wg.Wait()
	c.http.CloseIdleConnections()
	c.hooks.Close()
	c.bg.Wait()
}

// logs are those of all processes, kept for a seed that fails.
type logs struct {
	out   io.Writer // nil: nobody reads them
	level slog.Level
}

func (l *logs) handler(who string) slog.Handler {
	if l.out == nil {
		return slog.DiscardHandler
	}
	return slog.NewTextHandler(l.out,
		&slog.HandlerOptions{Level: l.level}).WithAttrs([]slog.Attr{slog.String("who", who)})
}
