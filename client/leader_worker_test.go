package client_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// counter counts attempts.
type counter struct {
	mu   sync.Mutex
	runs map[uint64]int // by fence
}

func (c *counter) run(ctx context.Context, a job.Assignment) job.Result {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(rand.IntN(3)) * time.Millisecond):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[a.Fence]++
	return job.Result{Outcome: job.OutcomeSucceeded, Output: string(a.Payload)}
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.runs)
}

// startWorker runs a worker over HTTP; stop drains it.
func startWorker(t *testing.T, nodes []*node) (c *counter, stop func()) {
	t.Helper()
	c = &counter{runs: map[uint64]int{}}
	l := newLeader(t, nodes)
	l.Hurry(time.Second)
	w, err := worker.New(worker.Options{Name: "w", Secret: "s", Slots: 48,
		Types: []job.Type{job.TypeHTTP}, Groups: worker.OneGroup(l), Do: c.run})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return c, stop
}

// succeeded counts the runs that have.
func (c *cluster) succeeded() (n int) {
	for _, r := range c.history() {
		if r.Status == job.RunSucceeded {
			n++
		}
	}
	return n
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A worker over HTTP carries every run out once and reports it, while the leadership moves and nodes break connections.
func TestWorkerOverHTTP(t *testing.T) {
	cluster, nodes := startNodes(t, 3)
	c, stop := startWorker(t, nodes)
	const rounds, each = 6, 200
	for round := range rounds {
		cluster.add(each)
		await(t, "a part of the runs", func() bool { return c.count() > round*each+each/3 })
		switch round % 3 {
		case 0:
			nodes[round%3].srv.CloseClientConnections()
		case 1:
			cluster.lead("")
		}
		cluster.lead(nodes[(round+1)%3].addr)
	}
	await(t, "all results", func() bool { return cluster.succeeded() == rounds*each })
	stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range cluster.history() {
		if r.Status != job.RunSucceeded || r.Output != payload || c.runs[r.Fence] != 1 {
			t.Errorf("run %s was carried out %d times: %+v", r.RunID, c.runs[r.Fence], r)
		}
	}
}

// Results that hang on their way to an old leader do not keep a worker from the new one, where it hands them in.
func TestWorkerLeavesAHungLeader(t *testing.T) {
	cluster, nodes := startNodes(t, 2)
	c, stop := startWorker(t, nodes)
	reporting := make(chan struct{}, 1)
	held := hang(t)
	nodes[0].before(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ":report") {
			return false
		}
		reporting <- struct{}{}
		return held(w, r)
	})
	cluster.add(40)
	<-reporting
	await(t, "the work to be done", func() bool { return c.count() == 40 })
	cluster.lead(nodes[1].addr)
	await(t, "the results", func() bool { return cluster.succeeded() == 40 })
	stop()
	for f, n := range c.runs {
		if n != 1 {
			t.Errorf("run %d was carried out %d times", f, n)
		}
	}
}
