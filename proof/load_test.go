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

	mu       sync.Mutex
	order    []string
	promises map[string]*harness.Promise
	triggers []harness.Trigger
	batches  []*batch
}

func newLoad(t *testing.T, node *harness.Node, target *harness.Target, rng *rand.Rand) *load {
	return &load{t: t, node: node, target: target, rng: rng, promises: map[string]*harness.Promise{}}
}

func (l *load) promise(p harness.Promise) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = append(l.order, p.Token)
	l.promises[p.Token] = &p
}

// ack keeps what the node said. Once it gave a job a number it must stay with it.
func (l *load) ack(token string, id job.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.promises[token]
	if p.Acked != 0 && p.Acked != id {
		l.t.Errorf("%s was acknowledged as %s and now as %s", token, p.Acked, id)
	}
	p.Acked = id
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

// padding makes a line of a bulk file about 1 kB long, so that a file of some hundred lines is taken in in several pieces.
var padding = strings.Repeat("x", 800)

// oneOffs makes a file of n one-offs. Every eighth has no name: a rerun recognises it by its content. Every tenth is delivered at most
// once.
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
		l.promise(harness.Promise{Token: token, Kind: harness.OneOff, At: job.At(b.due), Once: once})
		b.tokens = append(b.tokens, token)
		spec := l.spec(token, name, b.due.UTC().Format(time.RFC3339), "")
		if once {
			spec.Delivery, spec.Retry = job.DeliverAtMostOnce, job.Retry{}
		}
		spec.Payload = fmt.Appendf(nil, `{"url":%q,"body":%q}`, l.target.URL+"/"+token, padding)
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

// mustSend sends a file to a node that nobody kills.
func (l *load) mustSend(b *batch) {
	l.t.Helper()
	if err := l.send(b); err != nil {
		l.t.Fatalf("bulk create: %v", err)
	}
}

// recurring makes recurring jobs and manual ones, each with its own token.
func (l *load) recurring(every, manual int) {
	l.t.Helper()
	make1 := func(p harness.Promise, spec job.Spec) {
		l.promise(p)
		j, err := l.node.Client.CreateJob(context.Background(), spec)
		if err != nil {
			l.t.Fatalf("create %s: %v", p.Token, err)
		}
		l.ack(p.Token, j.ID)
	}
	for i := range every {
		token := fmt.Sprintf("every-%d", i)
		step := time.Duration(1+i%2) * time.Second
		overlap := []string{job.OverlapAllow, job.OverlapSkip}[i/2%2]
		make1(harness.Promise{Token: token, Kind: harness.Every, Step: step}, l.spec(token, token, "@every "+step.String(), overlap))
	}
	for i := range manual {
		token := fmt.Sprintf("manual-%d", i)
		make1(harness.Promise{Token: token, Kind: harness.Manual}, l.spec(token, token, job.ScheduleManual, job.OverlapAllow))
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

// trigger asks for a manual run until it gets an answer, with the same key each time: however often the node died over it, there must
// be one run.
func (l *load) trigger(ctx context.Context, token, key string) {
	l.mu.Lock()
	i := len(l.triggers)
	l.triggers = append(l.triggers, harness.Trigger{Token: token})
	l.mu.Unlock()
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(client.WithIdempotencyKey(ctx, key), 5*time.Second)
		run, err := l.anyone().RunJob(once, token)
		cancel()
		if err == nil {
			l.mu.Lock()
			l.triggers[i].Run = run.RunID
			l.mu.Unlock()
			return
		}
		if !passing(err) && ctx.Err() == nil {
			l.t.Errorf("trigger %s: %v", token, err)
			return
		}
		time.Sleep(10 * time.Millisecond)
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

// endRecurring gives the recurring jobs an end, so that it is known which occurrence is their last, and says when that is.
func (l *load) endRecurring(in time.Duration) time.Time {
	l.t.Helper()
	end := time.Now().Add(in).Truncate(time.Millisecond)
	for _, token := range l.order {
		if l.promises[token].Kind != harness.Every {
			continue
		}
		patch := fmt.Appendf(nil, `{"end_at":%q}`, job.At(end))
		if _, err := l.node.Client.PatchJob(context.Background(), token, patch, 0); err != nil {
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

// books collects what the node and the target know.
func (l *load) books() *harness.Books {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	b := &harness.Books{Seen: l.target.Seen(), Outages: l.node.Outages(), Triggers: l.triggers}
	if l.cl != nil {
		b.Outages = l.cl.Outages()
	}
	for _, token := range l.order {
		b.Promises = append(b.Promises, *l.promises[token])
	}
	for q := (client.JobQuery{Limit: 500}); ; {
		page, err := l.node.Client.ListJobs(ctx, q)
		if err != nil {
			l.t.Fatalf("list jobs: %v", err)
		}
		b.Jobs = append(b.Jobs, page.Jobs...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	for q := (client.RunQuery{Limit: 500}); ; {
		page, err := l.node.Client.Runs(ctx, q)
		if err != nil {
			l.t.Fatalf("list open runs: %v", err)
		}
		b.Open = append(b.Open, page.Runs...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	if err := l.node.Client.ExportHistory(ctx, 0, 0, func(r job.Run, _ json.RawMessage) error {
		b.History = append(b.History, r)
		return nil
	}); err != nil {
		l.t.Fatalf("export: %v", err)
	}
	return b
}

// judge audits the books and shows the first problems.
func (l *load) judge(b *harness.Books) harness.Report {
	l.t.Helper()
	r := b.Audit()
	for i, p := range r.Problems {
		if i == 30 {
			l.t.Errorf("… and %d more", len(r.Problems)-i)
			break
		}
		l.t.Error(p)
	}
	l.t.Log(r)
	return r
}
