package cmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// openNode starts a node of a cluster by hand, of its first one without an address to join.
func openNode(t *testing.T, id string, groups int, join ...string) *node.Node {
	t.Helper()
	return openNodeIn(t, t.TempDir(), id, groups, join...)
}

// openNodeIn is openNode in a directory that the test wants to touch.
func openNodeIn(t *testing.T, dir, id string, groups int, join ...string) *node.Node {
	t.Helper()
	n, err := node.Open(node.Config{NodeID: id, Listen: "127.0.0.1:0", DataDir: dir, Bootstrap: len(join) == 0,
		Join: join, Version: "test", Groups: groups, Raft: node.RaftConfig{Heartbeat: time.Second},
		Store:   node.StoreConfig{MmapSize: 16 << 20, NoSync: true},
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

// A whole cluster by hand: two nodes, and every command about them.
func TestClusterCommands(t *testing.T) {
	n1 := openNode(t, "n1", 0)
	n2 := openNode(t, "n2", 0, n1.Addr())
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
	eventually("two voters", lists(fmt.Sprintf("n1 %s leader test %d", n1.Addr(), fsm.Level), fmt.Sprintf("n2 %s voter test %d", n2.Addr(), fsm.Level)))
	must(fmt.Sprintf("feature level %d is committed\n", fsm.Level), "cluster", "members")
	must(fmt.Sprintf("feature level %d\n", fsm.Level), "status")
	must("n2 leads", "cluster", "transfer", "n2")
	eventually("n2 leads", lists("n2 "+n2.Addr()+" leader"))
	must("n1 follows without a vote", "cluster", "demote", "n1")
	eventually("n1 stands by", lists("n1 "+n1.Addr()+" standby"))
	must("n1 votes", "cluster", "promote", "n1")
	eventually("n1 votes", lists("n1 "+n1.Addr()+" voter"))
	must("{}", "cluster", "transfer", "--json")
	eventually("n1 leads", lists("n1 "+n1.Addr()+" leader"))
	if _, errOut, code := run("cluster", "remove", "n9"); code != exit.NotFound || !strings.Contains(errOut, "carillon cluster members") {
		t.Error(code, errOut)
	}
	must("n2 is no longer a member", "cluster", "leave")
	if _, errOut, code := s.run("", "cluster", "remove", "n1", "--addr", n1.Addr()); code != exit.Conflict || !strings.Contains(errOut, "last voter") {
		t.Error(code, errOut)
	}
	if out, _, code := s.run("", "cluster", "members", "--addr", n1.Addr()); code != 0 || strings.Contains(out, "n2") {
		t.Error(code, out)
	}
}

// What a user sees of a node that may not join: the reason and the remedy, and a cluster that is as it was.
func TestBadJoins(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	eventually := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if cond() {
				return
			}
		}
		t.Fatalf("never: %s", what)
	}
	members := func(n *node.Node) string {
		out, _, _ := s.run("", "cluster", "members", "--addr", n.Addr())
		return strings.Join(strings.Fields(out), " ")
	}
	n1 := openNode(t, "n1", 0)
	n2 := openNode(t, "n2", 0, n1.Addr())
	eventually("two voters", func() bool { return strings.Contains(members(n1), "n2 "+n2.Addr()+" voter") })

	dir := func(id, cluster string) string {
		d := t.TempDir()
		if err := os.WriteFile(filepath.Join(d, "node.json"), fmt.Appendf(nil, `{"format":1,"node_id":%q,"instance":"i","cluster_id":%q}`, id, cluster), 0o600); err != nil {
			t.Fatal(err)
		}
		return d
	}
	join := func(id, dir string, more ...string) []string {
		return append([]string{"server", "--node-id", id, "--listen", "127.0.0.1:0", "--data-dir", dir, "--executors", "none", "--join", n1.Addr()}, more...)
	}
	for _, tt := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"duplicate id", join("n1", t.TempDir()), exit.Conflict, []string{"has a node n1 with another data directory; it is running at " + n1.Addr(), "hint: if that one is gone for good, run `carillon cluster remove n1` first; otherwise choose another --node-id"}},
		{"duplicate id, through a follower", join("n1", t.TempDir(), "--join", n2.Addr()), exit.Conflict, []string{"has a node n1"}},
		{"another cluster", join("n3", dir("n3", "elsewhere")), exit.Conflict, []string{"and node n3 in \"elsewhere\": they do not talk to each other", "hint: check --join and the addresses, or empty the data directory of the wrong node"}},
		{"directory of another node", join("n3", dir("n9", "")), exit.Failure, []string{`belongs to node "n9", not to "n3"`, "--node-id n9"}},
		{"no address", []string{"server", "--node-id", "n3", "--data-dir", t.TempDir(), "--join", "nowhere"}, exit.Usage, []string{`--join: "nowhere" is not an address`, "hint: use host:port"}},
		{"an address of another node", join("n3", t.TempDir(), "--advertise", n2.Addr()), exit.Conflict, []string{"the leader reaches node n2, not node n3", "--advertise"}},
	} {
		before := members(n1)
		_, errOut, code := s.run("", tt.args...)
		for _, w := range tt.want {
			if code != tt.code || !strings.Contains(errOut, w) {
				t.Errorf("%s: exit %d, want %d and %q in:\n%s", tt.name, code, tt.code, w, errOut)
			}
		}
		if strip(before) != strip(members(n1)) {
			t.Errorf("%s changed the members from %s to %s", tt.name, before, members(n1))
		}
	}

	// A binary that is too old says how old it is.
	_, _, err := client.New(n1.Addr()).Join(t.Context(), client.JoinRequest{NodeID: "n3", InstanceID: "i", Address: "h:1", Version: "0.1", Level: 0})
	if job.CodeOf(err) != job.CodeState || !strings.Contains(err.Error(), "node n3 (version 0.1) supports levels up to 0") || !strings.Contains(err.Error(), "start it with the carillon that the others run") {
		t.Errorf("%v", err)
	}

	// Whom it cannot reach is asked again and again; meanwhile it says so.
	late := openNode(t, "n3", 0, "127.0.0.1:1")
	eventually("it says whom it cannot reach", func() bool {
		out, _, code := s.run("", "status", "--addr", late.Addr())
		return code == 0 && strings.Contains(out, "has not joined its cluster yet: cannot reach http://127.0.0.1:1: connection refused") &&
			strings.Contains(out, "start the nodes that --join names") && !strings.Contains(out, "election is under way")
	})
	if _, errOut, code := s.run("", "status", "--ready", "--addr", late.Addr()); code != exit.Unavailable || !strings.Contains(errOut, "node n3 is not ready") {
		t.Error(code, errOut)
	}
	if _, errOut, code := s.run("", "status", "--ready", "--addr", n1.Addr()); code != exit.OK {
		t.Error(code, errOut)
	}
	// A follower is as good as the leader.
	n4 := openNode(t, "n4", 0, n2.Addr())
	eventually("it votes", func() bool { return strings.Contains(members(n1), "n4 "+n4.Addr()+" voter") })
}

var ages = regexp.MustCompile(`(\d+[a-z]+ ago|now) (\d+|-)|leader|voter`)

// strip leaves out of a list of members what changes by itself.
func strip(members string) string { return ages.ReplaceAllString(members, "") }

func TestClusterSkip(t *testing.T) {
	old := skips
	t.Cleanup(func() { skips = old })
	var got uint64
	skips = func(dir string, index uint64, _ *slog.Logger) (datadir.Skipped, error) {
		got = index
		return datadir.Skipped{NodeID: "n1", SkippedEntry: datadir.SkippedEntry{Index: index, Term: 3, At: job.At(noon)}, What: "damaged"}, nil
	}
	s := newShell(t)
	if out, _, code := s.run("", "cluster", "recover", "--data-dir", "d", "--skip", "81"); code != 0 || got != 81 || out != "n1 will skip entry 81 of term 3 (damaged)\nrun the same command on every other node, then start them\n" {
		t.Error(out, code, got)
	}
	if out, _, code := s.run("", "cluster", "recover", "--data-dir", "d", "--skip", "81", "--json"); code != 0 || out != `{"node_id":"n1","index":81,"term":3,"at":"2026-11-02T12:00:00Z","entry":"damaged"}`+"\n" {
		t.Error(out, code)
	}
	for _, args := range [][]string{{"--skip", "81"}, {"--data-dir", "d", "--skip", "0"}, {"--data-dir", "d", "--skip", "81", "--peers", "n1=h:1"}, {"--data-dir", "d", "--skip", "x"}} {
		if _, errOut, code := s.run("", append([]string{"cluster", "recover"}, args...)...); code != exit.Usage {
			t.Error(args, errOut, code)
		}
	}
}

func TestMinFreeDisk(t *testing.T) {
	for in, want := range map[string]node.DiskLimit{"": {}, "0": {Off: true}, "1GiB": {Bytes: 1 << 30}, "2.5%": {Percent: 2.5}, "0%": {Off: true}, "2000000000": {Bytes: 2e9}, "5KiB": {Bytes: 5 << 10}, "5 B": {Bytes: 5}, "0.0": {Off: true}} {
		if got, err := diskLimit(in); got != want || err != nil {
			t.Errorf("%q: %+v %v", in, got, err)
		}
	}
	for _, in := range []string{"much", "-1", "100%", "x%", "NaN%"} {
		if _, err := diskLimit(in); exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "512MiB") {
			t.Errorf("%q: %v", in, err)
		}
	}
	// Five bytes are a mistake.
	for _, in := range []string{"5", "1048575", "2.5"} {
		if _, errOut, code := newShell(t).run("", "server", "--node-id", "n1", "--data-dir", "d", "--min-free-disk", in); code != exit.Usage || !strings.Contains(errOut, "error: --min-free-disk: "+in+" would mean ") || !strings.Contains(errOut, "hint: give it a unit, such as 5GiB or 5%") {
			t.Errorf("%s: exit %d %s", in, code, errOut)
		}
	}
}

func TestClusterRecover(t *testing.T) {
	old := recovers
	t.Cleanup(func() { recovers = old })
	var peers map[string]string
	result := datadir.Recovered{NodeID: "n1", Index: 9}
	recovers = func(dir string, p map[string]string, _ *slog.Logger) (datadir.Recovered, error) {
		peers = p
		return result, nil
	}
	s := newShell(t)
	if out, errOut, code := s.run("", "cluster", "recover", "--data-dir", "d", "--peers", "n1=h:1,n2=h:2"); code != 0 || !strings.Contains(out, "run the same command on the other nodes") {
		t.Error(out, errOut, code)
	}
	if want := map[string]string{"n1": "h:1", "n2": "h:2"}; !reflect.DeepEqual(peers, want) {
		t.Error(peers)
	}
	result = datadir.Recovered{NodeID: "n1", Alone: true, Lost: []string{"n2", "n3"}, Epoch: 1, Index: 9, Unsure: 2}
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
		if _, _, code := s.run("", append([]string{"cluster", "recover"}, args...)...); code != exit.Usage {
			t.Error(args, code)
		}
	}
}

func TestServerJoins(t *testing.T) {
	s := newShell(t)
	for _, args := range [][]string{{"--bootstrap", "--join", "h:1"}, {"--join", "h:1", "--remove-dead-after", "1s"}} {
		if _, errOut, code := s.run("", append([]string{"server", "--node-id", "n1", "--data-dir", "d"}, args...)...); code != exit.Usage {
			t.Error(args, errOut, code)
		}
	}
}

func TestWhoHoldsTheLevel(t *testing.T) {
	at := func(committed int, levels ...int) client.Status {
		s := client.Status{Level: committed}
		for i, l := range levels {
			s.Members = append(s.Members, client.Member{ID: fmt.Sprint("n", i+1), Level: l})
		}
		return s
	}
	for _, tt := range []struct {
		s    client.Status
		want string
	}{
		{at(2, 2, 2, 2), ""},
		{at(2, 3, 3, 3), "; level 3 follows"},
		{at(1, 2, 1, 0), "; level 2 follows when every member supports it; still to come: n2, n3"},
	} {
		if got := behind(tt.s); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
