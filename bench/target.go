package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// effect is a delivery as the target saw it.
type effect struct {
	run   job.RunKey
	fence uint64
	at    int64 // unix milliseconds
}

// The targets of runs.
const (
	TargetNoop  = "noop"  // workers in processes of their own that answer at once
	TargetQueue = "queue" // the same, with a simple worker for each queue as anybody may write one
	TargetHTTP  = "http"  // a local HTTP server, called by the nodes' own workers
)

// webTarget is a local server that answers at once and remembers what it was asked.
type webTarget struct {
	srv *http.Server
	url string

	mu   sync.Mutex
	seen []effect
}

func startWeb() (*webTarget, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &webTarget{url: "http://" + ln.Addr().String() + "/run"}
	t.srv = &http.Server{Handler: t}
	go func() { _ = t.srv.Serve(ln) }() // ends with Close
	return t, nil
}

func (t *webTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixMilli()
	key, err := job.ParseRunKey(r.Header.Get("Carillon-Run"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var fence uint64
	if _, err := fmt.Sscan(r.Header.Get("Carillon-Fence"), &fence); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	t.seen = append(t.seen, effect{key, fence, now})
	t.mu.Unlock()
}

func (t *webTarget) effects() ([]effect, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen, t.srv.Close()
}

// crew is a number of worker processes that answer at once.
type crew struct {
	workers []*process
	files   []string
}

func startCrew(c *Cluster, dir string, n, slots int, queues []string) (*crew, error) {
	w := &crew{}
	for i := range n {
		name := fmt.Sprintf("bench-%d", i)
		file := filepath.Join(dir, name+".effects")
		args := []string{"bench", "worker", "--name", name, "--slots", fmt.Sprint(slots), "--effects", file}
		if len(queues) > 0 {
			args = append(args, "--queues", strings.Join(queues, ","))
		}
		if c.token != "" {
			args = append(args, "--token-file", c.token)
		}
		for _, a := range c.addrs {
			args = append(args, "--join", a)
		}
		p := &process{name: name, log: filepath.Join(dir, name+".log"), args: args}
		if err := p.start(c.binary); err != nil {
			w.stop()
			return nil, err
		}
		w.workers = append(w.workers, p)
		w.files = append(w.files, file)
	}
	return w, nil
}

func (w *crew) stop() {
	for _, p := range w.workers {
		p.stop()
	}
}

// effects ends the workers and reads what they did.
func (w *crew) effects() (out []effect, err error) {
	w.stop()
	for _, file := range w.files {
		part, err := readEffects(file)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}

// WorkerOptions are those of a worker that does nothing, fast.
type WorkerOptions struct {
	Name    string
	Slots   int
	Join    []string
	Effects string   // file for what it did
	Queues  []string // whose runs it takes, with calls that name the queue; none: those of all, by the groups' leaders
	Token   string   // of a secure cluster
}

// queuesOf are where the runs are: in each of several groups, which a queue is in one of.
func queuesOf(groups int) []string {
	if groups <= 1 {
		return []string{"bench"}
	}
	queues := make([]string, groups)
	for i, found := 0, 0; found < groups; i++ {
		q := fmt.Sprint("bench-", i)
		if g := job.HomeOf(job.NameQueue, job.DefaultNamespace, q, uint32(groups)); queues[g-1] == "" {
			queues[g-1] = q
			found++
		}
	}
	return queues
}

// RunWorker is the process of such a worker. What it was given is written down when it ends.
func RunWorker(ctx context.Context, o WorkerOptions) error {
	if len(o.Queues) > 0 {
		return takeByQueue(ctx, o)
	}
	var opts []client.LeaderOption
	if o.Token != "" {
		opts = append(opts, client.WithLeaderToken(o.Token))
	}
	groups, hangUp := client.FindGroups(o.Join, opts...)
	defer hangUp()
	r := &recorder{}
	w, err := executor.NewWorker(worker.Options{Name: o.Name, Secret: o.Name, Slots: o.Slots, Groups: groups,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}, map[job.Type]executor.Runner{job.TypeQueue: r})
	if err != nil {
		return err
	}
	err = w.Run(ctx)
	return errors.Join(err, r.write(o.Effects))
}

// takeByQueue is a worker by queues: what a poll brought it reports, in one call each.
func takeByQueue(ctx context.Context, o WorkerOptions) error {
	r := &recorder{}
	var all sync.WaitGroup
	for i := range pollsPerQueue * len(o.Queues) {
		opts := []client.LeaderOption{client.WithQueue("", o.Queues[i%len(o.Queues)])}
		if o.Token != "" {
			opts = append(opts, client.WithLeaderToken(o.Token))
		}
		l := client.NewLeader([]string{o.Join[i%len(o.Join)]}, opts...)
		all.Go(func() {
			defer l.Close()
			q := job.Poll{Worker: fmt.Sprintf("%s-%d", o.Name, i), Free: min(o.Slots, job.MaxItems),
				Wait: job.Duration(time.Second), Hold: job.Duration(time.Second)}
			for ctx.Err() == nil {
				got, err := l.Poll(ctx, q)
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				r.work(l, got)
				q.Session, q.Worker = got.Session, ""
			}
		})
	}
	all.Wait()
	return r.write(o.Effects)
}

// pollsPerQueue is how many polls such a worker has on their way for a queue.
const pollsPerQueue = 2

// work does the work of some runs and reports it, until that is accepted.
func (r *recorder) work(l *client.Leader, got job.PollReply) {
	report := job.Report{Session: got.Session}
	for _, a := range got.Runs {
		res := r.Run(context.Background(), a)
		res.Fence = a.Fence
		report.Results = append(report.Results, res)
	}
	for len(report.Results) > 0 {
		if _, err := l.Report(context.Background(), report); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

type recorder struct {
	mu   sync.Mutex
	seen []effect
}

func (r *recorder) Run(_ context.Context, a job.Assignment) job.Result {
	e := effect{a.Run, a.Fence, time.Now().UnixMilli()}
	r.mu.Lock()
	r.seen = append(r.seen, e)
	r.mu.Unlock()
	return job.Result{Outcome: job.OutcomeSucceeded}
}

func (r *recorder) write(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.seen {
		rec := [5]uint64{uint64(e.run.Job), uint64(e.run.At), uint64(e.run.Origin), e.fence, uint64(e.at)}
		if err := binary.Write(w, binary.LittleEndian, rec); err != nil {
			return err
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

func readEffects(file string) (out []effect, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("it is not known what a worker did: %w", err)
	}
	defer f.Close()
	var rec [5]uint64
	for r := bufio.NewReader(f); ; {
		switch err := binary.Read(r, binary.LittleEndian, &rec); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		out = append(out, effect{job.RunKey{Job: job.ID(rec[0]), At: int64(rec[1]), Origin: job.Origin(rec[2])}, rec[3],
			int64(rec[4])})
	}
}
