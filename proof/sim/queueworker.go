package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/sim/network"
)

// plannedQueueWorker is a queue worker of a plan.
type plannedQueueWorker struct {
	queue string
	hands int    // runs at a time
	space string // the namespace; empty: the usual one
}

var queueWorkerFaults = []string{"kill-queue-worker", "kill-queue-worker", "cut-queue-worker", "cut-queue-worker",
	"deaf-queue-worker", "mute-queue-worker", "lag-queue-worker", "stop-queue-worker", "pause-queue-worker"}

// addQueueWorkers gives some of the plans with queues workers that name one. The dice are its own, so that the others
// are what they were without them.
func (p *plan) addQueueWorkers(rng *rand.Rand) {
	queues := false
	for _, j := range p.jobs {
		queues = queues || j.spec.Type == job.TypeQueue
	}
	if !queues || !chance(rng, 0.6) {
		return
	}
	for _, q := range queueNames {
		for range 1 + rng.IntN(2) {
			p.o.queueWorkers = append(p.o.queueWorkers, plannedQueueWorker{queue: q, hands: 1 + rng.IntN(4)})
		}
	}
	p.o.onlyByQueue = chance(rng, 0.6)
	for range 2 + rng.IntN(7) {
		f := plannedFault{at: between(rng, p.o.length/20, p.o.length), kind: pick(rng, queueWorkerFaults...),
			a: rng.IntN(len(p.o.queueWorkers)), x: rng.Uint64()}
		f.lasts = 2*time.Second + time.Duration(float64(60*time.Second)*rng.Float64()*rng.Float64())
		p.faults = append(p.faults, f)
	}
}

// takes are the types of runs that nodes and workers with a session carry out.
func (o *options) takes() []job.Type {
	if o.onlyByQueue {
		return runnerTypes[:2]
	}
	return runnerTypes
}

// queueWorker is a machine with a queue worker on it.
type queueWorker struct {
	c     *cluster
	name  string
	host  *network.Host
	clock *clock
	plannedQueueWorker

	mu   sync.Mutex
	proc *process
	stop context.CancelFunc // nil: it is down
	done chan struct{}
}

func newQueueWorker(c *cluster, i int, p plannedQueueWorker) *queueWorker {
	name := fmt.Sprintf("p%d", i+1)
	return &queueWorker{c: c, name: name, host: c.net.Host(name), clock: &clock{t: c.t}, plannedQueueWorker: p}
}

func (p *queueWorker) start() {
	proc := newProcess(p.name)
	run := &runner{rec: p.c.rec, proc: proc, seed: p.c.seed}
	w := client.Worker{
		Queue: p.queue, Namespace: cmp.Or(p.space, job.DefaultNamespace), Name: p.name, Concurrency: p.hands,
		Tags: remoteTags, DrainTimeout: 10 * time.Second,
		Clock: p.clock, Logger: slog.New(p.c.logs.handler(p.name)),
		Handler: func(ctx context.Context, r *client.Run) error { return run.attempt(ctx, r) },
		HTTPClient: &http.Client{Transport: &pollTap{http.Transport{DialContext: p.host.Dial(proc.dead),
			MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}, p}},
	}
	for _, s := range p.c.servers {
		w.Addrs = append(w.Addrs, s.host.Addr)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	p.mu.Lock()
	p.proc, p.stop, p.done = proc, cancel, done
	p.mu.Unlock()
	p.c.bg.Go(func() {
		defer close(done)
		if err := w.Run(ctx); err != nil && job.CodeOf(err) != job.CodeOutcomeUnknown {
			p.c.problem("%s: %v", p.name, err)
		}
	})
}

func (p *queueWorker) take() (proc *process, stop context.CancelFunc, done chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stop, p.stop = p.stop, nil
	return p.proc, stop, p.done
}

// kill is kill -9. The goroutines of the process end a little later, and nothing of theirs is heard.
func (p *queueWorker) kill() bool {
	proc, stop, _ := p.take()
	if stop == nil {
		return false
	}
	proc.mu.Lock()
	close(proc.dead)
	proc.mu.Unlock()
	p.c.net.BreakOff(p.host, func(*network.Host) bool { return true })
	proc.thaw()
	stop()
	return true
}

// end is SIGTERM.
func (p *queueWorker) end() bool {
	_, stop, done := p.take()
	if stop == nil {
		return false
	}
	stop()
	<-done
	return true
}

func (p *queueWorker) where() (string, *network.Host, *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name, p.host, p.proc
}

// attempt carries out an attempt of a queue worker.
func (r *runner) attempt(ctx context.Context, run *client.Run) error {
	key, err := job.ParseRunKey(run.RunID)
	if err != nil {
		return err
	}
	data, err := json.Marshal(job.QueuePayload{Queue: run.Queue, Data: run.Data})
	if err != nil {
		return err
	}
	res := r.Run(ctx, job.Assignment{Run: key, Fence: run.Fence, Attempt: run.Attempt, Key: run.Key,
		JobName: run.JobName, Namespace: run.Namespace, Type: job.TypeQueue, Payload: data, Timeout: run.Timeout,
		Delivery: run.Delivery})
	if res.Outcome == job.OutcomeSucceeded {
		run.Output = res.Output
		return nil
	}
	err = errors.New(res.Error)
	if res.RetryAfter > 0 {
		err = client.RetryAfter(err, time.Duration(res.RetryAfter))
	}
	if res.Permanent {
		err = client.Permanent(err)
	}
	return err
}

// pollTap writes down what is in the answers to polls.
type pollTap struct {
	http.Transport
	p *queueWorker
}

func (t *pollTap) RoundTrip(rq *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(rq)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasSuffix(rq.URL.Path, ":poll") {
		return resp, err
	}
	data, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	var reply job.PollReply
	if err := wire.UnmarshalMsgpack(data, &reply); err != nil {
		t.p.c.problem("%s: the answer to a poll cannot be read: %v", t.p.name, err)
		return resp, nil
	}
	t.p.c.rec.hand(t.p.name, &reply)
	return resp, nil
}

// inflictQueueWorker breaks what stands between a queue worker and the cluster, one way or slowly. The rest is as with
// any other worker.
func (c *cluster) inflictQueueWorker(p *queueWorker, kind string, f plannedFault, rng *rand.Rand) {
	var servers []*network.Host
	for _, s := range c.servers {
		servers = append(servers, s.host)
	}
	it := []*network.Host{p.host}
	switch kind {
	case "deaf":
		mend := c.speechless(servers, it)
		time.Sleep(f.lasts)
		mend()
	case "mute":
		mend := c.speechless(it, servers)
		time.Sleep(f.lasts)
		mend()
	case "lag":
		d := between(rng, 20*time.Millisecond, 3*time.Second)
		x := c.fault(checker.FaultLink, p.name, "", d)
		for _, s := range servers {
			c.net.Delay(p.name, s.Name, d)
		}
		time.Sleep(f.lasts)
		for _, s := range servers {
			c.net.Delay(p.name, s.Name, 0)
		}
		c.over(x)
	default:
		c.inflictWorker(p, kind, f, rng)
		return
	}
	c.count(f.kind)
}
