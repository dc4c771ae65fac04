package proof

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestDirectoryPutBack: a data directory is put back from an older copy, and with the node that was away it is a
// majority that never had an acknowledged job. The node that has it stops and says so, before and after a start; with
// what it says to do, the cluster is whole again.
func TestDirectoryPutBack(t *testing.T) {
	beside(t)
	ctx := context.Background()
	binary := harness.Build(t)
	c := harness.NewCluster(t, binary, 3, "--lease", "4s") // the session of a worker that is gone ends soon
	n1, n2, n3 := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	create := func(name string) {
		t.Helper()
		j, err := c.Leader().Client.CreateJob(ctx, job.Spec{Name: name, Type: job.TypeQueue, Schedule: job.ScheduleManual,
			Payload: []byte(`{"queue":"q"}`)})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s is %s", name, j.ID)
	}
	has := func(n *harness.Node, name string) bool {
		_, err := n.Stale().GetJob(ctx, name)
		return err == nil
	}
	copied := filepath.Join(t.TempDir(), "copy")
	n3.Stop()
	if err := os.CopyFS(copied, os.DirFS(n3.Dir)); err != nil {
		t.Fatal(err)
	}
	n3.Start()
	n2.Kill("it is away")
	create("x")
	harness.Eventually(t, harness.ReadyLimit, "n1 has the job", func() bool { return has(n1, "x") })
	n1.Kill("the others go on without it")
	n3.Kill("its directory is put back")
	if err := os.RemoveAll(n3.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(n3.Dir, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*harness.Node{n2, n3} {
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	create("y")

	stopped := func(n *harness.Node) (wire.Trouble, bool) {
		s, err := n.Stale().Status(ctx)
		for _, tr := range s.Troubles {
			if err == nil && tr.Code == wire.TroubleStopped && tr.Node == n1.ID {
				return tr, true
			}
		}
		return wire.Trouble{}, false
	}
	for life := range 2 {
		if err := n1.Launch(); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, harness.ReadyLimit, "n1 says that it stopped", func() bool {
			_, ok := stopped(n1)
			return ok
		})
		tr, _ := stopped(n1)
		t.Logf("%s; %s", tr.Text, tr.Remedy)
		if err := n1.Client.Ready(ctx); err == nil || !strings.Contains(err.Error(), "differs") {
			t.Errorf("ready: %v", err)
		}
		lead := c.Leader()
		harness.Eventually(t, harness.ReadyLimit, "the leader says so", func() bool {
			_, ok := stopped(lead)
			return ok
		})
		if !has(n1, "x") || has(n1, "y") || lead == n1 {
			t.Errorf("life %d: n1 is not as it was", life)
		}
		// While it runs it carries nothing out: the two others are the workers that are left.
		harness.Eventually(t, harness.ReadyLimit, "two workers", func() bool {
			s, err := lead.Client.Status(ctx)
			for _, w := range s.Workers {
				if w.Worker == n1.ID {
					return false
				}
			}
			return err == nil && len(s.Workers) == 2
		})
		n1.Stop()
	}

	if out, stderr, code := toEnd(t, binary, "cluster", "remove", n1.ID, "--addr", c.Leader().Addr); code != 0 {
		t.Fatalf("remove: exit %d: %s%s", code, out, stderr)
	}
	if err := os.RemoveAll(n1.Dir); err != nil {
		t.Fatal(err)
	}
	n1.Join = []string{n2.Addr, n3.Addr}
	n1.Start()
	harness.Eventually(t, harness.ReadyLimit, "n1 has what the others have", func() bool { return has(n1, "y") })
	if has(n1, "x") {
		t.Error("x is back")
	}
	c.Same(harness.ReadyLimit)
	c.StopAndCheck()
}
