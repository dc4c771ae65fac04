package proof

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// replace stops a node in good order and starts it with another binary.
func replace(t *testing.T, n *harness.Node, binary string) {
	t.Helper()
	began := time.Now()
	n.Stop()
	n.Binary = binary
	n.Start()
	t.Logf("%s was replaced in %s", n.ID, time.Since(began).Round(time.Millisecond))
	time.Sleep(time.Second)
}

// raised says in how many nodes' logs the feature level was raised.
func (l *load) raised() (n int) {
	for _, x := range l.cl.Nodes {
		n += bytes.Count(x.Log(),
			fmt.Appendf(nil, `event=feature_level_raised level=%d`, fsm.Level+1))
	}
	return n
}

// TestRollingUpgrade replaces a binary by one of a higher feature level under load, one node at a time. The level is
// raised when the last one is replaced and not before: until then one can go back. Afterwards an old binary is refused.
func TestRollingUpgrade(t *testing.T) {
	heavy(t)
	t.Parallel()
	jobs, wind := 50, 3*time.Second
	if harness.Long() {
		jobs, wind = 1000, 10*time.Second
	}
	seed := harness.Seed(t)
	was, next := harness.Build(t), harness.BuildLevel(t, fsm.Level+1)
	l := newClusterLoad(t, seed, jobs, allow)
	stop := l.triggerForever(seed, manualJobs, 80*time.Millisecond)
	old, young := fsm.Level, fsm.Level+1
	levels := func() (all [3]int) {
		s, err := l.cl.Leader().Client.Status(context.Background())
		if err != nil || len(s.Members) != 3 {
			t.Fatalf("%+v %v", s.Members, err)
		}
		for i, m := range s.Members {
			all[i] = m.Level
		}
		return all
	}
	replace(t, l.cl.Nodes[0], next)
	replace(t, l.cl.Nodes[1], next)
	harness.Eventually(t, harness.ReadyLimit, "two say that they are new",
		func() bool { return levels() == [3]int{young, young, old} })
	if harness.Long() {
		time.Sleep(5 * time.Second)
		replace(t, l.cl.Nodes[1], was) // nothing that it would not understand was written
		harness.Eventually(t, harness.ReadyLimit, "one went back", func() bool { return levels() == [3]int{young, old, old} })
		replace(t, l.cl.Nodes[1], next)
	}
	if n := l.raised(); n > 0 {
		t.Errorf("the level was raised %d times, and one member is old", n)
	}
	replace(t, l.cl.Nodes[2], next)
	harness.Eventually(t, harness.ReadyLimit, "the level is raised", func() bool { return l.raised() > 0 })
	l.goesOn()

	// An old binary on a directory of the new level.
	n := l.cl.Nodes[0]
	n.Stop()
	n.Binary = was
	l.refused(n, fmt.Sprintf("the cluster is at feature level %d, and this binary supports levels up to %d", young, old),
		n.Dir)
	n.Binary = next
	n.Start()
	// One that wants to join.
	late := harness.NewNode(t, was, filepath.Join(t.TempDir(), "data"))
	late.ID, late.Join = "n4", []string{n.Addr}
	l.refused(late, fmt.Sprintf("the cluster is at feature level %d and node n4", young))
	stop()
	if got := levels(); got != [3]int{young, young, young} {
		t.Errorf("levels %d", got)
	}
	_, r := l.settle(wind)
	if r.Repeated > 0 || r.LostWorkers > 0 || r.NotRun > 0 {
		t.Errorf("%d runs were repeated, %d attempts lost, %d occurrences did not run", r.Repeated, r.LostWorkers, r.NotRun)
	}
	l.cl.StopAndCheck()
}

// refused starts a node that must say why it does not, and end.
func (l *load) refused(n *harness.Node, why ...string) {
	l.t.Helper()
	before := len(n.Log())
	if n.Lives == 0 {
		before = 0
	}
	if err := n.Launch(); err != nil {
		l.t.Fatal(err)
	}
	state, err := n.AwaitEnd(harness.ReadyLimit)
	if err != nil || state.Success() {
		l.t.Fatalf("%s: %v %v", n.ID, state, err)
	}
	said := n.Log()[before:]
	for _, w := range why {
		if !bytes.Contains(said, []byte(w)) {
			l.t.Errorf("%s does not say %q:\n%s", n.ID, w, said)
		}
	}
	if lines := bytes.Split(bytes.TrimSpace(said), []byte("\n")); len(lines) > 0 {
		l.t.Logf("%s ended (%s): %s", n.ID, state, lines[len(lines)-1])
	}
}

// Backups are read by the version that took them and by later ones. One of a higher level is refused by an older
// binary, which leaves the directory as it was.
func TestBackupBetweenLevels(t *testing.T) {
	beside(t)
	was, next := harness.Build(t), harness.BuildLevel(t, fsm.Level+1)
	ctx := context.Background()
	dir := t.TempDir()
	live := func(binary, name string) (backup string) {
		n := harness.NewNode(t, binary, filepath.Join(dir, name), "--executors", "none")
		n.Start()
		payroll := shellJob("payroll", "true")
		payroll.Schedule = job.ScheduleManual
		if _, err := n.Client.CreateJob(ctx, payroll); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, harness.ReadyLimit, "it has the level of its binary", func() bool {
			s, err := n.Client.Status(ctx)
			return err == nil && s.Level == map[string]int{was: fsm.Level, next: fsm.Level + 1}[binary]
		})
		backup = filepath.Join(dir, name+".bak")
		if _, err := carillon(t, binary, "backup", backup, "--addr", n.Addr); err != nil {
			t.Fatal(err)
		}
		n.Stop()
		return backup
	}
	old, young := live(was, "old"), live(next, "young")

	to := filepath.Join(dir, "restored")
	if _, err := carillon(t, next, "restore", old, "--data-dir", to, "--node-id", "n1"); err != nil {
		t.Fatal(err)
	}
	n := harness.NewNode(t, next, to, "--executors", "none")
	if err := n.Launch(); err != nil { // it is on hold, and so not ready
		t.Fatal(err)
	}
	harness.Eventually(t, harness.ReadyLimit, "the job is there", func() bool {
		_, err := n.Client.GetJob(ctx, "payroll")
		return err == nil
	})
	n.Stop()

	refused := filepath.Join(dir, "refused")
	_, err := carillon(t, was, "restore", young, "--data-dir", refused, "--node-id", "n1")
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("feature level %d", fsm.Level+1)) {
		t.Errorf("%v", err)
	}
	if list, err := os.ReadDir(refused); err == nil && len(list) > 0 {
		t.Errorf("it left %v", list)
	}
}
