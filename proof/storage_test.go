package proof

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestStorageErrorEndsTheProcess makes the disk fail under a running node. Going on would let memory, log and state
// drift apart, so the process must end by itself and say why; and what it acknowledged before must be there afterwards.
func TestStorageErrorEndsTheProcess(t *testing.T) {
	beside(t)
	harness.NeedStrace(t)
	binary := harness.Build(t)
	for _, c := range []struct {
		call, errno string
		when        int
		file        string
		says        string
	}{
		{"fdatasync", "EIO", 1, "raft.db", "input/output error"},
		{"fdatasync", "EIO", 1, "state.db", "input/output error"},
		{"fdatasync", "EIO", 6, "raft.db", "input/output error"},
		{"fdatasync", "EIO", 5, "state.db", "input/output error"},
		{"pwrite64", "ENOSPC", 1, "raft.db", "no space left on device"},
		{"pwrite64", "ENOSPC", 2, "state.db", "no space left on device"},
		{"pwrite64", "ENOSPC", 9, "raft.db", "no space left on device"},
	} {
		t.Run(fmt.Sprintf("%s-%s-%d-%s", c.call, c.errno, c.when, c.file), func(t *testing.T) {
			t.Parallel()
			target := harness.NewTarget(t)
			node := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"), "--executors", "http", "--slots", "16")
			node.Start()
			l := newLoad(t, node, target, rand.New(rand.NewPCG(1, 1)))
			l.recurring(4, 1)
			for i := range 3 {
				l.trigger(context.Background(), "manual-0", fmt.Sprintf("before-%d", i))
			}

			inject := harness.Inject(t, node, c.call, c.errno, c.when, filepath.Join(node.Dir, datadir.GroupDir(0), c.file))
			acked := l.createUntilItBreaks()
			state, err := node.AwaitEnd(20 * time.Second)
			if err != nil {
				t.Fatalf("after %d failed calls: %v", inject.Hits(), err)
			}
			if inject.Hits() == 0 {
				t.Fatalf("the process ended (%s) before a call failed", state)
			}
			if state.Success() || !state.Exited() {
				t.Errorf("the process did not end with an exit code: %s", state)
			}
			if !bytes.Contains(node.Log(), []byte(c.says)) {
				t.Errorf("the log does not say %q", c.says)
			}

			node.Start()
			l.holds(acked)
			node.Stop()
			if err := harness.Check(binary, node.Dir); err != nil {
				t.Error(err)
			}
			t.Logf("ended with %s after %d failed calls; %d jobs and %d runs acknowledged before it are there", state,
				inject.Hits(), len(acked), len(l.triggers))
		})
	}
}

// createUntilItBreaks creates jobs and triggers runs one after the other until the node no longer answers, and gives
// the names of the jobs that were acknowledged.
func (l *load) createUntilItBreaks() (acked []string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	acked = append(acked, l.order...)
	for i := range 2000 {
		token := fmt.Sprintf("more-%d", i)
		if _, err := l.node.Client.CreateJob(ctx, l.spec(token, token, "@every 1h", "")); err != nil {
			return acked
		}
		acked = append(acked, token)
		run, err := l.node.Client.RunJob(ctx, "manual-0")
		if err != nil {
			return acked
		}
		l.triggers = append(l.triggers, run.RunID)
	}
	l.t.Fatal("2000 creates did not meet a failing disk")
	return nil
}

// holds looks for everything that was acknowledged.
func (l *load) holds(jobs []string) {
	l.t.Helper()
	found, err := look(l.node.Client)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, name := range jobs {
		if why := found.misses(fact{job: name}); why != "" {
			l.t.Errorf("job %s was acknowledged: %s", name, why)
		}
	}
	for _, run := range l.triggers {
		if why := found.misses(fact{run: run}); why != "" {
			l.t.Errorf("run %s was acknowledged: %s", run, why)
		}
	}
	fences := map[uint64]job.Run{}
	for _, r := range found.runs {
		if other, twice := fences[r.Fence]; twice && r.Fence != 0 && (other.RunID != r.RunID || other.Attempt != r.Attempt) {
			l.t.Errorf("fence %d: %s attempt %d and %s attempt %d", r.Fence, other.RunID, other.Attempt, r.RunID, r.Attempt)
		}
		fences[r.Fence] = r
	}
}
