package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// link is what connects one node with the world, so that a test can cut it.
type link struct {
	noRaft atomic.Bool  // raft reaches none and hears none
	dead   atomic.Bool  // as after kill -9: nothing comes out, nothing goes in
	lose   atomic.Int64 // how many answers of HTTP are lost, with their connections
	hung   atomic.Bool  // no answer of HTTP goes out
	paused atomic.Bool  // nothing moves: raft, HTTP, the worker and the disk wait
	held   atomic.Int64 // how many answers were held up because they are late

	mu    sync.Mutex
	cut   map[string]bool          // servers that raft does not reach, and that do not reach it
	late  map[string]chan struct{} // answers of these servers to entries come when it is closed; held counts them
	cuts  map[string]bool          // what is cut when the node is opened
	ln    net.Listener
	conns map[net.Conn]struct{}
	done  chan struct{}
}

var errCut = errors.New("cut off by the test")

// The listener: a dead node refuses connections, and those that it had are broken.

func (l *link) Accept() (net.Conn, error) {
	c, err := l.ln.Accept()
	if err != nil {
		if l.dead.Load() {
			<-l.done // a process that is gone does not notice that its port is
		}
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	tc := &linkConn{c, l}
	l.conns[tc] = struct{}{}
	return tc, nil
}

func (l *link) Addr() net.Addr { return l.ln.Addr() }

func (l *link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	err := l.ln.Close()
	if l.dead.Load() {
		return nil
	}
	return err
}

type linkConn struct {
	net.Conn
	l *link
}

func (c *linkConn) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("HTTP/1.1 ")) {
		c.l.wait()
		for c.l.hung.Load() && !c.l.dead.Load() {
			select {
			case <-c.l.done:
				return 0, errCut
			case <-time.After(5 * time.Millisecond):
			}
		}
		if c.l.lose.Load() > 0 && c.l.lose.Add(-1) >= 0 {
			c.Conn.Close()
			return 0, errCut
		}
	}
	return c.Conn.Write(b)
}

func (c *linkConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// crash is kill -9 as far as others can tell.
func (l *link) crash() {
	l.dead.Store(true)
	l.noRaft.Store(true)
	l.mu.Lock()
	conns := l.conns
	l.conns = map[net.Conn]struct{}{}
	l.ln.Close()
	l.mu.Unlock()
	for c := range conns {
		c.(*linkConn).Conn.Close()
	}
}

// linkTransport is raft's transport over a link.
type linkTransport struct {
	faultpoint.RaftTransport
	l  *link
	ch chan raft.RPC
}

func newLinkTransport(l *link, t faultpoint.RaftTransport) raft.Transport {
	lt := &linkTransport{t, l, make(chan raft.RPC)}
	go func() {
		for {
			select {
			case rpc := <-t.Consumer():
				l.wait()
				if l.noRaft.Load() {
					rpc.Respond(nil, errCut)
					continue
				}
				select {
				case lt.ch <- rpc:
				case <-l.done:
					return
				}
			case <-l.done:
				return
			}
		}
	}()
	return lt
}

func (t *linkTransport) Consumer() <-chan raft.RPC { return t.ch }

func (t *linkTransport) cut(id raft.ServerID, do func() error) error {
	t.l.wait()
	if t.l.noRaft.Load() || t.l.isCut(replica.Node(id)) {
		return errCut
	}
	return do()
}

func (l *link) isCut(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut[id]
}

func (l *link) lateFor(id string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late[id]
}

// wait holds up its callers while the node is paused.
func (l *link) wait() {
	for l.paused.Load() && !l.dead.Load() {
		select {
		case <-l.done:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (t *linkTransport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, a *raft.InstallSnapshotRequest,
	r *raft.InstallSnapshotResponse, data io.Reader) error {
	return t.cut(id, func() error { return t.RaftTransport.InstallSnapshot(id, to, a, r, data) })
}

func (t *linkTransport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (t *linkTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress, a *raft.AppendEntriesRequest,
	r *raft.AppendEntriesResponse) error {
	return t.cut(id, func() error {
		err := t.RaftTransport.AppendEntries(id, to, a, r)
		if late := t.l.lateFor(replica.Node(id)); late != nil && len(a.Entries) > 0 {
			t.l.held.Add(1)
			<-late
		}
		return err
	})
}

func (t *linkTransport) RequestVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestVoteRequest,
	r *raft.RequestVoteResponse) error {
	return t.cut(id, func() error { return t.RaftTransport.RequestVote(id, to, a, r) })
}

func (t *linkTransport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestPreVoteRequest,
	r *raft.RequestPreVoteResponse) error {
	return t.cut(id, func() error { return t.RaftTransport.RequestPreVote(id, to, a, r) })
}

func (t *linkTransport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, a *raft.TimeoutNowRequest,
	r *raft.TimeoutNowResponse) error {
	return t.cut(id, func() error { return t.RaftTransport.TimeoutNow(id, to, a, r) })
}

// linkWorker is the leader as the worker behind a link sees it. That of a dead node gets no work, and its results go
// nowhere.
type linkWorker struct {
	worker.Leader
	l *link
}

func (w linkWorker) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	w.l.wait()
	var a job.PollReply
	var err error
	if !w.l.dead.Load() {
		a, err = w.Leader.Poll(ctx, p)
	}
	if w.l.dead.Load() {
		if p.Wait > 0 {
			<-ctx.Done()
		}
		return job.PollReply{Session: cmp.Or(p.Session, "dead")}, ctx.Err()
	}
	return a, err
}

func (w linkWorker) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	w.l.wait()
	if w.l.dead.Load() {
		return job.HeartbeatReply{}, nil
	}
	return w.Leader.Heartbeat(ctx, h)
}

func (w linkWorker) Output(ctx context.Context, o job.Output) (job.OutputReply, error) {
	w.l.wait()
	if w.l.dead.Load() {
		return job.OutputReply{}, nil
	}
	return w.Leader.Output(ctx, o)
}

func (w linkWorker) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	w.l.wait()
	if !w.l.dead.Load() {
		return w.Leader.Report(ctx, r)
	}
	var out job.ReportReply
	for _, res := range r.Results {
		out.Results = append(out.Results, job.Answer{Ref: res.Ref, Status: job.StatusOK})
	}
	return out, nil
}

// member is a node of a cluster of several.
type member struct {
	*testNode
	link  *link
	cfg   Config
	slow  *slowDisk
	clock *shiftedClock // nil if the test brought its own
}

func (m *member) id() string { return m.cfg.NodeID }

type cluster struct {
	t       *testing.T
	members []*member
}

// startCluster begins a cluster of n nodes and waits until each can answer.
func startCluster(t *testing.T, n int, change ...func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	var servers []raft.Server
	for i := range n {
		ln := port.Listen(t)
		id := fmt.Sprintf("n%d", i+1)
		servers = append(servers, raft.Server{Suffrage: raft.Voter, ID: replica.ID(id, replica.First),
			Address: raft.ServerAddress(ln.Addr().String())})
		cfg := testConfig(t, t.TempDir())
		cfg.NodeID, cfg.Listen = id, ln.Addr().String()
		cfg.Raft.Heartbeat = 300 * time.Millisecond // three nodes and their load share the processors
		cfg.Logger = slog.New(partFilter{cfg.Logger.With("node", id).Handler()})
		for _, f := range change {
			f(&cfg)
		}
		c.members = append(c.members, &member{cfg: cfg, link: &link{ln: ln}})
	}
	for _, m := range c.members {
		m.cfg.Machine.Servers, m.cfg.Machine.ClusterID = servers, "test-cluster"
		m.open(t)
	}
	t.Cleanup(c.killAll)
	for _, m := range c.members {
		m.eventually(m.id()+" is ready", func() bool { return m.service.Ready() == nil })
	}
	return c
}

func (m *member) open(t *testing.T) {
	t.Helper()
	if err := m.tryOpen(t); err != nil {
		t.Fatal(err)
	}
}

func (m *member) tryOpen(t *testing.T) error {
	l := &link{ln: m.link.ln, cut: m.link.cuts, conns: map[net.Conn]struct{}{}, done: make(chan struct{})}
	m.link = l
	m.cfg.Machine.Listen = func(addr string) (net.Listener, error) {
		if l.ln == nil {
			var err error
			if l.ln, err = net.Listen("tcp", addr); err != nil {
				return nil, err
			}
		}
		return l, nil
	}
	m.cfg.Machine.Transport = func(t faultpoint.RaftTransport) raft.Transport { return newLinkTransport(l, t) }
	m.slow = &slowDisk{l: l}
	m.cfg.Machine.Write = m.slow.write
	if m.cfg.Clock == nil {
		m.clock = &shiftedClock{start: time.Now()}
		m.cfg.Clock = m.clock
	}
	m.cfg.Machine.Leader = func(w worker.Leader) worker.Leader { return linkWorker{w, l} }
	n, err := Open(m.cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.testNode = &testNode{Node: n, t: t, cancel: cancel, done: make(chan error, 1),
		client: clientOf(n)}
	tn := m.testNode
	go func() { tn.done <- n.Run(ctx) }()
	return nil
}

// restart starts a node again that was stopped, on the port it had.
func (m *member) restart() {
	m.t.Helper()
	m.link = &link{}
	m.open(m.t)
	m.eventually(m.id()+" is back", func() bool { return m.service.Ready() == nil })
}

// crash kills a node abruptly. What is left of it in this process is cleared away in the background.
func (m *member) crash() {
	m.link.crash()
	m.killed.Store(true) // as Kill does, which waits
	m.worker.kill()
	m.cancel()
}

// kill ends a node at the end of its test, at once.
func (m *member) kill() {
	if m.done != nil {
		m.link.crash()
		m.testNode.kill()
	}
}

// killAll ends the nodes at the end of their test.
func (c *cluster) killAll() {
	var wg sync.WaitGroup
	for _, m := range c.members {
		if m.testNode != nil {
			wg.Go(m.kill)
		}
	}
	wg.Wait()
}

func (c *cluster) leader() *member {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, m := range c.members {
			if !m.link.dead.Load() && m.tracker.Epoch() != nil && m.service.Ready() == nil {
				return m
			}
		}
	}
	c.t.Fatal("no node leads")
	return nil
}

// underOneLeader has a scene played that is about one leader, and again if another one was elected meanwhile: nodes
// that the machine holds up for longer than a lease elect, and what the scene saw then is no fault.
func (c *cluster) underOneLeader(scene func(leader *member, fail func(format string, args ...any))) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		leader := c.leader()
		term := leader.group.raft.CurrentTerm()
		var found []string
		scene(leader, func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
		if leader.leads() && leader.group.raft.CurrentTerm() == term {
			for _, what := range found {
				c.t.Error(what)
			}
			return
		}
		c.t.Logf("%s does not lead term %d any more; it was found: %q", leader.id(), term, found)
		if time.Now().After(end) {
			c.t.Fatal("no leader lasts")
		}
	}
}

// named is the member with an id.
func (c *cluster) named(id string) *member {
	c.t.Helper()
	i := slices.IndexFunc(c.members, func(m *member) bool { return m.id() == id })
	if i < 0 {
		c.t.Fatalf("there is no member %s", id)
	}
	return c.members[i]
}

func (c *cluster) others(than *member) []*member {
	var out []*member
	for _, m := range c.members {
		if m != than {
			out = append(out, m)
		}
	}
	return out
}

// awaitWorkers waits until all living nodes' workers are registered.
func (c *cluster) awaitWorkers(n int) {
	c.t.Helper()
	m := c.leader()
	m.eventually("all workers are registered", func() bool {
		e := c.leader().tracker.Epoch()
		if e == nil {
			return false
		}
		registered := 0
		for _, w := range e.Scheduler.Workers() {
			if !w.Waiting {
				registered++
			}
		}
		return registered == n
	})
}

// hit is one request that a target received.
type hit struct {
	key   string
	fence uint64
	at    time.Time
}

// recorder is a target that remembers everything.
type recorder struct {
	url   string
	delay atomic.Int64
	mu    sync.Mutex
	hits  []hit
}

func newRecorder(t *testing.T) *recorder {
	r := &recorder{}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		fence, err := strconv.ParseUint(q.Header.Get("Carillon-Fence"), 10, 64)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		r.hits = append(r.hits, hit{q.Header.Get("Idempotency-Key"), fence, time.Now()})
		r.mu.Unlock()
		time.Sleep(time.Duration(r.delay.Load()))
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + ln.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(ln) })
	t.Cleanup(func() { srv.Close(); wg.Wait() })
	return r
}

func (r *recorder) spec(name, schedule string) map[string]any {
	return map[string]any{"name": name, "type": "http", "schedule": schedule, "payload": map[string]any{"url": r.url}}
}

func (r *recorder) all() []hit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]hit(nil), r.hits...)
}

// gap is the longest silence between from and to.
func (r *recorder) gap(from, to time.Time) time.Duration {
	last, longest := from, time.Duration(0)
	for _, h := range r.all() {
		if h.at.After(from) && h.at.Before(to) {
			longest, last = max(longest, h.at.Sub(last)), h.at
		}
	}
	return max(longest, to.Sub(last))
}

// load makes count jobs that fire every second, through different nodes.
func (c *cluster) load(r *recorder, count int, overlap string) []job.ID {
	c.t.Helper()
	var ids []job.ID
	for i := range count {
		spec := r.spec(fmt.Sprintf("load-%d", i), "@every 1s")
		spec["overlap"] = overlap
		j := c.members[i%len(c.members)].create(spec)
		ids = append(ids, j.ID)
	}
	return ids
}

// settle pauses all jobs and waits until nothing is open. A run that its worker gave back while its job was paused
// waits for the job to be resumed, so that is done for a moment.
func (c *cluster) settle(via *member, ids []job.ID) {
	c.t.Helper()
	do := func(id job.ID, verb string) {
		ok[job.Job](via.testNode, "POST", "/api/v1/jobs/"+id.String()+":"+verb, nil)
	}
	for _, id := range ids {
		do(id, "pause")
	}
	for end := time.Now().Add(15 * time.Second); c.leader().group.store.OpenRunCount() > 0; time.Sleep(10 * time.Millisecond) {
		for _, run := range ok[wire.RunPage](via.testNode, "GET", "/api/v1/runs", nil).Runs {
			if run.Status == job.RunWaiting {
				do(run.JobID, "resume")
				time.Sleep(200 * time.Millisecond)
				do(run.JobID, "pause")
			}
		}
		if time.Now().After(end) {
			l := c.leader()
			for _, w := range l.tracker.Epoch().Scheduler.Workers() {
				c.t.Logf("%s knows %+v", l.id(), w)
			}
			c.t.Fatalf("still open: %s", l.call("GET", "/api/v1/runs", nil).body)
		}
	}
}

type tally struct {
	ran, notRun, repeated int
	retried               int // took more than one attempt
	attempts              []string
	why                   map[job.Reason]int
}

// account holds history and target against each other: every occurrence of every job exactly once, and at the target
// twice only if its first worker was one of lost.
func (c *cluster) account(via *member, r *recorder, ids []job.ID, lost ...string) tally {
	c.t.Helper()
	type end struct {
		status  job.RunStatus
		workers []string
		notes   []string
	}
	runs := map[job.ID]map[int64]*end{}
	final := map[job.ID]map[int64]int{}
	for _, id := range ids {
		runs[id], final[id] = map[int64]*end{}, map[int64]int{}
	}
	keys := map[string]*end{}
	sum := tally{why: map[job.Reason]int{}}
	answer := via.call("GET", "/api/v1/runs:export", nil)
	for line := range strings.SplitSeq(strings.TrimSpace(string(answer.body)), "\n") {
		var run job.Run
		if err := json.Unmarshal([]byte(line), &run); err != nil {
			c.t.Fatalf("%v in %q", err, line)
		}
		if runs[run.JobID] == nil {
			continue
		}
		if run.RunID == "" {
			for at := int64(run.First); at <= int64(run.Last); at += 1000 {
				final[run.JobID][at]++
				sum.notRun++
				sum.why[run.Reason]++
			}
			continue
		}
		at := int64(run.ScheduledAt)
		e := runs[run.JobID][at]
		if e == nil {
			e = &end{}
			runs[run.JobID][at] = e
			keys[run.Key] = e
		}
		e.status = run.Status
		e.workers = append(e.workers, run.Worker)
		e.notes = append(e.notes, fmt.Sprintf("%s %s %s", run.Status, run.Reason, run.Error))
		if run.Status == job.RunSucceeded {
			final[run.JobID][at]++
			sum.ran++
		}
	}
	for id, ends := range final {
		first, last := int64(1<<62), int64(0)
		for at, n := range ends {
			if n != 1 {
				c.t.Errorf("%s at %d is accounted for %d times: %+v", id, at, n, runs[id][at])
			}
			first, last = min(first, at), max(last, at)
		}
		for at := first; at <= last; at += 1000 {
			if ends[at] == 0 {
				c.t.Errorf("%s at %d is missing: %+v", id, at, runs[id][at])
			}
		}
		for at, e := range runs[id] {
			if e.status != job.RunSucceeded {
				c.t.Errorf("%s at %d ended as %s", id, at, e.status)
			}
		}
	}
	seen := map[string][]hit{}
	for _, h := range r.all() {
		seen[h.key] = append(seen[h.key], h)
	}
	for key, e := range keys {
		if len(e.workers) > 1 {
			sum.retried++
			sum.attempts = append(sum.attempts, fmt.Sprint(key, e.workers, e.notes))
		}
		switch hits := seen[key]; {
		case len(hits) == 0:
			c.t.Errorf("%s is in history and never came to the target", key)
		case len(hits) > 1:
			sum.repeated++
			excused := false
			for _, w := range lost {
				excused = excused || len(e.workers) > 1 && e.workers[0] == w
			}
			if !excused || hits[0].fence >= hits[len(hits)-1].fence {
				c.t.Errorf("the target got %s %d times: %+v, attempts by %v", key, len(hits), hits, e.workers)
			}
		}
	}
	return sum
}

func (m *member) status(query string) wire.Status {
	m.t.Helper()
	return ok[wire.Status](m.testNode, "GET", "/api/v1/status"+query, nil)
}

// partFilter drops raft's own lines: with a node missing it says so several times a second.
type partFilter struct{ slog.Handler }

func (p partFilter) WithAttrs(a []slog.Attr) slog.Handler {
	for _, x := range a {
		if x.Key == "part" && os.Getenv("CARILLON_TEST_LOG") == "" {
			return slog.DiscardHandler
		}
	}
	return partFilter{p.Handler.WithAttrs(a)}
}

// shiftedClock is the machine's clock, wrong by some time.
type shiftedClock struct {
	start time.Time
	shift atomic.Int64
}

func (c *shiftedClock) Now() time.Time { return time.Now().Round(0).Add(time.Duration(c.shift.Load())) }

func (c *shiftedClock) Mono() time.Duration { return time.Since(c.start) }
