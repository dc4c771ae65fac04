package proof

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// A voter whose log is damaged is rebuilt with one command and started as before, with --bootstrap: it is a voter of the
// same cluster again, with all jobs. While it runs, and without a majority of others, it is refused and left as it was.
func TestRebuildOfADamagedNode(t *testing.T) {
	t.Parallel()
	binary := harness.Build(t)
	for _, plain := range []bool{true, false} {
		dir := t.TempDir()
		var nodes []*secureNode
		for i := range 3 {
			n := &secureNode{t: t, binary: binary, id: fmt.Sprint("n", i+1), addr: harness.FreeAddr(t), plain: plain}
			n.data = filepath.Join(dir, n.id)
			var err error
			if n.log, err = os.Create(filepath.Join(dir, n.id+".log")); err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, n)
		}
		t.Cleanup(func() {
			for _, n := range nodes {
				if n.cmd != nil {
					n.end(syscall.SIGKILL)
				}
				n.log.Close()
				if data, err := os.ReadFile(n.log.Name()); err == nil && t.Failed() {
					t.Logf("%s:\n%s", n.id, data)
				}
			}
		})
		first := nodes[0]
		admin, join := filepath.Join(dir, "admin.token"), filepath.Join(first.data, "join.token")
		status := func(n *secureNode) (s client.Status) {
			if out, err := n.cli(admin, "status", "--json"); err == nil {
				_ = json.Unmarshal(out, &s)
			}
			return s
		}
		vote := func(n *secureNode) bool {
			votes := 0
			for _, m := range status(n).Members {
				if m.Suffrage == "voter" {
					votes++
				}
			}
			return votes == 3
		}
		first.flags = []string{"--bootstrap"}
		first.start()
		if !plain {
			harness.Eventually(t, time.Minute, "it leaves a token", func() bool {
				data, err := os.ReadFile(filepath.Join(first.data, "admin.token"))
				return err == nil && len(data) > 0 && os.WriteFile(admin, data, 0o600) == nil
			})
		}
		harness.Eventually(t, time.Minute, "the first node leads", func() bool { return status(first).Leader == "n1" })
		for _, n := range nodes[1:] {
			if n.flags = []string{"--join", first.addr}; !plain {
				n.flags = append(n.flags, "--token-file", join)
			}
			n.start()
		}
		harness.Eventually(t, time.Minute, "all vote", func() bool { return vote(first) })
		cluster := status(first).ClusterID
		if _, err := first.cli(admin, "submit", "--name", "a", "--schedule", "@manual", "--http", "http://127.0.0.1:1/"); err != nil {
			t.Fatal(err)
		}

		rebuild := func(by *secureNode) error {
			_, err := by.cli(admin, "node", "rebuild", "--data-dir", first.data)
			return err
		}
		refused := func(why string, by *secureNode) {
			t.Helper()
			if err := rebuild(by); err == nil || !strings.Contains(err.Error(), why) {
				t.Fatalf("%v", err)
			}
		}
		refused("stop that one", nodes[1])
		first.end(syscall.SIGTERM)
		log := filepath.Join(first.data, datadir.LogFile)
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		clear(data[:4096])
		if err := os.WriteFile(log, data, 0o600); err != nil {
			t.Fatal(err)
		}
		nodes[1].end(syscall.SIGKILL)
		harness.Eventually(t, time.Minute, "nobody leads", func() bool { s := status(nodes[2]); return s.Node == "n3" && s.Leader == "" })
		refused("nothing was changed", nodes[2])
		if after, err := os.ReadFile(log); err != nil || string(after) != string(data) {
			t.Fatal("its log was touched", err)
		}
		nodes[1].start()
		harness.Eventually(t, time.Minute, "one leads", func() bool { return status(nodes[2]).Leader != "" && status(nodes[1]).Leader != "" })
		if err := rebuild(nodes[2]); err != nil {
			t.Fatal(err)
		}
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			first.start()
			harness.Eventually(t, time.Minute, "it votes again", func() bool { return vote(first) && status(first).Ready })
			if s := status(first); s.ClusterID != cluster {
				t.Fatalf("it is in cluster %s, and not in %s", s.ClusterID, cluster)
			}
			if out, err := first.cli(admin, "jobs", "get", "a"); err != nil {
				t.Errorf("%s %v", out, err)
			}
			first.end(sig)
		}
		for _, n := range nodes[1:] {
			n.end(syscall.SIGKILL)
		}
	}
}
