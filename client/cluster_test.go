package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// none is for tests in which no request gets as far as the backend.
var none struct{ api.Backend }

// cluster is nodes of which the test says who leads. They stand on one, which has the sessions and the runs; what
// changes with a leadership are the terms in sessions, and which of the addresses serves workers.
type cluster struct {
	*apitest.Node
	t     *testing.T
	added int // jobs

	mu       sync.Mutex
	leader   string // the address of the one that leads; empty: none
	term     uint64
	changed  chan struct{}  // closed when the leadership ends
	reported map[uint64]int // how often each fence was
}

func newCluster(t *testing.T) *cluster {
	return &cluster{Node: apitest.Start(t), t: t, changed: make(chan struct{}), reported: map[uint64]int{}}
}

// lead begins a term with a new leader, or with none.
func (c *cluster) lead(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = addr
	c.term++
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *cluster) leads() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

const payload = `{"url":"http://127.0.0.1:1/?a&b"}`

// add makes jobs that are due at once.
func (c *cluster) add(n int) {
	c.t.Helper()
	var lines []wire.BulkLine
	for i := range n {
		c.added++
		lines = append(lines, wire.BulkLine{Line: i + 1, Spec: job.Spec{
			Name: fmt.Sprintf("job-%d", c.added), Type: job.TypeHTTP, Schedule: "2026-11-02T11:59:59Z",
			Payload: json.RawMessage(payload), Retry: job.Retry{MaxRetries: new(int)}}})
	}
	results, err := c.Backend.BulkCreate(c.t.Context(), lines, api.Request{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range results {
		if r.Status != "created" {
			c.t.Fatalf("%+v", r)
		}
	}
}

// history is what became of the runs so far.
func (c *cluster) history() []job.Run {
	c.t.Helper()
	all, err := c.Backend.ExportHistory(c.t.Context(), 0, 10_000, api.Read{})
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

// on is what the node at an address serves.
func (c *cluster) on(addr string) api.Workers { return front{c, addr} }

type front struct {
	*cluster
	addr string
}

// termShift is where the terms of the test stand in a term, above those of the node.
const termShift = 32

// enter refuses what is not for this leadership, and takes its term off a session. ended is closed when the leadership
// ends.
func (f front) enter(session *string) (term, was uint64, ended <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.leader {
	case "":
		return 0, 0, nil, job.Errorf(job.CodeNoLeader, "", "no leader")
	case f.addr:
		*session, was = withTerm(*session, 0)
		return f.term, was, f.changed, nil
	}
	return 0, 0, nil, job.Errorf(job.CodeNotLeader, "", "%s leads", f.leader)
}

// withTerm gives a session a term of the test's, and says which it had.
func withTerm(session string, term uint64) (_ string, was uint64) {
	s, err := job.ParseSession(session)
	if err != nil {
		return session, 0
	}
	was = s.Term >> termShift
	s.Term = s.Term&(1<<termShift-1) | term<<termShift
	return s.String(), was
}

func (f front) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	term, was, ended, err := f.enter(&p.Session)
	if err != nil {
		return job.PollReply{}, err
	}
	led, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-led.Done():
		}
	}()
	r := job.PollReply{Session: p.Session, Lease: job.Duration(30 * time.Second)}
	if was == term || was == 0 { // that of an earlier leader is answered at once, and decides nothing
		r, err = f.Options.Workers.Poll(led, p)
	}
	if led.Err() != nil && ctx.Err() == nil {
		_, _, _, err = f.enter(&p.Session)
		return job.PollReply{}, err
	}
	r.Session, _ = withTerm(r.Session, term)
	return r, err
}

func (f front) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	if _, _, _, err := f.enter(&h.Session); err != nil {
		return job.HeartbeatReply{}, err
	}
	return f.Options.Workers.Heartbeat(ctx, h)
}

func (f front) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	if _, _, _, err := f.enter(&r.Session); err != nil {
		return job.ReportReply{}, err
	}
	f.mu.Lock()
	for _, res := range r.Results {
		f.reported[res.Fence]++
	}
	f.mu.Unlock()
	return f.Options.Workers.Report(ctx, r)
}

func (f front) Output(ctx context.Context, o job.Output) (job.OutputReply, error) {
	if _, _, _, err := f.enter(&o.Session); err != nil {
		return job.OutputReply{}, err
	}
	return f.Options.Workers.Output(ctx, o)
}
