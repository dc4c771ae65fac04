package cmd

import (
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/node"
)

// A whole cluster by hand: two nodes, and every command about them.
func TestClusterCommands(t *testing.T) {
	open := func(id string, join ...string) *node.Node {
		n, err := node.Open(node.Config{NodeID: id, Listen: "127.0.0.1:0", DataDir: t.TempDir(), Bootstrap: len(join) == 0, Join: join, Version: "test",
			Raft: node.RaftConfig{Heartbeat: 100 * time.Millisecond}, Store: node.StoreConfig{MmapSize: 16 << 20, NoSync: true},
			Members: node.MembersConfig{Interval: 50 * time.Millisecond, StableFor: 50 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- n.Run(t.Context()) }()
		t.Cleanup(func() {
			if err := errors.Join(n.Close(), <-done); err != nil {
				t.Error(err)
			}
		})
		return n
	}
	n1 := open("n1")
	n2 := open("n2", n1.Addr())
	s := newShell(t)
	run := func(args ...string) (string, string, int) { return s.run("", append(args, "--addr", n2.Addr())...) }
	eventually := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if cond() {
				return
			}
		}
		t.Fatalf("never: %s", what)
	}
	lists := func(want ...string) func() bool {
		return func() bool {
			out, _, code := run("cluster", "members")
			for _, w := range want {
				if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), w) {
					return false
				}
			}
			return true
		}
	}
	must := func(want string, args ...string) {
		t.Helper()
		if out, errOut, code := run(args...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("%q: %d %s%s", args, code, out, errOut)
		}
	}
	eventually("two voters", lists("n1 "+n1.Addr()+" leader test 1", "n2 "+n2.Addr()+" voter test 1"))
	must("n2 leads", "cluster", "transfer", "n2")
	eventually("n2 leads", lists("n2 "+n2.Addr()+" leader"))
	must("n1 follows without a vote", "cluster", "demote", "n1")
	eventually("n1 stands by", lists("n1 "+n1.Addr()+" standby"))
	must("n1 votes", "cluster", "promote", "n1")
	eventually("n1 votes", lists("n1 "+n1.Addr()+" voter"))
	must("{}", "cluster", "transfer", "--json")
	eventually("n1 leads", lists("n1 "+n1.Addr()+" leader"))
	if _, errOut, code := run("cluster", "remove", "n9"); code != exitNotFound || !strings.Contains(errOut, "carillon cluster members") {
		t.Error(code, errOut)
	}
	must("n2 is no longer a member", "cluster", "leave")
	if _, errOut, code := s.run("", "cluster", "remove", "n1", "--addr", n1.Addr()); code != exitConflict || !strings.Contains(errOut, "last voter") {
		t.Error(code, errOut)
	}
	if out, _, code := s.run("", "cluster", "members", "--addr", n1.Addr()); code != 0 || strings.Contains(out, "n2") {
		t.Error(code, out)
	}
}

func TestClusterRecover(t *testing.T) {
	old := recovers
	t.Cleanup(func() { recovers = old })
	var peers map[string]string
	result := node.Recovered{NodeID: "n1", Index: 9}
	recovers = func(dir string, p map[string]string, _ *slog.Logger) (node.Recovered, error) {
		peers = p
		return result, nil
	}
	s := newShell(t)
	if out, errOut, code := s.run("", "cluster", "recover", "--data-dir", "d", "--peers", "n1=h:1,n2=h:2"); code != 0 || !strings.Contains(out, "run the same on the other nodes") {
		t.Error(out, errOut, code)
	}
	if want := map[string]string{"n1": "h:1", "n2": "h:2"}; !reflect.DeepEqual(peers, want) {
		t.Error(peers)
	}
	result = node.Recovered{NodeID: "n1", Alone: true, Lost: []string{"n2", "n3"}, Epoch: 1, Index: 9, Unsure: 2}
	out, _, code := s.run("", "cluster", "recover", "--data-dir", "d", "--peers", "n1=h:1")
	for _, want := range []string{"cluster of one, at entry 9, epoch 1", "2 log entries", "n2, n3: empty"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Error(out, code)
		}
	}
	if out, _, _ := s.run("", "cluster", "recover", "--data-dir", "d", "--peers", "n1=h:1", "--json"); out != `{"node_id":"n1","alone":true,"lost":["n2","n3"],"epoch":1,"index":9,"unsure_entries":2}`+"\n" {
		t.Error(out)
	}
	for _, args := range [][]string{{}, {"--data-dir", "d"}, {"--peers", "n1=h:1"}, {"--data-dir", "d", "--peers", "n1"}} {
		if _, _, code := s.run("", append([]string{"cluster", "recover"}, args...)...); code != exitUsage {
			t.Error(args, code)
		}
	}
}

func TestServerJoins(t *testing.T) {
	s := newShell(t)
	for _, args := range [][]string{{"--bootstrap", "--join", "h:1"}, {"--join", "h:1", "--remove-dead-after", "1s"}} {
		if _, errOut, code := s.run("", append([]string{"server", "--node-id", "n1", "--data-dir", "d"}, args...)...); code != exitUsage {
			t.Error(args, errOut, code)
		}
	}
}
