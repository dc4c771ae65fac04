package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// answer runs a transport that grants every request, until it is closed.
func answer(t *testing.T, n *node) *raft.NetworkTransport {
	t.Helper()
	return answerWithin(t, n, time.Second)
}

func answerWithin(t *testing.T, n *node, timeout time.Duration) *raft.NetworkTransport {
	t.Helper()
	tr := newRaftTransport(n.layer, n.layer.addressProvider(), hclog.NewNullLogger(), timeout)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case rpc := <-tr.Consumer():
				switch req := rpc.Command.(type) {
				case *raft.AppendEntriesRequest:
					rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, Success: true}, nil)
				case *raft.RequestVoteRequest:
					rpc.Respond(&raft.RequestVoteResponse{Term: req.Term, Granted: true}, nil)
				case *raft.RequestPreVoteRequest:
					rpc.Respond(&raft.RequestPreVoteResponse{Term: req.Term, Granted: true}, nil)
				case *raft.InstallSnapshotRequest:
					_, err := io.Copy(io.Discard, rpc.Reader)
					rpc.Respond(&raft.InstallSnapshotResponse{Term: req.Term, Success: true}, err)
				}
			}
		}
	})
	t.Cleanup(func() {
		tr.Close()
		close(stop)
		wg.Wait()
	})
	return tr
}

// rpcs are the requests raft makes. Each returns an error unless it got the
// answer to itself.
var rpcs = map[string]func(tr *raft.NetworkTransport, to raft.ServerAddress, term uint64) error{
	"append": func(tr *raft.NetworkTransport, to raft.ServerAddress, term uint64) error {
		var res raft.AppendEntriesResponse
		err := tr.AppendEntries("b", to, &raft.AppendEntriesRequest{Term: term}, &res)
		return check(err, res.Term, term)
	},
	"vote": func(tr *raft.NetworkTransport, to raft.ServerAddress, term uint64) error {
		var res raft.RequestVoteResponse
		err := tr.RequestVote("b", to, &raft.RequestVoteRequest{Term: term}, &res)
		return check(err, res.Term, term)
	},
	"prevote": func(tr *raft.NetworkTransport, to raft.ServerAddress, term uint64) error {
		var res raft.RequestPreVoteResponse
		err := raft.WithPreVote(tr).RequestPreVote("b", to, &raft.RequestPreVoteRequest{Term: term}, &res)
		return check(err, res.Term, term)
	},
	"snapshot": func(tr *raft.NetworkTransport, to raft.ServerAddress, term uint64) error {
		var res raft.InstallSnapshotResponse
		data := bytes.Repeat([]byte("x"), 1<<20)
		err := tr.InstallSnapshot("b", to, &raft.InstallSnapshotRequest{Term: term, Size: int64(len(data))}, &res,
			bytes.NewReader(data))
		return check(err, res.Term, term)
	},
	"pipeline": func(tr *raft.NetworkTransport, to raft.ServerAddress, term uint64) error {
		p, err := tr.AppendEntriesPipeline("b", to)
		if err != nil {
			return err
		}
		defer p.Close()
		failed := make(chan error, 1)
		go func() {
			for i := range uint64(20) {
				var res raft.AppendEntriesResponse
				if _, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: term + i}, &res); err != nil {
					failed <- err
					return
				}
			}
		}()
		for i := range uint64(20) {
			select {
			case f := <-p.Consumer():
				if err := check(f.Error(), f.Response().Term, term+i); err != nil {
					return err
				}
			case err := <-failed:
				return err
			case <-time.After(long):
				return fmt.Errorf("no answer")
			}
		}
		return nil
	},
}

func check(err error, got, want uint64) error {
	if err == nil && got != want {
		err = fmt.Errorf("answer of term %d to a request of term %d", got, want)
	}
	return err
}

// Answers that are not read hold up the sender, who is the only one to close
// the pipeline: so it was when a leader learned of a newer term while two more
// appends were under way, and its shutdown never came to an end.
func TestPipelineWithoutReaderEnds(t *testing.T) {
	a, b := startNode(t, "a", "127.0.0.1:0", nil), startNode(t, "b", "127.0.0.1:0", nil)
	ta := &RaftTransport{NetworkTransport: answer(t, a), timeout: 50 * time.Millisecond}
	answer(t, b)
	p, err := ta.AppendEntriesPipeline("b", b.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, new(raft.AppendEntriesResponse)); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, raft.ErrPipelineShutdown) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(long):
		t.Fatal("the sender waits for ever")
	}
	// What follows goes request by request.
	if err := rpcs["append"](ta.NetworkTransport, b.addr(), 7); err != nil {
		t.Error(err)
	}
}

// fillPool makes tr keep its full number of idle connections to an address.
func fillPool(t *testing.T, tr *raft.NetworkTransport, to raft.ServerAddress, layer *StreamLayer) {
	t.Helper()
	for range 50 {
		var wg sync.WaitGroup
		for i := range uint64(2 * raftPool) {
			wg.Go(func() {
				if err := rpcs["append"](tr, to, i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		layer.mu.Lock()
		n := len(layer.conns)
		layer.mu.Unlock()
		if n == raftPool {
			return
		}
	}
	t.Fatal("the pool did not fill")
}

// After a peer restarts, all pooled connections to it are stale.
// None may cost a request.
func TestPeerRestarts(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var ca *keys.Authority
		if secure {
			ca = newAuthority(t)
		}
		for name, rpc := range rpcs {
			t.Run(fmt.Sprintf("%s/TLS=%v", name, secure), func(t *testing.T) {
				a, b := startNode(t, "a", "127.0.0.1:0", secured(t, ca, "a")),
					startNode(t, "b", "127.0.0.1:0", secured(t, ca, "b"))
				ta, tb := answerWithin(t, a, long), answerWithin(t, b, long)
				to := b.addr()
				fillPool(t, ta, to, a.layer)

				tb.Close()
				b.stop()
				answerWithin(t, startNode(t, "b", string(to), secured(t, ca, "b")), long)
				for i := range uint64(2 * raftPool) {
					if err := rpc(ta, to, 100*(i+1)); err != nil {
						t.Errorf("request %d after the restart: %v", i+1, err)
					}
				}
			})
		}
	}
}

// While the peer is down requests fail at once, and the first after it came
// back succeeds.
func TestPeerDownAndUp(t *testing.T) {
	a, b := startNode(t, "a", "127.0.0.1:0", nil), startNode(t, "b", "127.0.0.1:0", nil)
	ta, tb := answer(t, a), answer(t, b)
	to := b.addr()
	fillPool(t, ta, to, a.layer)
	tb.Close()
	b.stop()
	for name, rpc := range rpcs {
		if err := rpc(ta, to, 1); err == nil {
			t.Errorf("%s to a peer that is down", name)
		}
	}
	answer(t, startNode(t, "b", string(to), nil))
	for name, rpc := range rpcs {
		if err := rpc(ta, to, 2); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A wiped peer at the same address must pass the handshake again.
func TestRestartedPeerIsChecked(t *testing.T) {
	var bad string
	a := startNode(t, "a", "127.0.0.1:0", func(_ *Options, so *StreamOptions) {
		so.Handshake.Check = func(h Hello) error {
			if h.InstanceID == bad {
				return fmt.Errorf("instance %s is not known", h.InstanceID)
			}
			return nil
		}
	})
	b := startNode(t, "b", "127.0.0.1:0", nil)
	ta, tb := answer(t, a), answer(t, b)
	to := b.addr()
	fillPool(t, ta, to, a.layer)
	tb.Close()
	b.stop()
	bad = "i-b"
	answer(t, startNode(t, "b", string(to), nil))
	if err := rpcs["append"](ta, to, 1); !refused(false, "is not known")(err) {
		t.Errorf("request to a refused peer: %v", err)
	}
}

// cable forwards connections until it is cut: then nothing passes, and neither side
// is told, as when a machine loses power.
type cable struct {
	ln  net.Listener
	to  string
	wg  sync.WaitGroup
	mu  sync.Mutex
	all []net.Conn
	cut chan struct{}
}

func newCable(t *testing.T, to string) *cable {
	c := &cable{ln: listen(t, "127.0.0.1:0"), to: to, cut: make(chan struct{})}
	c.wg.Go(func() {
		for {
			in, err := c.ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", c.to)
			if err != nil {
				in.Close()
				continue
			}
			c.mu.Lock()
			cut := c.cut
			c.all = append(c.all, in, out)
			c.mu.Unlock()
			c.wg.Go(func() { forward(out, in, cut) })
			c.wg.Go(func() { forward(in, out, cut) })
		}
	})
	t.Cleanup(func() {
		c.ln.Close()
		c.mu.Lock()
		for _, conn := range c.all {
			conn.Close()
		}
		c.mu.Unlock()
		c.wg.Wait()
	})
	return c
}

func forward(to, from net.Conn, cut chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-cut: // swallowed, the end of the stream included
		default:
			to.Write(buf[:n])
			if err != nil {
				to.Close()
			}
		}
		if err != nil {
			return
		}
	}
}

// mend cuts the connections there are; new ones work.
func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.cut)
	c.cut = make(chan struct{})
}

// When connections die without a word one request must find out by its timeout,
// but only one.
func TestVanishedPeerCostsOneRequest(t *testing.T) {
	a, b := startNode(t, "a", "127.0.0.1:0", nil), startNode(t, "b", "127.0.0.1:0", nil)
	ta := answer(t, a)
	answer(t, b)
	c := newCable(t, string(b.addr()))
	to := raft.ServerAddress(c.ln.Addr().String())
	fillPool(t, ta, to, a.layer)
	c.mend()
	if err := rpcs["append"](ta, to, 1); err == nil {
		t.Fatal("the cut connection answered")
	}
	for i := range uint64(2 * raftPool) {
		if err := rpcs["append"](ta, to, 2+i); err != nil {
			t.Errorf("request %d after the timeout: %v", i+1, err)
		}
	}
}

func TestLocalAddrIsTheAdvertised(t *testing.T) {
	n := startNode(t, "n", "127.0.0.1:0", func(_ *Options, so *StreamOptions) { so.Advertise = "n.example:7400" })
	tr := NewRaftTransport(n.layer, hclog.NewNullLogger(), RequestLimits{})
	defer tr.Close()
	if got := tr.LocalAddr(); got != "n.example:7400" {
		t.Errorf("LocalAddr = %q", got)
	}
}

// countFSM counts what was applied.
type countFSM struct {
	mu sync.Mutex
	n  int
}

func (f *countFSM) Apply(*raft.Log) any                 { f.mu.Lock(); defer f.mu.Unlock(); f.n++; return nil }
func (f *countFSM) Snapshot() (raft.FSMSnapshot, error) { return nil, raft.ErrNothingNewToSnapshot }
func (f *countFSM) Restore(r io.ReadCloser) error       { return r.Close() }
func (f *countFSM) count() int                          { f.mu.Lock(); defer f.mu.Unlock(); return f.n }

// member is a node that runs raft.
type member struct {
	*node
	raft  *raft.Raft
	trans *RaftTransport
	fsm   *countFSM
	store *raft.InmemStore
	log   *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

func startMember(t *testing.T, id, addr string, store *raft.InmemStore) *member {
	t.Helper()
	return startMemberWith(t, id, addr, store, 300*time.Millisecond)
}

func startMemberWith(t *testing.T, id, addr string, store *raft.InmemStore, heartbeat time.Duration) *member {
	t.Helper()
	return runMember(t, startNode(t, id, addr, nil), raft.ServerID(id), store, heartbeat)
}

func runMember(t *testing.T, n *node, id raft.ServerID, store *raft.InmemStore, heartbeat time.Duration) *member {
	t.Helper()
	m := &member{node: n, fsm: &countFSM{}, store: store, log: &syncBuffer{}}
	logger := hclog.New(&hclog.LoggerOptions{Output: m.log, Level: hclog.Debug})
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger = id, logger
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = heartbeat, heartbeat, heartbeat/2
	m.trans = NewRaftTransport(m.layer, logger, RequestLimits{})
	r, err := raft.NewRaft(cfg, m.fsm, store, store, raft.NewDiscardSnapshotStore(), m.trans)
	if err != nil {
		t.Fatal(err)
	}
	m.raft = r
	t.Cleanup(m.stop)
	return m
}

func (m *member) stop() {
	m.trans.StopWaiting()
	m.raft.Shutdown().Error()
	m.node.stop()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * long); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestClusterOverMux(t *testing.T) {
	var members []*member
	var servers []raft.Server
	for _, id := range []string{"n1", "n2", "n3"} {
		m := startMember(t, id, "127.0.0.1:0", raft.NewInmemStore())
		members = append(members, m)
		servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: m.addr()})
	}
	if err := members[0].raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
		t.Fatal(err)
	}
	leader := 0
	lead := func() {
		t.Helper()
		eventually(t, "a leader", func() bool {
			leader = slices.IndexFunc(members, func(m *member) bool { return m.raft.State() == raft.Leader })
			return leader >= 0
		})
	}
	lead()
	// A machine that is held up changes its leader: an entry that was under way then may be there or not.
	apply := func(want int) {
		t.Helper()
		for done := 0; done < 100; {
			err := members[leader].raft.Apply([]byte("x"), long).Error()
			switch {
			case err == nil:
				done++
			case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrNotLeader):
				lead()
			default:
				t.Fatal(err)
			}
		}
		eventually(t, fmt.Sprintf("%d applied everywhere", want), func() bool {
			n := members[leader].fsm.count()
			return n >= want && !slices.ContainsFunc(members, func(m *member) bool { return m.fsm.count() != n })
		})
	}
	apply(100)

	// A follower restarts where it was, with its log.
	follower := (leader + 1) % 3
	f := members[follower]
	f.stop()
	members[follower] = startMember(t, string(f.hello.NodeID), string(f.addr()), f.store)
	apply(200)

	for _, m := range members {
		if strings.Contains(m.log.String(), "pre-vote is disabled") {
			t.Errorf("PreVote is off on %s", m.hello.NodeID)
		}
	}
}

// With timeouts of an hour only Campaign can have made a leader; the second time the others have one that they hear.
func TestCampaign(t *testing.T) {
	var members []*member
	var servers []raft.Server
	for _, id := range []string{"n1", "n2", "n3"} {
		m := startMemberWith(t, id, "127.0.0.1:0", raft.NewInmemStore(), time.Hour)
		members = append(members, m)
		servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: m.addr()})
	}
	for _, m := range members {
		if err := m.raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range members[1:] {
		m.trans.Campaign(t.Context())
		eventually(t, "it leads", func() bool { return m.raft.State() == raft.Leader })
		if err := m.raft.Apply([]byte("x"), long).Error(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all have the entry, or they would not be elected", func() bool {
			return !slices.ContainsFunc(members, func(o *member) bool { return o.raft.LastIndex() < m.raft.LastIndex() })
		})
	}
}
