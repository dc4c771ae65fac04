package proof

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestNodesFromBeforeARecovery: n2 and n3 are killed, n1 begins again alone, and the two come back with their old
// directories. They are a majority of the cluster that they know: neither leads, nothing is done twice, status says why,
// and with an empty directory n2 is taken in again.
func TestNodesFromBeforeARecovery(t *testing.T) {
	beside(t)
	ctx := context.Background()
	binary := harness.Build(t)
	target := harness.NewTarget(t)
	c := harness.NewCluster(t, binary, 3)
	n1, old := c.Nodes[0], c.Nodes[1:]
	for _, name := range []string{"one", "two", "three"} {
		if _, err := c.Leader().Client.CreateJob(ctx, job.Spec{Name: name, Type: job.TypeHTTP, Schedule: "@every 1s",
			Payload: []byte(`{"url":"` + target.URL + `/` + name + `"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	fires := func() {
		t.Helper()
		was := target.Done()
		harness.Eventually(t, harness.ReadyLimit, "jobs run", func() bool { return target.Done() >= was+3 })
	}
	fires()
	for _, n := range old {
		n.Kill("a majority is lost")
	}
	n1.Stop()
	if _, err := carillon(t, binary, "cluster", "recover", "--data-dir", n1.Dir, "--peers", "n1="+n1.Addr); err != nil {
		t.Fatal(err)
	}
	n1.Start()
	fires()
	back := time.Now()
	for _, n := range old {
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range old {
		harness.Eventually(t, harness.ReadyLimit, n.ID+" says why it takes no part", func() bool {
			s, err := n.Client.Status(ctx)
			if err == nil && (s.State == "leader" || s.Ready) {
				t.Fatalf("%s: %+v", n.ID, s)
			}
			return err == nil && len(s.Troubles) == 1 && s.Troubles[0].Code == wire.TroubleStopped
		})
		if err := n.Client.Ready(ctx); job.CodeOf(err) != job.CodeStopped {
			t.Errorf("%s: %v", n.ID, err)
		}
		if out, _ := carillon(t, binary, "status", "--addr", n.Addr); !strings.Contains(out, "empty its data directory") {
			t.Errorf("%s: %s", n.ID, out)
		}
	}
	fires()
	// It is remembered, whoever is there at the next start.
	n1.Stop()
	for _, n := range old {
		n.Stop()
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, harness.ReadyLimit, n.ID+" answers", func() bool {
			return job.CodeOf(n.Client.Ready(ctx)) == job.CodeStopped
		})
	}
	n1.Start()
	n2 := old[0]
	n2.Stop()
	if err := os.Rename(n2.Dir, filepath.Join(t.TempDir(), "before")); err != nil {
		t.Fatal(err)
	}
	n2.Start()
	harness.Eventually(t, harness.ReadyLimit, "n2 votes again", func() bool {
		s, err := n1.Client.Status(ctx)
		return err == nil && len(s.Members) == 2 && s.Members[1].Suffrage == "voter"
	})
	fires()
	keys := map[string]int{}
	for _, s := range target.Seen() {
		if s.Arrived.Before(back) {
			continue // a run whose worker was killed is repeated
		}
		if s.Fence < epochOne {
			t.Errorf("%s was called by the nodes from before the recovery", s.Key)
		}
		if keys[s.Key]++; keys[s.Key] == 2 {
			t.Errorf("%s was called twice", s.Key)
		}
	}
}

// TestTwoRecoveries: n1 and n2 are both recovered, each without the other. As soon as they can talk, at most one of them
// goes on: the one of the later epoch, or, if neither is, none, until an operator chooses. n3 comes back as it was.
func TestTwoRecoveries(t *testing.T) {
	for name, tc := range map[string]struct {
		epoch int // of n2; that of n1 is 1
		first int // who runs already when the other one comes up
	}{
		"the later one runs":       {2, 1},
		"the earlier one runs":     {2, 0},
		"neither is the later one": {1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			beside(t)
			testTwoRecoveries(t, tc.epoch, tc.first)
		})
	}
}

func testTwoRecoveries(t *testing.T, epoch, first int) {
	ctx := context.Background()
	binary := harness.Build(t)
	target := harness.NewTarget(t)
	c := harness.NewCluster(t, binary, 3)
	n1, n2, n3 := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	if _, err := c.Leader().Client.CreateJob(ctx, job.Spec{Name: "each-second", Type: job.TypeHTTP,
		Schedule: "@every 1s", Overlap: job.OverlapAllow, Payload: []byte(`{"url":"` + target.URL + `"}`)}); err != nil {
		t.Fatal(err)
	}
	fires := func() {
		t.Helper()
		was := target.Done()
		harness.Eventually(t, harness.ReadyLimit, "jobs run", func() bool { return target.Done() >= was+3 })
	}
	fires()
	for _, n := range c.Nodes {
		n.Kill("all are lost")
	}
	recoverAlone := func(n *harness.Node) {
		t.Helper()
		if _, err := carillon(t, binary, "cluster", "recover", "--data-dir", n.Dir, "--peers", n.ID+"="+n.Addr); err != nil {
			t.Fatal(err)
		}
	}
	recoverAlone(n1)
	for range epoch {
		recoverAlone(n2)
	}
	stopped := func(n *harness.Node) {
		t.Helper()
		harness.Eventually(t, harness.ReadyLimit, n.ID+" takes no part", func() bool {
			return job.CodeOf(n.Client.Ready(ctx)) == job.CodeStopped
		})
	}
	runs, comes := c.Nodes[first], c.Nodes[1-first]
	runs.Start()
	fires()
	if err := comes.Launch(); err != nil {
		t.Fatal(err)
	}
	stopped(n1)
	if epoch == 1 {
		stopped(n2)
	}
	met := job.At(time.Now())
	if err := n3.Launch(); err != nil {
		t.Fatal(err)
	}
	stopped(n3)
	if epoch == 1 {
		for _, n := range c.Nodes[:2] {
			out, _ := carillon(t, binary, "status", "--addr", n.Addr)
			if !strings.Contains(out, "both recovered") || !strings.Contains(out, "choose the side") {
				t.Errorf("%s: %s", n.ID, out)
			}
		}
		for _, s := range target.Seen() {
			if s.At() > met {
				t.Errorf("%s was called, although no operator chose a side", s.Key)
			}
		}
		n1.Stop()
		n2.Stop()
		recoverAlone(n2)
		n2.Start()
		if err := n1.Launch(); err != nil {
			t.Fatal(err)
		}
		stopped(n1)
	}
	fires()
	if err := n2.AwaitReady(); err != nil {
		t.Error(err)
	}
	keys := map[string]int{}
	for _, s := range target.Seen() {
		if keys[s.Key]++; keys[s.Key] == 2 && s.At() > met {
			t.Errorf("%s was called twice", s.Key)
		}
	}
}

// TestCopyOfAFrozenNode: a copy of n3's directory is started elsewhere while n3 is frozen for longer than the leader asks
// for it. The copy is not taken in, and n3 goes on as the member that it was.
func TestCopyOfAFrozenNode(t *testing.T) {
	beside(t)
	ctx := context.Background()
	binary := harness.Build(t)
	c := harness.NewCluster(t, binary, 3)
	n3 := c.Nodes[2]
	if n3 == c.Leader() {
		n3 = c.Nodes[1]
	}
	n3.Stop()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := harness.CopyDir(dir, n3.Dir); err != nil {
		t.Fatal(err)
	}
	n3.Start()
	clone := harness.NewNode(t, binary, dir)
	clone.ID, clone.Join = n3.ID, []string{c.Leader().Addr}
	thaw := n3.Freeze("longer than the leader asks")
	if err := clone.Launch(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.ReadyLimit, "the leader has asked for the original", func() bool {
		err := clone.Client.Ready(ctx)
		if err == nil {
			t.Fatal("the copy is taken in")
		}
		return strings.Contains(err.Error(), "accepts connections but does not answer")
	})
	thaw()
	harness.Eventually(t, harness.ReadyLimit, "the copy is told what it is", func() bool {
		err := clone.Client.Ready(ctx)
		return err != nil && strings.Contains(err.Error(), "copied")
	})
	if err := n3.AwaitReady(); err != nil {
		t.Error(err)
	}
	s, err := c.Leader().Client.Status(ctx)
	for _, m := range s.Members {
		if m.ID == n3.ID && m.Address != n3.Addr {
			t.Errorf("the copy moved its original to %s", m.Address)
		}
	}
	if err != nil || len(s.Members) != 3 {
		t.Errorf("%+v %v", s, err)
	}
}
