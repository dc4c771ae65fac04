package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// smallLife is the smallest load in which a node does everything that it does to its files: create, claim, complete,
// edit, delete, a snapshot, and the compaction of the log behind it.
type smallLife struct {
	node   *harness.Node
	target *harness.Target

	created []string // acknowledged
	deleted []string // acknowledged
	runs    []string // acknowledged
	edits   int      // the last edit that was acknowledged
	done    string   // a run that was seen to have succeeded
}

var smallFlags = []string{"--executors", "http", "--slots", "4", "--snapshot-threshold", "6", "--snapshot-interval",
	"50ms"}

func (s *smallLife) spec(name, schedule string) job.Spec {
	return job.Spec{Name: name, Type: job.TypeHTTP, Schedule: schedule, Overlap: job.OverlapAllow,
		Payload: fmt.Appendf(nil, `{"url":%q}`, s.target.URL+"/"+name)}
}

// work does it all, and stops at the first thing that fails.
func (s *smallLife) work(ctx context.Context) error {
	c := s.node.Client
	for _, name := range []string{"kept", "dropped", "manual"} {
		schedule := job.ScheduleManual
		if name == "kept" {
			schedule = "@every 1h"
		}
		if _, err := c.CreateJob(ctx, s.spec(name, schedule)); err != nil {
			return err
		}
		s.created = append(s.created, name)
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	if err := c.DeleteJob(ctx, "dropped", 0); err != nil {
		return err
	}
	s.deleted = append(s.deleted, "dropped")
	snapshots := map[string]bool{}
	for i := 1; len(snapshots) < 2; i++ {
		if i > 400 {
			return errors.New("400 edits did not lead to two snapshots")
		}
		if _, err := c.PatchJob(ctx, "kept", fmt.Appendf(nil, `{"tags":{"k":"%d"}}`, i), 0); err != nil {
			return err
		}
		s.edits = i
		if b, err := os.ReadFile(filepath.Join(s.node.Dir, datadir.SnapshotsDir, "snapshot.json")); err == nil {
			snapshots[string(b)] = true
		}
		time.Sleep(10 * time.Millisecond) // not a wait for anything: snapshots are looked for by the clock
	}
	return nil
}

// run has a run carried out and looks until it is done.
func (s *smallLife) run(ctx context.Context) error {
	run, err := s.node.Client.RunJob(ctx, "manual")
	if err != nil {
		return err
	}
	s.runs = append(s.runs, run.RunID)
	for {
		d, err := s.node.Client.GetRun(ctx, run.RunID)
		if err != nil {
			return err
		}
		if d.Status == job.RunSucceeded {
			s.done = run.RunID
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// holds says what is missing of what was acknowledged.
func (s *smallLife) holds(c *client.Client) (problems []string) {
	in, err := look(c)
	if err != nil {
		return []string{err.Error()}
	}
	for _, name := range s.created {
		// its delete may have come through unheard
		if _, ok := in.jobs[name]; !ok && (name != "dropped" || len(s.runs) == 0) {
			problems = append(problems, fmt.Sprintf("job %s was acknowledged and is gone", name))
		}
	}
	for _, name := range s.deleted {
		if _, ok := in.jobs[name]; ok {
			problems = append(problems, fmt.Sprintf("the delete of %s was acknowledged, and it is back", name))
		}
	}
	for _, id := range s.runs {
		if len(in.byID[id]) == 0 {
			problems = append(problems, fmt.Sprintf("run %s was acknowledged and is gone", id))
		}
	}
	if s.done != "" && !slices.ContainsFunc(in.byID[s.done],
		func(r job.Run) bool { return r.Status == job.RunSucceeded }) {
		problems = append(problems, fmt.Sprintf("run %s was seen to have succeeded and has not", s.done))
	}
	if s.edits > 0 {
		j, err := c.GetJob(context.Background(), "kept")
		if k, _ := strconv.Atoi(j.Tags["k"]); err != nil || k < s.edits {
			problems = append(problems, fmt.Sprintf("edit %d was acknowledged, and edit %d is there (%v)", s.edits, k, err))
		}
	}
	return problems
}

// faultCase is one call that fails.
type faultCase struct {
	class string
	nth   int
}

// spread picks every n-th call of a class up to a total: all of them in a long test. Otherwise some, others each time.
func spread(rng *rand.Rand, class string, total, some int) (cases []faultCase) {
	if harness.Long() || some >= total {
		for n := 1; n <= total; n++ {
			cases = append(cases, faultCase{class, n})
		}
		return cases
	}
	for i := range some {
		lo, hi := i*total/some, (i+1)*total/some
		cases = append(cases, faultCase{class, 1 + lo + rng.IntN(max(1, hi-lo))})
	}
	return cases
}

// tally counts what came of the faults.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[what]++
}

func (c *tally) String() string {
	b, _ := json.Marshal(c.counts)
	return string(b)
}

// ended judges the end of a process to which a fault happened. The rule: a write or sync of the log or of the state
// that fails ends the process, with exit code 70 once it serves, and before that like any start that fails. One of a
// snapshot's files, or of the file in which a received state is put together, may leave it running: the old state is
// whole then, and raft keeps the log.
func ended(t *testing.T, node *harness.Node, class string, ready bool, what string) (alive bool) {
	t.Helper()
	aside := class == harness.ClassSnapshot || strings.Contains(what, "state.db.restore") ||
		class == harness.ClassDir && bytes.Contains(node.LogTail(10), []byte("failed to restore snapshot"))
	if aside && ready && !harness.Within(300*time.Millisecond, func() bool { return node.Ended() != nil }) {
		return true
	}
	state, err := node.AwaitEnd(20 * time.Second)
	switch {
	case err != nil:
		t.Fatalf("%s failed: %v", what, err)
	case ready && state.ExitCode() != 70:
		t.Errorf("%s failed: it ended with %s, want exit code 70", what, state)
	case !ready && state.ExitCode() != 70 && state.ExitCode() != 1:
		t.Errorf("%s failed at the start: it ended with %s, want exit code 1 or 70", what, state)
	}
	if !bytes.Contains(node.Log(), []byte("input/output error")) {
		t.Errorf("%s failed, and the log does not say so", what)
	}
	return false
}

// TestEveryWriteFailsOnce makes one write, sync, change of size or rename of a file fail with EIO, each of them in a
// life of its own.
func TestEveryWriteFailsOnce(t *testing.T) {
	beside(t)
	if why := harness.CanFault(); why != "" {
		t.Skip(why)
	}
	rng := rand.New(rand.NewPCG(harness.Seed(t), 6))
	binary := harness.Build(t)

	// A life in which nothing fails says how many calls there are. They differ a little from life to life.
	base := filepath.Join(t.TempDir(), "data")
	s := &smallLife{node: harness.NewNode(t, binary, base, smallFlags...), target: harness.NewTarget(t)}
	count := harness.Fault{Dir: base, Log: filepath.Join(t.TempDir(), "fault.log")}
	s.node.Wrap = count.Wrap(t)
	s.node.Start()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := s.work(ctx); err != nil {
		t.Fatal(err)
	}
	s.node.Kill("counted")
	t.Logf("calls in a small life: log %d, state %d, snapshot %d, dir %d", count.Calls(harness.ClassLog),
		count.Calls(harness.ClassState), count.Calls(harness.ClassSnapshot), count.Calls(harness.ClassDir))

	some := map[string]int{harness.ClassLog: 2, harness.ClassState: 2, harness.ClassSnapshot: 2, harness.ClassDir: 1}
	var sum tally
	t.Run("life", func(t *testing.T) {
		for _, class := range []string{harness.ClassLog, harness.ClassState, harness.ClassSnapshot, harness.ClassDir} {
			for _, c := range spread(rng, class, count.Calls(class), some[class]) {
				t.Run(fmt.Sprintf("%s-%d", c.class, c.nth), func(t *testing.T) {
					t.Parallel()
					failOnce(t, binary, c, &sum)
				})
			}
		}
	})
	// The same for a start on files that are there.
	again := harness.Fault{Dir: base, Log: filepath.Join(t.TempDir(), "again.log")}
	s.node.Wrap = again.Wrap(t)
	saved := filepath.Join(t.TempDir(), "saved")
	if err := harness.CopyDir(saved, base); err != nil {
		t.Fatal(err)
	}
	s.node.Start()
	s.node.Kill("counted")
	t.Run("start", func(t *testing.T) {
		for _, class := range []string{harness.ClassLog, harness.ClassState, harness.ClassSnapshot, harness.ClassDir} {
			for _, c := range spread(rng, class, again.Calls(class), 1) {
				t.Run(fmt.Sprintf("%s-%d", c.class, c.nth), func(t *testing.T) {
					t.Parallel()
					failAtStart(t, binary, saved, *s, c, &sum)
				})
			}
		}
	})
	t.Logf("what came of it: %s", &sum)
}

// failOnce lives a small life in which one call fails, and another one on what that left behind.
func failOnce(t *testing.T, binary string, c faultCase, sum *tally) {
	dir := filepath.Join(t.TempDir(), "data")
	s := &smallLife{node: harness.NewNode(t, binary, dir, smallFlags...), target: harness.NewTarget(t)}
	f := harness.Fault{Dir: dir, Class: c.class, Nth: c.nth, Errno: int(syscall.EIO),
		Log: filepath.Join(t.TempDir(), "fault.log")}
	s.node.Wrap = f.Wrap(t)
	ready := s.node.TryStart() == nil
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	if ready {
		err = s.work(ctx)
	}
	what, happened := f.Happened()
	if !happened {
		if err != nil || !ready {
			t.Fatalf("nothing was made to fail, and the node did: %v\n%s", err, s.node.LogTail(20))
		}
		sum.add(c.class + ": not reached")
		s.node.Kill("end")
		return
	}
	if ended(t, s.node, c.class, ready, what) {
		sum.add(c.class + ": went on")
		if err != nil {
			t.Errorf("%s failed, and the node, which went on, failed later: %v", what, err)
		}
		s.node.Kill("went on")
	} else if ready {
		sum.add(c.class + ": ended")
	} else {
		sum.add(c.class + ": did not start")
	}
	s.comesBack(t, what)
}

// checkLeft looks at what a process left behind that was traced: it may take a moment longer to die than its tracer.
func checkLeft(n *harness.Node) (err error) {
	harness.Within(10*time.Second, func() bool {
		err = harness.Check(n.Binary, n.Dir)
		return err == nil || !strings.Contains(err.Error(), "in use by ")
	})
	return err
}

// comesBack: the files are in order, everything acknowledged is there, and the node does new work.
func (s *smallLife) comesBack(t *testing.T, what string) {
	t.Helper()
	s.node.Wrap = nil
	if len(s.created) > 0 {
		if err := checkLeft(s.node); err != nil {
			t.Errorf("%s failed: %v", what, err)
		}
	}
	if err := s.node.TryStart(); err != nil {
		t.Errorf("%s failed, and it does not start again: %v\n%s", what, err, s.node.LogTail(20))
		return
	}
	for _, p := range s.holds(s.node.Client) {
		t.Errorf("%s failed: %s", what, p)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if !slices.Contains(s.created, "manual") {
		if _, err := s.node.Client.CreateJob(ctx, s.spec("manual", job.ScheduleManual)); err != nil &&
			!strings.Contains(err.Error(), "has that name already") {
			t.Errorf("%s failed: a new job: %v", what, err)
			return
		}
	}
	if err := s.run(ctx); err != nil {
		t.Errorf("%s failed: a new run: %v", what, err)
	}
	s.node.Stop()
	if err := harness.Check(s.node.Binary, s.node.Dir); err != nil {
		t.Errorf("%s failed, after the next life: %v", what, err)
	}
}

// failAtStart starts on a copy of a directory, and one call fails.
func failAtStart(t *testing.T, binary, saved string, s smallLife, c faultCase, sum *tally) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := harness.CopyDir(dir, saved); err != nil {
		t.Fatal(err)
	}
	s.node = harness.NewNode(t, binary, dir, smallFlags...)
	f := harness.Fault{Dir: dir, Class: c.class, Nth: c.nth, Errno: int(syscall.EIO),
		Log: filepath.Join(t.TempDir(), "fault.log")}
	s.node.Wrap = f.Wrap(t)
	ready := s.node.TryStart() == nil
	what, happened := f.Happened()
	switch {
	case !happened && !ready:
		t.Fatalf("nothing was made to fail, and it does not start\n%s", s.node.LogTail(20))
	case !happened:
		sum.add("start: not reached")
		s.node.Kill("end")
	case ended(t, s.node, c.class, ready, what):
		sum.add("start: went on")
		s.node.Kill("went on")
	default:
		sum.add("start: ended")
	}
	s.comesBack(t, what)
}
