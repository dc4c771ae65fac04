package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// killAll kills everybody at once.
func (l *load) killAll(why string) {
	for _, n := range l.cl.Nodes {
		n.Kill(why)
	}
}

// startAll starts everybody at once: one alone is not ready.
func (l *load) startAll() {
	l.t.Helper()
	for _, n := range l.cl.Nodes {
		if err := n.Launch(); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, n := range l.cl.Nodes {
		if err := n.AwaitReady(); err != nil {
			l.t.Fatalf("%s: %v\n%s", n.ID, err, n.LogTail(60))
		}
	}
}

// epochs is what the nodes themselves say that their epoch is.
func (l *load) epochs() (all [3]uint64) {
	l.t.Helper()
	for i, n := range l.cl.Nodes {
		info, err := n.Client.Node(context.Background())
		if err != nil {
			l.t.Fatal(err)
		}
		all[i] = info.Epoch
	}
	return all
}

// TestMovedUnderTheirNames kills all three nodes and starts them on other addresses, which their names now stand for:
// first on fresh ones, then each where another one was before. No operator has to do anything about it.
func TestMovedUnderTheirNames(t *testing.T) {
	heavy(t)
	t.Parallel()
	jobs, rounds, wind := 50, 1, 3*time.Second
	if harness.Long() {
		jobs, rounds, wind = 1000, 2, 10*time.Second
	}
	seed := harness.Seed(t)
	hosts := harness.NewHosts(t)
	_, port, err := net.SplitHostPort(harness.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	place := 0 // addresses in use are this and the next two
	at := func(i int) string { return fmt.Sprintf("127.77.%d.%d:%s", 1+seed%200, 11+i, port) }
	hosts.Set(at(0), at(1), at(2))
	l := newClusterLoadAt(t, seed, jobs, mixed, harness.NewTarget(t),
		func(i int, n *harness.Node) { hosts.Place(n, at(i)) })
	stop := l.triggerForever(seed, manualJobs, 80*time.Millisecond)
	for round := range rounds {
		time.Sleep(2 * time.Second)
		l.killAll("to move")
		began := time.Now()
		if round%2 == 0 {
			place += 3
		}
		for i, n := range l.cl.Nodes {
			n.Move(at(place + (i+round%2)%3))
		}
		hosts.Set(l.cl.Nodes[0].Addr, l.cl.Nodes[1].Addr, l.cl.Nodes[2].Addr)
		l.startAll()
		l.goesOn()
		t.Logf("moved to %s, %s, %s: goes on %s after the kill", l.cl.Nodes[0].Addr, l.cl.Nodes[1].Addr, l.cl.Nodes[2].Addr,
			time.Since(began).Round(time.Millisecond))
	}
	stop()
	l.settle(wind)
	l.cl.StopAndCheck()
}

// TestMovedWithoutNames kills all three nodes and starts them on other ports, which they cannot know:
// `carillon cluster recover` says it. It is the same cluster afterwards, of the same epoch.
func TestMovedWithoutNames(t *testing.T) {
	heavy(t)
	t.Parallel()
	jobs, rounds, wind := 50, 1, 3*time.Second
	if harness.Long() {
		jobs, rounds, wind = 1000, 2, 10*time.Second
	}
	seed := harness.Seed(t)
	l := newClusterLoad(t, seed, jobs, mixed)
	stop := l.triggerForever(seed, manualJobs, 80*time.Millisecond)
	was := l.epochs()
	for range rounds {
		time.Sleep(2 * time.Second)
		l.killAll("to move")
		began := time.Now()
		var peers []string
		for _, n := range l.cl.Nodes {
			n.Move(harness.FreeAddr(t))
			peers = append(peers, n.ID+"="+n.Addr)
		}
		for _, n := range l.cl.Nodes {
			out, err := exec.Command(n.Binary, "cluster", "recover", "--json", "--data-dir", n.Dir, "--peers",
				strings.Join(peers, ",")).Output()
			var said struct {
				NodeID string `json:"node_id"`
				Alone  bool   `json:"alone"`
			}
			if err != nil || json.Unmarshal(out, &said) != nil || said.NodeID != n.ID || said.Alone {
				t.Fatalf("recover %s: %s %v", n.ID, out, err)
			}
		}
		l.startAll()
		l.goesOn()
		t.Logf("moved to %s: goes on %s after the kill", strings.Join(peers, ", "), time.Since(began).Round(time.Millisecond))
		if is := l.epochs(); is != was {
			t.Errorf("the epochs were %d and are %d", was, is)
		}
		harness.Eventually(t, harness.ReadyLimit, "the members are known under their new addresses", func() bool {
			s, err := l.cl.Nodes[0].Client.Status(context.Background())
			known := 0
			for _, m := range s.Members {
				for _, n := range l.cl.Nodes {
					if m.ID == n.ID && m.Address == n.Addr && m.Suffrage == "voter" {
						known++
					}
				}
			}
			return err == nil && known == 3
		})
	}
	stop()
	l.settle(wind)
	l.cl.StopAndCheck()
}
