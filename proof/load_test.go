package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// load is the work that a test gives a node, and the memory of what the node promised about it.
type load struct {
	t      *testing.T
	node   *harness.Node
	target *harness.Target
	rng    *rand.Rand       // of the test's own goroutine
	cl     *harness.Cluster // nil: node is all there is
	probe  *harness.Probe   // of a cluster

	lease   time.Duration     // of the workers' sessions; 0: the default
	workers map[string]string // by address, where each has its own
	// for a lost attempt the checker's will do: faults follow each other more closely than a lease
	anyExcuse bool
	keys      atomic.Int64 // of requests
	mu        sync.Mutex
	order     []string
	creates   map[string]*checker.Call // by token
	calls     []*checker.Call          // everything that was asked for
	triggers  []string                 // runs by hand that were acknowledged
	late      map[job.ID]job.Instant   // the ends of jobs that were asked for in time, and may have come too late
	digests   map[string]string
	batches   []*batch
}

func newLoad(t *testing.T, node *harness.Node, target *harness.Target, rng *rand.Rand) *load {
	return &load{t: t, node: node, target: target, rng: rng, creates: map[string]*checker.Call{},
		late: map[job.ID]job.Instant{}}
}

// promise notes that a job is about to be created. Until it is acknowledged it may or may not exist.
func (l *load) promise(token string, spec job.Spec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.creates[token] != nil {
		l.t.Errorf("the test promised %s twice", token)
	}
	c := &checker.Call{Kind: checker.CallCreate, Invoke: job.At(time.Now()), Name: spec.Name, Spec: &spec}
	l.order, l.creates[token], l.calls = append(l.order, token), c, append(l.calls, c)
}

// ack keeps what the node said. Once it gave a job a number it must stay with it.
func (l *load) ack(token string, id job.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.creates[token]
	if c.Job != 0 && c.Job != id {
		l.t.Errorf("%s was acknowledged as %s and now as %s", token, c.Job, id)
	}
	if c.Outcome != checker.OK {
		c.Job, c.Outcome, c.Return = id, checker.OK, job.At(time.Now())+1
	}
}

// id is the number of a job that was acknowledged, and its definition as it was created.
func (l *load) id(token string) (job.ID, job.Spec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.creates[token]
	return c.Job, *c.Spec
}

// spec is a job that calls the target under its own token. The retries are many because every kill may use one up.
func (l *load) spec(token, name, schedule, overlap string) job.Spec {
	retries := 50
	return job.Spec{Name: name, Type: job.TypeHTTP, Schedule: schedule, Overlap: overlap,
		Payload: fmt.Appendf(nil, `{"url":%q}`, l.target.URL+"/"+token),
		Retry:   job.Retry{MaxRetries: &retries, Backoff: job.BackoffImmediate}}
}

// batch is a file of one-offs that are all due in the same second.
type batch struct {
	due    time.Time
	tokens []string
	named  []string // those whose token is their name too
	file   []byte
	rerun  bool         // what is not answered is sent again; otherwise it may or may not exist
	acked  atomic.Int64 // lines answered in the current request
}

// padding makes a line of a bulk file about 1 kB long, so that a file of some hundred lines is taken in in several
// pieces.
var padding = strings.Repeat("x", 800)

// oneOffs makes a file of n one-offs. Every eighth has no name: a rerun recognises it by its content. Every tenth is
// delivered at most once.
func (l *load) oneOffs(n int, due time.Time) *batch {
	b := &batch{due: due.Truncate(time.Second), rerun: true}
	var file bytes.Buffer
	enc := json.NewEncoder(&file)
	for i := range n {
		token := fmt.Sprintf("one-%d-%d", len(l.batches), i)
		once := i%10 == 4
		if once {
			token = fmt.Sprintf("once-%d-%d", len(l.batches), i)
		}
		name := token
		if i%8 == 7 {
			name = ""
		} else {
			b.named = append(b.named, token)
		}
		b.tokens = append(b.tokens, token)
		spec := l.spec(token, name, b.due.UTC().Format(time.RFC3339), "")
		if once {
			spec.Delivery, spec.Retry = job.DeliverAtMostOnce, job.Retry{}
		}
		spec.Payload = fmt.Appendf(nil, `{"url":%q,"body":%q}`, l.target.URL+"/"+token, padding)
		l.promise(token, spec)
		if err := enc.Encode(spec); err != nil {
			l.t.Fatal(err)
		}
	}
	b.file = file.Bytes()
	l.batches = append(l.batches, b)
	return b
}

// send sends a file once and keeps the answers. The error says why not every line was answered well.
func (l *load) send(b *batch) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b.acked.Store(0)
	err := l.node.Client.BulkCreate(ctx, bytes.NewReader(b.file), func(r client.BulkResult) error {
		if r.Status != "created" && r.Status != "exists" {
			return fmt.Errorf("line %d: %s %v", r.Line, r.Status, r.Error)
		}
		if r.JobID == nil || r.Line < 1 || r.Line > len(b.tokens) {
			return fmt.Errorf("line %d of %d was answered without an id", r.Line, len(b.tokens))
		}
		l.ack(b.tokens[r.Line-1], *r.JobID)
		b.acked.Add(1)
		return nil
	})
	if n := b.acked.Load(); err == nil && int(n) != len(b.tokens) {
		err = fmt.Errorf("%d of %d lines were answered", n, len(b.tokens))
	}
	return err
}

// mustSend sends a file to a node that is not killed.
func (l *load) mustSend(b *batch) {
	l.t.Helper()
	if err := l.send(b); err != nil {
		l.t.Fatalf("bulk create: %v", err)
	}
}

// recurring makes recurring jobs and manual ones, each with its own token.
func (l *load) recurring(every, manual int) {
	l.t.Helper()
	make1 := func(token string, spec job.Spec) {
		l.promise(token, spec)
		j, err := l.node.Client.CreateJob(context.Background(), spec)
		if err != nil {
			l.t.Fatalf("create %s: %v", token, err)
		}
		l.ack(token, j.ID)
	}
	for i := range every {
		token := fmt.Sprintf("every-%d", i)
		step := time.Duration(1+i%2) * time.Second
		overlap := []string{job.OverlapAllow, job.OverlapSkip}[i/2%2]
		make1(token, l.spec(token, token, "@every "+step.String(), overlap))
	}
	for i := range manual {
		token := fmt.Sprintf("manual-%d", i)
		make1(token, l.spec(token, token, job.ScheduleManual, job.OverlapAllow))
	}
}

// anyone is a client of some living node: each must do.
func (l *load) anyone() *client.Client {
	if l.cl != nil {
		if living := l.cl.Living(); len(living) > 0 {
			return living[rand.IntN(len(living))].Client
		}
	}
	return l.node.Client
}

// trigger asks for a manual run until it gets an answer, with the same key each time: however often the node died over
// it, there must be one run.
func (l *load) trigger(ctx context.Context, token, key string) {
	id, _ := l.id(token)
	call := checker.Call{Kind: checker.CallRun, Job: id, Request: key}
	var run job.Run
	err := l.ask(ctx, call, func(ctx context.Context, c *client.Client, call *checker.Call) (err error) {
		if run, err = c.RunJob(ctx, token); err == nil {
			call.Run, err = job.ParseRunKey(run.RunID)
		}
		return err
	})
	if err == nil {
		l.mu.Lock()
		l.triggers = append(l.triggers, run.RunID)
		l.mu.Unlock()
	} else if !passing(err) && ctx.Err() == nil {
		l.t.Errorf("trigger %s: %v", token, err)
	}
}

// passing says whether an error is one that a dead or starting node causes.
func passing(err error) bool {
	switch job.CodeOf(err) {
	case job.CodeNoLeader, job.CodeNotReady, job.CodeOutcomeUnknown, job.CodeUnavailable, job.CodeNotLeader:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// triggerForever triggers manual jobs in the background until it is stopped. Stop waits for the answers.
func (l *load) triggerForever(seed uint64, manual int, pause time.Duration) (stop func()) {
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	rng := rand.New(rand.NewPCG(seed, 77))
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(rng.Int64N(int64(2 * pause)))):
			}
			l.trigger(ctx, fmt.Sprintf("manual-%d", rng.IntN(manual)), fmt.Sprintf("trigger-%d-%d", seed, i))
		}
	})
	return func() {
		close(done)
		giveUp := time.AfterFunc(20*time.Second, cancel)
		wg.Wait()
		giveUp.Stop()
		cancel()
	}
}

// endRecurring gives the recurring jobs an end, so that it is known which occurrence is their last, and says when that
// is.
func (l *load) endRecurring(in time.Duration) time.Time {
	l.t.Helper()
	end := time.Now().Add(in).Truncate(time.Millisecond)
	for _, token := range l.every() {
		if err := l.endOf(context.Background(), token, end); err != nil {
			l.t.Fatalf("patch %s: %v", token, err)
		}
	}
	return end
}

// drained waits until everything that was to happen has happened.
func (l *load) drained(after time.Time, limit time.Duration) {
	l.t.Helper()
	var s client.Status
	var err error
	calm := 0
	ok := harness.Within(limit, func() bool {
		if time.Now().Before(after) {
			return false
		}
		if s, err = l.node.Client.Status(context.Background()); err == nil && s.OpenRuns == 0 && s.Backlog == 0 {
			calm++
		} else {
			calm = 0
		}
		return calm >= 3
	})
	if !ok {
		l.t.Errorf("after %s there are %d open runs and a backlog of %d (%v)", limit, s.OpenRuns, s.Backlog, err)
	}
}
