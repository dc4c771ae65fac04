package proof

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestWorkerTools: a worker alone has the same tools as a node's, bounded by the same flags: brokers by name, limits
// for shell jobs and for the command of queues.
func TestWorkerTools(t *testing.T) {
	heavy(t)
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true,
		NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	t.Cleanup(func() { broker.Shutdown(); broker.WaitForShutdown() })
	if !broker.ReadyForConnections(20 * time.Second) {
		t.Fatal("the broker does not start")
	}
	nc, err := nats.Connect(broker.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	got, err := nc.SubscribeSync("orders.>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}

	n := harness.NewNode(t, harness.Build(t), filepath.Join(t.TempDir(), "data"), "--executors", "none")
	n.Start()
	other := harness.FreeAddr(t)
	p := spawn(t, []string{"CARILLON_BROKERS=orders=" + broker.ClientURL()}, n.Binary, "worker", "--join", n.Addr,
		"--name", "w1", "--executors", "shell,message,queue",
		"--broker", "other=nats://"+other, "--command", "ulimit -n; ulimit -t", "--shell-open-files", "77", "--shell-cpu",
		"9s", "--shell-file-size", "64KiB", "--shell-cgroup", "none")
	harness.Eventually(t, time.Minute, "it registered",
		func() bool { return strings.Contains(p.said(), "carillon worker w1 registered") })

	message := job.Spec{Name: "m", Type: job.TypeMessage,
		Payload: []byte(`{"broker":"orders","subject":"orders.new","data":{"n":1}}`)}
	r := makeRun(t, n, message)
	awaitRun(t, n, r.RunID, job.RunSucceeded)
	if m, err := got.NextMsg(20 * time.Second); err != nil || string(m.Data) != `{"n":1}` ||
		m.Header.Get("Carillon-Run") != r.RunID {
		t.Errorf("%+v, %v", m, err)
	}
	none := 0
	unknown := job.Spec{Name: "u", Type: job.TypeMessage, Retry: job.Retry{MaxRetries: &none},
		Payload: []byte(`{"broker":"unknown","subject":"x"}`)}
	if d := awaitRun(t, n, makeRun(t, n, unknown).RunID, job.RunDead); !strings.Contains(d.Error, `"unknown"`) {
		t.Errorf("%+v", d.Run)
	}
	if d := awaitRun(t, n, makeRun(t, n, shellJob("s", "ulimit -n; ulimit -t")).RunID,
		job.RunSucceeded); d.Output != "77\n9\n" {
		t.Errorf("a shell job: %q", d.Output)
	}
	q := makeRun(t, n, job.Spec{Name: "q", Type: job.TypeQueue, Payload: []byte(`{"queue":"mail"}`)})
	if d := awaitRun(t, n, q.RunID, job.RunSucceeded); d.Output != "77\n9\n" {
		t.Errorf("the command of a queue: %q", d.Output)
	}
	greedy := shellJob("g", "true")
	greedy.Payload = []byte(`{"command":"true","limits":{"open_files":78}}`)
	greedy.Retry = job.Retry{MaxRetries: &none}
	if d := awaitRun(t, n, makeRun(t, n, greedy).RunID, job.RunDead); !strings.Contains(d.Error,
		"78 is more than the 77 that this worker allows") {
		t.Errorf("%+v", d.Run)
	}
	for _, args := range [][]string{{"--broker", "x"}, {"--shell-cgroup", "here"}, {"--shell-processes", "-1"},
		{"--shell-cpu", "-1s"}} {
		p := spawn(t, nil, n.Binary, append([]string{"worker"}, args...)...)
		if code := p.exit(); code != 2 || !strings.Contains(p.said(), args[0][:5]) {
			t.Errorf("%v: exit code %d: %s", args, code, p.said())
		}
	}
}

// TestWorkerUser: --shell-user is whose rights every command of a worker has, and one that cannot be is refused at the
// start.
func TestWorkerUser(t *testing.T) {
	heavy(t)
	n := harness.NewNode(t, harness.Build(t), filepath.Join(t.TempDir(), "data"), "--executors", "none")
	n.Start()
	if p := spawn(t, nil, n.Binary, "worker", "--join", n.Addr, "--executors", "shell", "--shell-user",
		"no-such-user"); p.exit() == 0 || !strings.Contains(p.said(), "no-such-user") {
		t.Errorf("%s", p.said())
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	worker(t, n, "w1", "--executors", "shell,queue", "--command", "id -un", "--shell-user", "nobody")
	if d := awaitRun(t, n, makeRun(t, n, shellJob("s", "id -un")).RunID, job.RunSucceeded); d.Output != "nobody\n" {
		t.Errorf("a shell job runs as %q", d.Output)
	}
	q := makeRun(t, n, job.Spec{Name: "q", Type: job.TypeQueue, Payload: []byte(`{"queue":"mail"}`)})
	if d := awaitRun(t, n, q.RunID, job.RunSucceeded); d.Output != "nobody\n" {
		t.Errorf("the command of a queue runs as %q", d.Output)
	}
}

// TestTailOfAWorker: what commands of a worker elsewhere write can be followed from the command line, those of queues
// too.
func TestTailOfAWorker(t *testing.T) {
	heavy(t)
	n := harness.NewNode(t, harness.Build(t), filepath.Join(t.TempDir(), "data"), "--executors", "none")
	n.Start()
	dir := t.TempDir()
	const script = `echo "$CARILLON_QUEUE first"; while ! [ -e %[1]s/go ]; do sleep 0.02; done; echo second`
	worker(t, n, "w1", "--executors", "shell,queue", "--command", fmt.Sprintf(script, dir))
	runs := map[string]job.Run{
		"shell": makeRun(t, n, shellJob("s", script, dir)),
		"queue": makeRun(t, n, job.Spec{Name: "q", Type: job.TypeQueue, Payload: []byte(`{"queue":"mail"}`)}),
	}
	tails := map[string]*process{}
	for kind, r := range runs {
		tails[kind] = spawn(t, nil, n.Binary, "--addr", n.Addr, "runs", "tail", "--follow", r.RunID)
	}
	for kind, p := range tails {
		harness.Eventually(t, time.Minute, "the first line of "+kind,
			func() bool { return strings.Contains(p.said(), "first\n") })
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, p := range tails {
		want := map[string]string{"shell": " first\nsecond\n", "queue": "mail first\nsecond\n"}[kind]
		if code := p.exit(); code != 0 || p.said() != want {
			t.Errorf("%s: exit code %d, %q", kind, code, p.said())
		}
		out, err := exec.Command(n.Binary, "--addr", n.Addr, "runs", "tail", runs[kind].RunID).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%s, when it has ended: %q, %v", kind, out, err)
		}
	}
}
