package proof

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

const refusedSaid = "registration refused"

// tied are two runs that go on until the test lets them end, and count how often they began.
type tied struct {
	t    *testing.T
	n    *harness.Node
	dir  string
	runs []job.Run
}

func tieDown(t *testing.T, n *harness.Node) *tied {
	t.Helper()
	x := &tied{t: t, n: n, dir: t.TempDir()}
	for _, name := range []string{"again", "once"} {
		spec := shellJob(name, "echo $$ >> %[1]s/%[2]s; while [ ! -e %[1]s/go ]; do sleep 0.02; done", x.dir, name)
		if name == "once" {
			none := 0
			spec.Delivery, spec.Retry.MaxRetries = job.DeliverAtMostOnce, &none
		}
		x.runs = append(x.runs, makeRun(t, n, spec))
		harness.Eventually(t, time.Minute, name+" begins", func() bool { return x.starts(name) == 1 })
	}
	return x
}

func (x *tied) starts(name string) int {
	b, _ := os.ReadFile(filepath.Join(x.dir, name))
	return strings.Count(string(b), "\n")
}

// untie lets the runs end, and says what is wrong unless each was started once and succeeded.
func (x *tied) untie() {
	x.t.Helper()
	if err := os.WriteFile(x.dir+"/go", nil, 0o600); err != nil {
		x.t.Fatal(err)
	}
	for i, name := range []string{"again", "once"} {
		if d := awaitRun(x.t, x.n, x.runs[i].RunID, job.RunSucceeded); d.Attempt != 1 || len(d.Attempts) != 1 {
			x.t.Errorf("%s: %+v", name, d)
		}
		if got := x.starts(name); got != 1 {
			x.t.Errorf("%s was started %d times", name, got)
		}
	}
}

func copyOf(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return to
}

// TestCopyOfAWorkersDirectory: a worker's state directory is copied while it lives, and a worker is started on the
// copy, as happens with golden images and clones of machines. It takes nothing from the original, ends none of its
// commands, and says where that is. When the original has left, its name is free.
func TestCopyOfAWorkersDirectory(t *testing.T) {
	beside(t)
	n := harness.NewNode(t, harness.Build(t), filepath.Join(t.TempDir(), "data"), "--executors", "none")
	n.Start()
	state := filepath.Join(t.TempDir(), "state")
	w := worker(t, n, "w1", "--executors", "shell", "--state-dir", state)
	x := tieDown(t, n)
	clone := spawn(t, nil, n.Binary, "worker", "--join", n.Addr, "--executors", "shell", "--state-dir", copyOf(t, state))
	harness.Eventually(t, time.Minute, "the clone is refused",
		func() bool { return strings.Contains(clone.said(), refusedSaid) })
	if said := clone.said(); strings.Contains(said, "w1 registered") || strings.Contains(said, "killed process groups") ||
		!strings.Contains(said, state) {
		t.Errorf("it says:\n%s", said)
	}
	x.untie()
	w.signal(syscall.SIGTERM)
	w.exit()
	harness.Eventually(t, time.Minute, "the name is free",
		func() bool { return strings.Contains(clone.said(), "w1 registered") })
}

// TestSameNameOverAFailover: a second worker has the name of one that lives, and the leader is killed. The one whose
// runs they are is stopped for a moment, so that the other comes to the next leader first.
func TestSameNameOverAFailover(t *testing.T) {
	beside(t)
	c := harness.NewCluster(t, harness.Build(t), 3, "--executors", "shell", "--tags", "pool=nodes")
	leader := c.Leader()
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr)
	}
	out := filepath.Join(t.TempDir(), "out")
	command := fmt.Sprintf("cat > /dev/null; echo $$ >> %[1]s; while [ ! -e %[1]s.go ]; do sleep 0.02; done", out)
	flags := []string{"--executors", "queue", "--command", command, "--join", strings.Join(addrs, ",")}
	w := worker(t, leader, "w1", flags...)
	r := makeRun(t, leader, job.Spec{Name: "q", Type: job.TypeQueue, Payload: []byte(`{"queue":"mail","data":{"n":1}}`)})
	starts := func() int {
		b, _ := os.ReadFile(out)
		return strings.Count(string(b), "\n")
	}
	harness.Eventually(t, time.Minute, "it begins", func() bool { return starts() == 1 })
	other := spawn(t, nil, leader.Binary, append([]string{"worker", "--name", "w1"}, flags...)...)
	harness.Eventually(t, time.Minute, "the other is refused",
		func() bool { return strings.Contains(other.said(), refusedSaid) })
	w.signal(syscall.SIGSTOP)
	leader.Kill("two workers of one name")
	next := c.Leader()
	harness.Eventually(t, time.Minute, "the other is refused by the next leader",
		func() bool { return strings.Contains(other.said(), "has not talked to this leader yet") })
	w.signal(syscall.SIGCONT)
	if err := os.WriteFile(out+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d := awaitRun(t, next, r.RunID, job.RunSucceeded); d.Attempt != 1 || starts() != 1 {
		t.Errorf("%+v, %d starts", d, starts())
	}
	if strings.Contains(other.said(), "w1 registered") {
		t.Errorf("it says:\n%s", other.said())
	}
}

// TestCopyOfANodesDirectory: the data directory of a node is copied while it lives and executes, and a node is started
// on the copy.
func TestCopyOfANodesDirectory(t *testing.T) {
	beside(t)
	c := harness.NewCluster(t, harness.Build(t), 3, "--executors", "shell")
	x := tieDown(t, c.Leader())
	d, err := x.n.Client.GetRun(t.Context(), x.runs[1].RunID)
	if err != nil {
		t.Fatal(err)
	}
	var home *harness.Node
	for _, n := range c.Nodes {
		if n.ID == d.Worker {
			home = n
		}
	}
	stop := func(sig syscall.Signal) {
		if err := syscall.Kill(home.PID(), sig); err != nil {
			t.Fatal(err)
		}
	}
	stop(syscall.SIGSTOP) // so that the copy is whole, as a snapshot of a volume is
	dir := copyOf(t, home.Dir)
	stop(syscall.SIGCONT)
	clone := spawn(t, nil, home.Binary, "server", "--node-id", home.ID, "--listen", harness.FreeAddr(t), "--data-dir",
		dir, "--executors", "shell")
	harness.Eventually(t, time.Minute, "the clone is refused",
		func() bool { return strings.Contains(clone.said(), refusedSaid) })
	if said := clone.said(); strings.Contains(said, "killed process groups") ||
		!strings.Contains(said, home.Addr) && !strings.Contains(said, home.Dir) {
		t.Errorf("it says:\n%s", said)
	}
	x.untie()
}
