package proof

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// script writes down that it begins and that it lives, itself and through a child, and that it ends. Each line is one
// append, so the order of the lines is the order of the events.
const script = `say() { echo "$1 $CARILLON_ATTEMPT $CARILLON_FENCE $CARILLON_IDEMPOTENCY_KEY" >> %[1]s; }
say begin
( i=0; while [ $i -lt 40 ]; do say child; sleep 0.05; i=$((i+1)); done ) &
i=0; while [ $i -lt 40 ]; do say tick; sleep 0.05; i=$((i+1)); done
wait
say end`

// TestKilledNodeLeavesNoCommandBehind: a command outlives the process that started it. The next life must end it before
// it starts the same run again, or the run is being done twice at the same time.
func TestKilledNodeLeavesNoCommandBehind(t *testing.T) {
	heavy(t)
	t.Parallel()
	binary := harness.Build(t)
	seen := filepath.Join(t.TempDir(), "seen")
	lines := func() []string {
		b, _ := os.ReadFile(seen)
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
	node := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"), "--executors", "shell", "--slots", "4")
	node.Start()
	ctx := context.Background()
	payload := fmt.Appendf(nil, `{"command":%q}`, fmt.Sprintf(script, seen))
	if _, err := node.Client.CreateJob(ctx,
		job.Spec{Name: "cmd", Type: job.TypeShell, Schedule: job.ScheduleManual, Payload: payload}); err != nil {
		t.Fatal(err)
	}
	run, err := node.Client.RunJob(ctx, "cmd")
	if err != nil {
		t.Fatal(err)
	}
	const kills = 3
	for i := range kills {
		alive := fmt.Sprintf("child %d ", i+1)
		harness.Eventually(t, time.Minute, "attempt "+alive, func() bool {
			return strings.Count(strings.Join(lines(), "\n"), alive) >= 3
		})
		node.Kill("while a command runs")
		node.Start()
	}
	var d client.RunDetail
	harness.Eventually(t, time.Minute, "the run succeeded", func() bool {
		d, err = node.Client.GetRun(ctx, run.RunID)
		return err == nil && d.Status == job.RunSucceeded
	})

	attempt, fence, ends := 0, uint64(0), 0
	key := ""
	for n, line := range lines() {
		var word, k string
		var a int
		var f uint64
		if _, err := fmt.Sscan(line, &word, &a, &f, &k); err != nil {
			t.Fatalf("line %d: %q", n, line)
		}
		switch {
		case word == "begin":
			if a != attempt+1 || f <= fence || key != "" && k != key {
				t.Errorf("attempt %d began with fence %d and key %s, after attempt %d with fence %d and key %s", a, f, k, attempt,
					fence, key)
			}
			attempt, fence, key = a, f, k
		case f != fence:
			t.Fatalf("the command of fence %d still runs (%q, line %d of %d) after fence %d began", f, word, n, len(lines()),
				fence)
		case word == "end":
			ends++
		}
	}
	if attempt != kills+1 || ends != 1 || d.Attempt != attempt || d.Fence != fence {
		t.Errorf("%d attempts began and %d ended; the node says attempt %d, fence %d (%d)", attempt, ends, d.Attempt,
			d.Fence, fence)
	}
	node.Stop()
	if err := harness.Check(binary, node.Dir); err != nil {
		t.Error(err)
	}
}
