package node

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
)

// A leader keeps its majority while the disk of a follower hangs: its heartbeats are answered although raft's loop waits
// for the disk.
func TestHeartbeatsWhileADiskHangs(t *testing.T) {
	t.Parallel()
	var servers []raft.Server
	var cfgs []Config
	var hangs atomic.Bool // the disk of the second node
	hung, release := make(chan struct{}, 1), make(chan struct{})
	for i := range 2 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg := testConfig(t, t.TempDir())
		cfg.NodeID, cfg.Listen = fmt.Sprintf("n%d", i+1), ln.Addr().String()
		cfg.Raft.Heartbeat = 5 * time.Second // no leader is to be lost because the machine is busy
		cfg.Machine.Listen = func(string) (net.Listener, error) { return ln, nil }
		cfg.Machine.Write = func(file string) error {
			if i == 1 && file == "log" && hangs.Load() {
				select {
				case hung <- struct{}{}:
				default:
				}
				<-release
			}
			return nil
		}
		cfgs = append(cfgs, cfg)
		servers = append(servers, raft.Server{ID: replica.ID(cfg.NodeID, replica.First),
			Address: raft.ServerAddress(cfg.Listen)})
	}
	var nodes []*testNode
	for _, cfg := range cfgs {
		cfg.Machine.Servers, cfg.Machine.ClusterID = servers, "test-cluster"
		nodes = append(nodes, open(t, cfg))
	}
	t.Cleanup(func() { // side by side: one that is left alone would try to hand over what none takes
		var wg sync.WaitGroup
		for _, n := range nodes {
			wg.Go(n.stop)
		}
		wg.Wait()
	})
	t.Cleanup(func() { close(release) })
	leader, follower := nodes[0].group.raft, nodes[1].group.raft
	nodes[0].group.trans.Campaign(t.Context())
	nodes[0].eventually("one leads and the other one follows", func() bool {
		_, id := follower.LeaderWithID()
		return nodes[0].tracker.Epoch() != nil && id == servers[0].ID
	})
	hangs.Store(true)
	leader.Barrier(0)
	<-hung
	for range 3 { // the first may be the answer to a heartbeat that came before
		if err := leader.VerifyLeader().Error(); err != nil {
			t.Fatalf("a follower whose disk hangs answers no heartbeat: %v", err)
		}
	}
}
