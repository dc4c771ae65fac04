package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// laggard is a follower that is behind the beginning of everybody else's log, so that it comes back through a snapshot;
// and it can be put back to that as often as a test likes, while the other two live on.
type laggard struct {
	t     *testing.T
	cl    *harness.Cluster
	node  *harness.Node
	saved string // its directory when it fell behind
	edits int
}

// newLaggard makes a cluster of three, and lets one of them fall behind.
func newLaggard(t *testing.T) *laggard {
	t.Helper()
	cl := harness.NewCluster(t, harness.Build(t), 3, "--executors", "http", "--snapshot-threshold", "6",
		"--snapshot-interval", "100ms")
	g := &laggard{t: t, cl: cl, node: cl.Others(cl.Leader())[0], saved: filepath.Join(t.TempDir(), "saved")}
	g.create()
	g.edit(10)
	g.caughtUp()
	g.node.Kill("falls behind")
	if err := harness.CopyDir(g.saved, g.node.Dir); err != nil {
		t.Fatal(err)
	}
	last, err := harness.LogEnd(g.saved)
	if err != nil {
		t.Fatal(err)
	}
	g.runAway(last)
	return g
}

// create makes the job that is edited.
func (g *laggard) create() {
	g.t.Helper()
	spec := job.Spec{Name: "kept", Type: job.TypeHTTP, Schedule: "@every 1h",
		Payload: []byte(`{"url":"http://127.0.0.1:1/"}`)}
	if _, err := g.cl.Leader().Client.CreateJob(context.Background(), spec); err != nil {
		g.t.Fatal(err)
	}
}

// runAway lets the others cut off their log behind an index.
func (g *laggard) runAway(last uint64) {
	g.t.Helper()
	for index(g.t, g.cl.Leader(), "last_snapshot_index") < last+20 { // more than stay behind a snapshot
		g.edit(5)
	}
	g.edit(3) // something to be sent after the snapshot
}

// edit makes entries.
func (g *laggard) edit(n int) {
	g.t.Helper()
	for range n {
		g.edits++
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var err error
		for { // on a busy machine leadership may move
			if _, err = g.cl.Leader().Client.PatchJob(ctx, "kept", fmt.Appendf(nil, `{"tags":{"k":"%d"}}`, g.edits),
				0); err == nil || !passing(err) || ctx.Err() != nil {
				break
			}
		}
		cancel()
		if err != nil {
			g.t.Fatal(err)
		}
	}
}

// fallBack puts the follower back to where it fell behind.
func (g *laggard) fallBack(t *testing.T) {
	t.Helper()
	g.node.Destroy()
	if err := os.RemoveAll(g.node.Dir); err != nil {
		t.Fatal(err)
	}
	if err := harness.CopyDir(g.node.Dir, g.saved); err != nil {
		t.Fatal(err)
	}
}

// hasAll says whether the follower itself knows the last edit.
func (g *laggard) hasAll() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	j, err := g.node.Stale().GetJob(ctx, "kept")
	return err == nil && j.Tags["k"] == fmt.Sprint(g.edits)
}

func (g *laggard) caughtUp() {
	g.t.Helper()
	harness.Eventually(g.t, harness.ReadyLimit, g.node.ID+" knows the last edit", g.hasAll)
}

// TestEveryWriteOfAnInstallFailsOnce makes one write, sync, change of size or rename fail with EIO in a follower that
// comes back through a snapshot, each of them in a life of its own: receiving it, restoring it, compacting the log
// behind it, and what is appended and applied after it. It ends, or goes on with its old state; either way it ends up
// with what the others have.
func TestEveryWriteOfAnInstallFailsOnce(t *testing.T) {
	beside(t)
	if why := harness.CanFault(); why != "" {
		t.Skip(why)
	}
	rng := rand.New(rand.NewPCG(harness.Seed(t), 7))
	g := newLaggard(t)
	life := func(t *testing.T, c faultCase) (f harness.Fault, ready bool) {
		g.fallBack(t)
		f = harness.Fault{Dir: g.node.Dir, Class: c.class, Nth: c.nth, Errno: int(syscall.EIO),
			Log: filepath.Join(t.TempDir(), "fault.log")}
		g.node.Wrap = f.Wrap(t)
		ready = g.node.TryStart() == nil
		if !harness.Within(harness.ReadyLimit, func() bool { return g.node.Ended() != nil || g.hasAll() }) {
			t.Errorf("it neither ended nor caught up\n%s", g.node.LogTail(20))
		}
		g.node.Wrap = nil
		return f, ready
	}
	count, ready := life(t, faultCase{})
	if !ready || !g.hasAll() {
		t.Fatalf("nothing was made to fail, and it did\n%s", g.node.LogTail(20))
	}
	t.Logf("calls: log %d, state %d, snapshot %d, dir %d", count.Calls(harness.ClassLog), count.Calls(harness.ClassState),
		count.Calls(harness.ClassSnapshot), count.Calls(harness.ClassDir))
	some := map[string]int{harness.ClassLog: 1, harness.ClassState: 2, harness.ClassSnapshot: 2, harness.ClassDir: 1}
	var sum tally
	for _, class := range []string{harness.ClassLog, harness.ClassState, harness.ClassSnapshot, harness.ClassDir} {
		if count.Calls(class) == 0 {
			t.Errorf("a follower that came back through a snapshot wrote nothing of class %s", class)
		}
		for _, c := range spread(rng, class, count.Calls(class), some[class]) {
			t.Run(fmt.Sprintf("%s-%d", c.class, c.nth), func(t *testing.T) {
				f, ready := life(t, c)
				what, happened := f.Happened()
				switch {
				case !happened:
					sum.add(c.class + ": not reached")
					g.node.Kill("end")
				case ended(t, g.node, c.class, ready, what):
					sum.add(c.class + ": went on")
					g.node.Kill("went on")
				default:
					sum.add(c.class + ": ended")
				}
				if err := checkLeft(g.node); err != nil {
					t.Errorf("%s failed: %v", what, err)
				}
				if err := g.node.TryStart(); err != nil {
					t.Fatalf("%s failed, and it does not start again: %v\n%s", what, err, g.node.LogTail(20))
				}
				harness.Eventually(t, harness.ReadyLimit, "after "+what+" failed it catches up", g.hasAll)
				g.node.Stop()
				if err := harness.Check(g.node.Binary, g.node.Dir); err != nil {
					t.Errorf("%s failed, after the next life: %v", what, err)
				}
			})
			if t.Failed() {
				break
			}
		}
	}
	t.Logf("what came of it: %s", &sum)
	g.fallBack(t)
	g.node.Start()
	g.cl.Same(time.Minute)
	g.cl.StopAndCheck()
}
