package node

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/transport"
)

// raftDials are the connections that a node made to others for raft, by address.
type raftDials struct {
	mu    sync.Mutex
	conns map[string][]net.Conn
}

// raftDial is a connection of which the first byte says what it is for.
type raftDial struct {
	net.Conn
	once  sync.Once
	dials *raftDials
	addr  string
}

func (c *raftDial) Write(b []byte) (int, error) {
	c.once.Do(func() {
		if bytes.HasPrefix(b, []byte{transport.RaftByte}) {
			c.dials.mu.Lock()
			defer c.dials.mu.Unlock()
			c.dials.conns[c.addr] = append(c.dials.conns[c.addr], c.Conn)
		}
	})
	return c.Conn.Write(b)
}

func (d *raftDials) to(addr string) []net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.conns[addr])
}

// A firewall or a proxy may refuse connections to a leader that lives. A connection of its own that ends while others
// are open makes none stand for election then.
func TestRefusedPortOfLivingLeader(t *testing.T) {
	realTime(t)
	t.Parallel()
	const heartbeat = 2 * time.Second
	var log syncBuffer
	var refuse atomic.Value // the address that refuses connections
	refuse.Store("")
	dials := map[string]*raftDials{}
	var servers []raft.Server
	var cfgs []Config
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg, d := testConfig(t, t.TempDir()), &raftDials{conns: map[string][]net.Conn{}}
		cfg.NodeID, cfg.Listen, cfg.Raft.Heartbeat = fmt.Sprintf("n%d", i+1), ln.Addr().String(), heartbeat
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		cfg.Machine.Listen = func(string) (net.Listener, error) { return ln, nil }
		cfg.Machine.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == refuse.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &raftDial{Conn: conn, dials: d, addr: addr}, nil
		}
		dials[cfg.NodeID] = d
		cfgs = append(cfgs, cfg)
		servers = append(servers, raft.Server{ID: replica.ID(cfg.NodeID, replica.First),
			Address: raft.ServerAddress(cfg.Listen)})
	}
	var nodes []*testNode
	for _, cfg := range cfgs {
		cfg.Machine.Servers, cfg.Machine.ClusterID = servers, "test-cluster"
		nodes = append(nodes, open(t, cfg))
	}
	t.Cleanup(func() {
		refuse.Store("")
		var wg sync.WaitGroup
		for _, n := range nodes {
			wg.Go(n.kill)
		}
		wg.Wait()
	})
	leader := nodes[0]
	leader.eventually("one leads", func() bool {
		i := slices.IndexFunc(nodes, func(n *testNode) bool { return n.tracker.Epoch() != nil })
		leader = nodes[max(i, 0)]
		return i >= 0
	})
	for _, n := range nodes {
		n.eventually("the followers know the leader, and it has more than one connection to each", func() bool {
			_, ok := n.members.Row(leader.cfg.NodeID)
			return ok && (n == leader || len(dials[leader.cfg.NodeID].to(n.cfg.Listen)) > 1)
		})
	}
	refuse.Store(leader.cfg.Listen)
	for _, n := range nodes {
		if n != leader {
			dials[leader.cfg.NodeID].to(n.cfg.Listen)[0].Close()
		}
	}
	// The first would stand at once, the second half a timeout later. The term says less: a machine that is busy for
	// longer than a timeout makes raft elect by itself.
	for end := time.Now().Add(heartbeat); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if text := log.String(); strings.Contains(text, "standing for election") {
			t.Fatal(text)
		}
	}
}
