// Package apitest opens a node for tests of what stands on the API: a cluster of one in a temporary directory, whose
// clock stands still until the test moves it, and whose runs are carried out by the test. What a node cannot be brought
// to answer (a full disk, a lost leader) the test puts around Backend: it embeds the interface and answers one method.
package apitest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/store"
)

// Noon is when the clock of a node stands.
var Noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

// Node is a running node that leads.
type Node struct {
	*node.Node
	Backend api.Backend
	Options api.Options
	Clock   *Clock
	Dir     string // its data directory

	cancel context.CancelFunc
	done   chan error
}

// Start opens a node for a test and waits until it is ready. It ends with the test.
func Start(t testing.TB, change ...func(*node.Config)) *Node {
	t.Helper()
	n, err := Open(t.TempDir(), change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	return n
}

// Open is Start for a node that many tests share: its directory and its end are the caller's.
func Open(dir string, change ...func(*node.Config)) (*Node, error) {
	n := &Node{Dir: dir, done: make(chan error, 1)}
	ended := make(chan error, 1)
	cfg := node.Config{
		NodeID: "n1", Listen: "127.0.0.1:0", DataDir: dir, Bootstrap: true, Version: "test", Clock: &Clock{now: Noon},
		Raft:  node.RaftConfig{Heartbeat: 10 * time.Millisecond, SnapshotInterval: time.Hour},
		Store: node.StoreConfig{MmapSize: 16 << 20, NoSync: true},
		Fatal: func(err error) { ended <- err },
	}
	for _, f := range change {
		f(&cfg)
	}
	n.Clock, _ = cfg.Clock.(*Clock)
	var err error
	if n.Node, err = node.Open(cfg); err != nil {
		return nil, err
	}
	n.Backend, n.Options = n.API()
	n.Backend = hasty{n.Backend}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() { n.done <- n.Run(ctx) }()
	patience := time.After(time.Minute)
	for err := n.Backend.Ready(); err != nil; err = n.Backend.Ready() {
		select {
		case failed := <-ended:
			cancel()
			return nil, failed
		case <-patience:
			cancel()
			return nil, err
		case <-time.After(time.Millisecond):
		}
	}
	return n, nil
}

// hasty does not wait for more output of a run for as long as a node does.
type hasty struct{ api.Backend }

func (h hasty) RunOutput(ctx context.Context, id string, fence uint64, after int64,
	rd api.Read) (job.RunOutput, error) {
	for patience := 50 * time.Millisecond; ; patience *= 2 {
		hurry, cancel := context.WithTimeout(ctx, patience)
		out, err := h.Backend.RunOutput(hurry, id, fence, after, rd)
		late := hurry.Err() != nil
		cancel()
		if late && job.CodeOf(err) == job.CodeNoLeader && patience < time.Minute {
			continue // the time was over before the leader had confirmed that it leads
		}
		return out, err
	}
}

// Events ends soon: a test that wants more asks the node itself.
func (h hasty) Events(ctx context.Context, q wire.EventQuery, rd api.Read, send func([]byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := h.Backend.Events(ctx, q, rd, send); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// Secure has a node ask for tokens. Token makes some; Handler of the embedded Node is the one that asks.
func Secure(c *node.Config) { c.Secure = true }

// Keys gives a node the keys of a secure cluster, so that it can have secrets.
func Keys(c *node.Config) { c.Keys.On = true }

// Token makes an API token and returns its text.
func (n *Node) Token(t testing.TB, rq wire.TokenRequest) string {
	t.Helper()
	if rq.Name == "" {
		rq.Name = rand.Text()
	}
	made, err := n.Backend.CreateToken(t.Context(), rq, api.Request{Key: rand.Text()})
	if err != nil {
		t.Fatal(err)
	}
	return made.Text
}

// StartCluster opens nodes of one cluster for a test, and waits until they are ready; the first one leads. They know
// each other by the address that they call from.
func StartCluster(t testing.TB, size int, change ...func(*node.Config)) []*Node {
	t.Helper()
	source := func(i int) net.IP { return net.IPv4(127, 0, 1, byte(i+1)) }
	listeners := make([]net.Listener, size)
	var servers []raft.Server
	for i := range listeners {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = ln
		servers = append(servers, raft.Server{ID: replica.ID(fmt.Sprint("n", i+1), replica.First),
			Address: raft.ServerAddress(ln.Addr().String())})
	}
	nodes := make([]*Node, size)
	var opening sync.WaitGroup
	errs := make([]error, size)
	for i := range nodes {
		dir := t.TempDir()
		opening.Go(func() {
			nodes[i], errs[i] = Open(dir, append([]func(*node.Config){func(c *node.Config) {
				c.NodeID, c.Listen = fmt.Sprint("n", i+1), listeners[i].Addr().String()
				c.Raft.Heartbeat = 300 * time.Millisecond
				c.Machine.Servers, c.Machine.ClusterID = servers, "test-cluster"
				c.Machine.Listen = func(string) (net.Listener, error) { return listeners[i], nil }
				from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: source(i)}}
				c.Machine.Dial = from.DialContext
				c.Machine.Accepted = func(ctx context.Context, conn net.Conn) context.Context {
					for k := range size {
						if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok && a.IP.Equal(source(k)) {
							return keys.WithPeer(ctx, keys.Peer{Identity: keys.Identity{Node: fmt.Sprint("n", k+1)}})
						}
					}
					return ctx
				}
			}}, change...)...)
		})
	}
	opening.Wait()
	t.Cleanup(func() {
		var closing sync.WaitGroup
		for _, n := range nodes {
			if n != nil {
				closing.Go(func() {
					if err := n.Stop(); err != nil {
						t.Errorf("a node ended with %v", err)
					}
				})
			}
		}
		closing.Wait()
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		if n.Leads() {
			nodes[0], nodes[i] = n, nodes[0]
		}
	}
	for rows := 0; rows < size; { // the leader writes them down once it has asked the others who they are
		if rows > 0 {
			time.Sleep(time.Millisecond)
		}
		rows = 0
		err := nodes[0].State().View(func(v *store.View) error { return v.EachNode(func(store.Node) { rows++ }) })
		if err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// At sets the clock of a node that is opened.
func At(now time.Time) func(*node.Config) {
	return func(c *node.Config) { c.Clock = &Clock{now: now} }
}

// Stop ends the node.
func (n *Node) Stop() error {
	n.cancel()
	return <-n.done
}

// Handler is the node's API.
func (n *Node) Handler() http.Handler { return api.New(n.Backend, n.Options) }

// Clock is the clock of a node. Nothing is due before it was moved.
type Clock struct {
	mu   sync.Mutex
	now  time.Time
	mono time.Duration
}

// Now implements stamp.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Mono implements stamp.Clock.
func (c *Clock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

// Advance lets time pass. Leases end by it too.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.mono = c.now.Add(d), c.mono+d
}

// Set moves what the clock shows, as when it is set: no time passes.
func (c *Clock) Set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}

// Worker takes runs and reports what the test says.
type Worker struct {
	Session string
	Workers api.Workers
	about   job.Poll
}

// Register opens a session of a worker, which p describes.
func (n *Node) Register(t testing.TB, p job.Poll) *Worker {
	t.Helper()
	w := &Worker{Workers: n.Options.Workers, about: p}
	w.poll(t, 0) // with a secret it opens the session, and no more
	w.about.Secret = ""
	w.poll(t, 0)
	return w
}

func (w *Worker) poll(t testing.TB, free int) []job.Assignment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := w.about
	if p.Session, p.Free = w.Session, free; free > 0 {
		p.Wait = job.Duration(time.Second)
	}
	r, err := w.Workers.Poll(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	w.Session = r.Session
	return r.Runs
}

// Take waits for a run.
func (w *Worker) Take(t testing.TB) job.Assignment {
	t.Helper()
	for {
		if runs := w.poll(t, 1); len(runs) > 0 {
			return runs[0]
		}
	}
}

// Report ends the attempt of a run.
func (w *Worker) Report(t testing.TB, a job.Assignment, r job.Result) {
	t.Helper()
	r.Fence = a.Fence
	reply, err := w.Workers.Report(t.Context(), job.Report{Session: w.Session, Results: []job.Result{r}})
	if err != nil || len(reply.Results) != 1 || reply.Results[0].Status != job.StatusOK {
		t.Fatalf("%+v, %v", reply, err)
	}
}
