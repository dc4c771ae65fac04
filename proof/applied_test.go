package proof

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// Ten thousand jobs are applied and the leader is killed in the middle. Whatever became of the command, the same command
// again ends with every job there once, on every node, as the file has it.
func TestApplyOverAKilledLeader(t *testing.T) {
	beside(t)
	const many = 10_000
	cl := harness.NewCluster(t, harness.Build(t), 3)
	var file bytes.Buffer
	for i := range many {
		fmt.Fprintf(&file, `{"name":"job-%d","type":"queue","schedule":"@manual","payload":{"queue":"q","data":{"n":%d}}}`+"\n", i, i)
	}
	path := filepath.Join(t.TempDir(), "jobs.ndjson")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	leader := cl.Leader()
	var addrs []string
	for _, n := range append(cl.Others(leader), leader) { // through one that lives on
		addrs = append(addrs, n.Addr)
	}
	args := []string{"apply", "-f", path, "--addr", strings.Join(addrs, ","), "-o", "json"}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // ends a hang
	defer cancel()
	cmd := exec.CommandContext(ctx, leader.Binary, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told := 0
	for lines := bufio.NewScanner(out); lines.Scan(); told++ {
		if told == many/4 {
			leader.Kill("in the middle of an apply")
			if s, err := cl.Others(leader)[0].Stale().Status(t.Context()); err != nil || s.Jobs >= many {
				t.Errorf("%d jobs when the leader was killed, which is not in the middle (%v)", s.Jobs, err)
			}
		}
	}
	err = cmd.Wait()
	t.Logf("%d of %d were told of when the command ended: %v\n%s", told, many, err, stderr.Bytes())
	if told <= many/4 {
		t.Fatal("the leader was not killed in the middle")
	}

	next := cl.Leader()
	said, err := carillon(t, next.Binary, args...)
	if err != nil {
		t.Fatal(err)
	}
	again := map[string]int{}
	for line := range strings.Lines(said) {
		var r client.ApplyResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		again[r.Status]++
	}
	t.Logf("again: %v", again)
	if again["created"]+again["unchanged"] != many || again["unchanged"] < told {
		t.Errorf("after %d were told of: %v", told, again)
	}
	said, err = carillon(t, next.Binary, "jobs", "--all", "-o", "json", "--addr", next.Addr)
	var page client.JobPage
	if err == nil {
		err = json.Unmarshal([]byte(said), &page)
	}
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, j := range page.Jobs {
		if names[j.Name] || j.Version != 1 {
			t.Errorf("%s is there twice, or was changed: version %d", j.Name, j.Version)
		}
		names[j.Name] = true
	}
	if len(names) != many {
		t.Errorf("%d jobs", len(names))
	}
	leader.Start()
	cl.Same(time.Minute)
}
