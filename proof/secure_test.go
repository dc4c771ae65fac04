package proof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// secureNode is a process of a secure cluster.
type secureNode struct {
	t              *testing.T
	binary         string
	plain          bool // of a plain one, after all
	id, addr, data string
	flags          []string
	cmd            *exec.Cmd
	log            *os.File
}

func (n *secureNode) start() {
	n.t.Helper()
	n.cmd = exec.Command(n.binary, append([]string{"server", "--node-id", n.id, "--listen", n.addr,
		"--data-dir", n.data, fmt.Sprint("--secure=", !n.plain), "--min-free-disk", "0"}, n.flags...)...)
	n.cmd.Stderr, n.cmd.Stdout = n.log, n.log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *secureNode) end(sig syscall.Signal) {
	if n.cmd.ProcessState == nil {
		_ = n.cmd.Process.Signal(sig)
		_ = n.cmd.Wait()
	}
}

// cli runs a command with the admin's token, and no other knowledge of the cluster.
func (n *secureNode) cli(token string, args ...string) ([]byte, error) {
	if !n.plain {
		args = append([]string{"--token-file", token}, args...)
	}
	cmd := exec.Command(n.binary, append([]string{"--addr", n.addr}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+n.t.TempDir(), "XDG_CONFIG_HOME=")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return out, err
}

// Three processes form a secure cluster by the tokens that the first one left. The leader is killed, jobs run on, and
// the command line needs a token and nothing else.
func TestSecureProcesses(t *testing.T) {
	t.Parallel()
	binary := harness.Build(t)
	var hits atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer target.Close()
	dir := t.TempDir()
	var nodes []*secureNode
	for i := range 3 {
		n := &secureNode{t: t, binary: binary, id: fmt.Sprint("n", i+1), addr: harness.FreeAddr(t)}
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
	first.flags = []string{"--bootstrap"}
	first.start()
	admin, join := filepath.Join(first.data, "admin.token"), filepath.Join(first.data, "join.token")
	members := func(n *secureNode) (s client.Status) {
		if out, err := n.cli(admin, "cluster", "members", "--json"); err == nil {
			_ = json.Unmarshal(out, &s)
		}
		return s
	}
	voters := func(n *secureNode) (votes int, leader string) {
		for _, m := range members(n).Members {
			if m.Suffrage == "voter" {
				votes++
			}
			if m.Leader {
				leader = m.ID
			}
		}
		return votes, leader
	}
	harness.Eventually(t, time.Minute, "the first node leads", func() bool {
		_, leader := voters(first)
		return leader == "n1"
	})
	for i, n := range nodes[1:] { // the last one asks a node that may not lead
		n.flags = []string{"--join", nodes[i].addr, "--token-file", join}
		n.start()
	}
	harness.Eventually(t, time.Minute, "three voters", func() bool {
		n, _ := voters(nodes[2])
		return n == 3
	})
	// A run that a killed node had begun is open until its lease ends: others do not wait for it.
	if out, err := nodes[1].cli(admin, "submit", "--name", "tick", "--schedule", "@every 1s",
		"--overlap", "allow", "--http", target.URL); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	fires := func() {
		t.Helper()
		was := hits.Load()
		harness.Eventually(t, time.Minute, "the job runs again", func() bool { return hits.Load() > was+1 })
	}
	fires()

	// Neither a stranger nor the joiners' token gets in, and plain HTTP is told what to do.
	if out, err := first.cli(join, "jobs", "list"); err == nil || !strings.Contains(err.Error(), "join token") {
		t.Errorf("%s: %v", out, err)
	}
	res, err := http.Get("http://" + first.addr + "/api/v1/jobs")
	if err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: %v, %v", res, err)
	} else {
		res.Body.Close()
	}

	first.end(syscall.SIGKILL)
	fires()
	out, err := nodes[2].cli(admin, "cluster", "token", "create", "--voter")
	if err != nil || !strings.HasPrefix(string(out), "cj1.") {
		t.Errorf("another leader makes no join token: %s, %v", out, err)
	}
	// Who makes one sees what it gives.
	for _, want := range []string{"get a vote", "have no vote until"} {
		args := []string{"cluster", "token", "create", "--out", filepath.Join(t.TempDir(), "join")}
		if want == "get a vote" {
			args = append(args, "--voter")
		}
		if out, err := nodes[2].cli(admin, args...); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s, %v: it does not say that they %s", out, err, want)
		}
	}
	out, err = nodes[2].cli(admin, "cluster", "token", "list")
	if err != nil || !strings.Contains(string(out), "JOINS AS") || strings.Count(string(out), " standby ") != 1 ||
		!strings.Contains(string(out), " voter ") {
		t.Errorf("%s, %v", out, err)
	}
	first.start()
	harness.Eventually(t, time.Minute, "it is back", func() bool {
		n, leader := voters(first)
		return n == 3 && leader != ""
	})
	fires()
	for _, n := range nodes {
		n.end(syscall.SIGTERM)
	}
}
