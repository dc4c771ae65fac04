package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/proof/harness"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
)

// watched is a cluster of three real nodes without workers of their own, two workers beside them, and Prometheus.
type watched struct {
	*harness.Cluster
	*prometheus
	t       *testing.T
	workers [2]*process
	disk    *harness.SmallDisk
}

func watch(t *testing.T) *watched {
	t.Helper()
	tool(t, "prometheus")
	w := &watched{Cluster: harness.NoCluster(t), t: t}
	w.disk, _ = harness.NewSmallDisk(t, 192)
	binary := harness.Build(t)
	var addrs []string
	for i := range 3 {
		dir := filepath.Join(t.TempDir(), "data")
		if i == 2 && w.disk != nil {
			dir = filepath.Join(w.disk.Path, "data")
		}
		n := harness.NewNode(t, binary, dir, "--executors", "none", "--lease", "2s", "--min-free-disk", "32MiB")
		n.ID = fmt.Sprintf("n%d", i+1)
		if i == 2 {
			n.Flags = append(n.Flags, "--insecure")
		}
		if i > 0 {
			n.Join = []string{w.Nodes[0].Addr}
		}
		w.Nodes = append(w.Nodes, n)
		n.Start()
		addrs = append(addrs, n.Addr)
	}
	harness.Eventually(t, harness.ReadyLimit, "three voters", func() bool {
		s, err := w.Nodes[0].Client.Status(context.Background())
		voters := 0
		for _, m := range s.Members {
			if m.Suffrage == "voter" {
				voters++
			}
		}
		return err == nil && voters == 3
	})
	var metrics [2]string
	for i := range w.workers {
		w.workers[i], metrics[i] = startWorker(t, w.Nodes[0], fmt.Sprintf("w%d", i), "--executors", "shell",
			"--slots", "2")
	}
	w.prometheus = startPrometheus(t, target{"carillon", "/metrics", addrs, ""},
		target{"carillon-jobs", "/metrics/jobs", addrs, ""},
		target{"carillon-workers", "/metrics", metrics[:], ""})
	harness.Eventually(t, time.Minute, "all are scraped", func() bool {
		return len(w.query(`up == 1`)) == 8 && len(w.query(`carillon_runs_total offset 1s`)) > 0
	})
	return w
}

func (w *watched) create(name string, spec job.Spec) {
	w.t.Helper()
	spec.Name = name
	var err error
	if !harness.Within(harness.ReadyLimit, func() bool {
		_, err = w.Leader().Client.CreateJob(w.t.Context(), spec)
		return err == nil
	}) {
		w.t.Fatal(err)
	}
}

func shell(schedule, command string) job.Spec {
	none := 0
	return job.Spec{Type: job.TypeShell, Schedule: schedule, Retry: job.Retry{MaxRetries: &none},
		Payload: fmt.Appendf(nil, `{"command":%q}`, command)}
}

// Each alert that a test can provoke fires in a real Prometheus when that happens to a real cluster.
func TestAlertsFire(t *testing.T) {
	long(t)
	w := watch(t)
	t.Logf("in good order: %v", w.query(`ALERTS{severity!="info"}`))
	w.fired("CarillonInsecure", `,instance="`+w.Nodes[2].Addr+`"`)

	w.create("bad", shell("@every 1s", "exit 3"))
	w.fired("CarillonDeadLetters", `,type="shell"`)
	w.fired("CarillonJobFailing", `,namespace="default",job_name="bad"`)

	// A queue that no worker takes, and then with many runs.
	queue := job.Spec{Type: job.TypeQueue, Schedule: job.ScheduleManual, Payload: json.RawMessage(`{"queue":"mail"}`)}
	w.create("waits", queue)
	if _, err := w.Leader().Client.RunJob(t.Context(), "waits"); err != nil {
		t.Fatal(err)
	}
	w.fired("CarillonQueueWithoutWorker", `,namespace="default",queue="mail"`)
	w.fired("CarillonBacklogOld", `,group="0"`)
	var lines strings.Builder
	for i := range 2_500 {
		fmt.Fprintf(&lines, `{"name":"flood-%d","type":"queue","schedule":"2026-01-01T00:00:00Z",`+
			`"missed":{"policy":"run_once"},"payload":{"queue":"mail"}}`+"\n", i)
	}
	failed := 0
	err := w.Leader().Client.BulkCreate(t.Context(), strings.NewReader(lines.String()), func(r client.BulkResult) error {
		if r.Error != nil {
			failed++
		}
		return nil
	})
	if err != nil || failed > 0 {
		t.Fatal(failed, err)
	}
	w.fired("CarillonBacklogGrows", `,group="0"`)

	// All slots are busy, and more is due.
	for i := range 6 {
		w.create(fmt.Sprintf("slow-%d", i), shell("@every 1s", "sleep 8"))
	}
	w.fired("CarillonNoFreeSlot", "")
	w.fired("CarillonOccurrencesMissed", `,reason="waiting"`)
	w.explained()

	// Both workers are killed, one with a run that is not repeated.
	once := shell("@every 1s", "sleep 60")
	once.Delivery, once.Priority = job.DeliverAtMostOnce, "critical"
	for i := range 4 {
		w.create(fmt.Sprintf("once-%d", i), once)
	}
	harness.Eventually(t, 2*time.Minute, "one of them runs", func() bool {
		p, err := w.Leader().Client.Runs(t.Context(),
			client.RunQuery{Statuses: []job.RunStatus{job.RunClaimed, job.RunRunning}})
		for _, r := range p.Runs {
			if err == nil && strings.HasPrefix(r.JobName, "once-") {
				return true
			}
		}
		return false
	})
	for _, p := range w.workers {
		p.kill()
	}
	w.fired("CarillonRunsLost", `,type="shell"`)
	w.fired("CarillonNoWorker", "")
	w.fired("CarillonNodeDown", `,job="carillon-workers"`)

	for i := range 9 {
		harness.Eventually(t, time.Minute, "the leadership moves", func() bool {
			to := w.Nodes[i%3].ID
			return w.Nodes[0].Client.TransferLeadership(t.Context(), to) == nil
		})
	}
	w.fired("CarillonLeaderChanges", `,group="0"`)

	if w.disk != nil {
		w.disk.FillBut(16 << 20)
		w.fired("CarillonDiskLow", `,instance="`+w.Nodes[2].Addr+`"`)
		w.explained()
		w.disk.Empty()
	} else {
		t.Log("there is no small disk to fill")
	}

	w.Nodes[0].Kill("the majority is lost")
	w.Nodes[1].Kill("the majority is lost")
	w.fired("CarillonNoLeader", `,group="0"`)
	w.fired("CarillonNodeDown", `,job="carillon"`)
	w.explained()
	w.Nodes[2].Kill("all is lost")
	w.fired("CarillonDown", `,job="carillon"`)
	w.explained()
}

// shifting is a clock that can be set wrong.
type shifting struct {
	stamp.Clock
	by atomic.Int64
}

func (c *shifting) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.by.Load())) }

// A clock that jumps is an alert. The clock of a process is that of its machine, so that this node is one of the test's
// own; its port and Prometheus are real.
func TestAlertOfAHold(t *testing.T) {
	long(t)
	tool(t, "prometheus")
	clock := &shifting{Clock: stamp.NewClock()}
	n := apitest.Start(t, func(c *node.Config) { c.Clock = clock })
	p := startPrometheus(t, target{"carillon", "/metrics", []string{n.Addr()}, ""})
	harness.Eventually(t, time.Minute, "it is scraped", func() bool { return len(p.query(`carillon_hold == 0`)) > 0 })
	end := make(chan struct{})
	defer close(end)
	go func() { // it goes on when the clock was steady for ten seconds
		for {
			clock.by.Add(int64(5 * time.Second))
			select {
			case <-end:
				return
			case <-time.After(3 * time.Second):
			}
		}
	}()
	p.fired("CarillonHold", `,group="0",reason="clock_jumped"`)
	p.explained()
}

// A cluster that was restored and is not released is an alert.
func TestAlertOfARestore(t *testing.T) {
	long(t)
	tool(t, "prometheus")
	binary := harness.Build(t)
	old := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"))
	old.Start()
	backup, dir := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{{"backup", backup, "--addr", old.Addr},
		{"restore", backup, "--data-dir", dir, "--node-id", "n1"}} {
		p := spawn(t, binary, args...)
		<-p.done
		if !p.cmd.ProcessState.Success() {
			t.Fatalf("%v: %s", args, p.said())
		}
	}
	n := harness.NewNode(t, binary, dir)
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, target{"carillon", "/metrics", []string{n.Addr}, ""})
	p.fired("CarillonRestoredOnHold", "")
	p.explained()
}
