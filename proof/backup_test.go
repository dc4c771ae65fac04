package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// epochOne is where the fences and job ids of the first epoch begin: whatever is above it comes from the restored
// cluster.
const epochOne = 1 << (64 - job.GroupBits - job.EpochBits)

// carillon runs a command and returns what it printed.
func carillon(t *testing.T, binary string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("carillon %s: %w\n%s", strings.Join(args, " "), err, errOut.Bytes())
	}
	return out.String(), nil
}

// A backup from a follower under load becomes a new cluster beside the living old one: it does nothing until it is
// released, and then nothing that the old one did, before the backup or after it.
func TestBackupBecomesANewCluster(t *testing.T) {
	heavy(t)
	t.Parallel()
	ctx := context.Background()
	binary := harness.Build(t)
	target := harness.NewTarget(t)
	target.Behave(func(s harness.Seen) (time.Duration, int) {
		switch {
		case strings.HasPrefix(s.Token, "slow"):
			return time.Minute, http.StatusOK
		case strings.HasPrefix(s.Token, "retry"):
			return 0, http.StatusServiceUnavailable
		}
		return 0, http.StatusOK
	})
	old := harness.NewCluster(t, binary, 3)
	create := func(n *harness.Node, token, schedule string, edit ...func(*job.Spec)) job.Job {
		t.Helper()
		spec := job.Spec{Name: token, Type: job.TypeHTTP, Schedule: schedule, Overlap: job.OverlapAllow,
			Payload: fmt.Appendf(nil, `{"url":%q}`, target.URL+"/"+token)}
		for _, f := range edit {
			f(&spec)
		}
		var j job.Job
		harness.Eventually(t, time.Minute, token+" is created", func() bool { // by its key once, whoever leads
			var err error
			if j, err = n.Client.CreateJob(client.WithIdempotencyKey(ctx, token), spec); err != nil {
				t.Logf("%s: %v", token, err)
			}
			return err == nil
		})
		return j
	}
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }
	seen := func(token string, restored bool) (n int) {
		for _, s := range target.Seen() {
			if s.Token == token && (s.Fence > epochOne) == restored {
				n++
			}
		}
		return n
	}
	const every = 20
	for i := range every {
		create(old.Nodes[i%3], fmt.Sprint("every-", i), "@every 1s")
	}
	retries := 5
	create(old.Nodes[0], "slow", in(0))
	create(old.Nodes[1], "retry", in(0), func(s *job.Spec) {
		s.Retry = job.Retry{MaxRetries: &retries, Backoff: job.BackoffLinear, Base: job.Duration(time.Hour),
			Cap: job.Duration(time.Hour)}
	})
	create(old.Nodes[2], "queued", job.ScheduleManual, func(s *job.Spec) {
		s.Overlap, s.Payload = job.OverlapQueue, fmt.Appendf(nil, `{"url":%q}`, target.URL+"/slow-queued")
	})
	for range 2 {
		if _, err := old.Nodes[0].Client.RunJob(ctx, "queued"); err != nil {
			t.Fatal(err)
		}
	}
	create(old.Nodes[0], "paused", in(time.Hour))
	if _, err := old.Nodes[0].Client.PauseJob(ctx, "paused"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.ReadyLimit, "runs in every state", func() bool {
		open, err := old.Nodes[0].Client.Runs(ctx, client.RunQuery{Limit: 500})
		states := map[job.RunStatus]bool{}
		for _, r := range open.Runs {
			states[r.Status] = true
		}
		return err == nil && states[job.RunRetrying] && states[job.RunWaiting] &&
			(states[job.RunRunning] || states[job.RunClaimed]) &&
			seen("slow", false) == 1 && seen("every-0", false) > 0
	})
	// it is in the backup before its time, and runs in the old cluster after it
	create(old.Nodes[0], "soon", in(2*time.Second))
	create(old.Nodes[0], "later", in(time.Hour))

	follower := old.Others(old.Leader())[0]
	harness.Eventually(t, harness.ReadyLimit, "the follower knows all jobs", func() bool {
		s, err := follower.Stale().Status(ctx)
		return err == nil && s.Jobs == every+6
	})
	file := filepath.Join(t.TempDir(), "carillon.bak")
	text, err := carillon(t, binary, "backup", file, "--addr", follower.Addr, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var b struct {
		Bytes, Index int64
		Jobs, Epoch  uint64
		ClusterID    string `json:"cluster_id"`
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil || b.Jobs != every+6 || b.Index == 0 || b.Epoch != 0 ||
		b.ClusterID == "" {
		t.Fatalf("%v in %s", err, text)
	}
	if fi, err := os.Stat(file); err != nil || fi.Size() != b.Bytes {
		t.Errorf("%v %v", fi, err)
	}

	// The old cluster goes on: more fences, more jobs.
	last := create(old.Nodes[1], "after", in(0))
	harness.Eventually(t, harness.ReadyLimit, "the old cluster goes on",
		func() bool { return seen("soon", false) > 0 && seen("after", false) > 0 })

	fresh := restoreCluster(t, binary, file)
	for _, n := range fresh.Nodes {
		err := n.Client.Ready(ctx)
		if err == nil || !strings.Contains(err.Error(), "carillon cluster release") {
			t.Errorf("%s on hold: %v", n.ID, err)
		}
		if s, err := n.Client.Status(ctx); err != nil || s.Hold == nil || s.Hold.FromCluster != b.ClusterID ||
			s.ClusterID == b.ClusterID || s.Jobs != every+6 {
			t.Errorf("%+v %v", s, err)
		}
	}
	if text, err := carillon(t, binary, "status", "--addr", fresh.Nodes[1].Addr); err != nil ||
		!strings.Contains(text, "carillon cluster release") {
		t.Errorf("%v %s", err, text)
	}
	if _, err := fresh.Nodes[1].Client.RunJob(ctx, "later"); job.CodeOf(err) != job.CodeState ||
		!strings.Contains(err.Error(), "release") {
		t.Errorf("a run on hold: %v", err)
	}
	create(fresh.Nodes[0], "held", in(100*time.Millisecond))
	tomorrow := create(fresh.Nodes[0], "tomorrow", in(24*time.Hour))
	if uint64(tomorrow.ID) <= max(epochOne, uint64(last.ID)) {
		t.Errorf("the new cluster gives out %s, the old one %s", tomorrow.ID, last.ID)
	}
	if _, err := fresh.Nodes[2].Client.PatchJob(ctx, "every-1", []byte(`{"tags":{"edited":"yes"}}`), 0); err != nil {
		t.Error(err)
	}
	// The hold survives its leader.
	leader := holdLeader(t, fresh)
	leader.Kill("on hold")
	if err := leader.Launch(); err != nil {
		t.Fatal(err)
	}
	holdLeader(t, fresh)
	time.Sleep(2 * time.Second) // twenty jobs are due every second meanwhile
	for _, s := range target.Seen() {
		if s.Fence > epochOne {
			t.Fatalf("on hold, the new cluster ran %+v", s)
		}
	}
	for _, n := range old.Nodes {
		n.Kill("the end of the old cluster") // it would drain for as long as the slow runs take
		if err := harness.Check(binary, n.Dir); err != nil {
			t.Error(err)
		}
	}

	text, err = carillon(t, binary, "cluster", "release", "--addr", fresh.Nodes[2].Addr, "--json")
	var r client.ReleaseResult
	if err != nil || json.Unmarshal([]byte(text), &r) != nil || !r.Released || r.At == 0 {
		t.Fatalf("%v %s", err, text)
	}
	if text, err = carillon(t, binary, "cluster", "release", "--addr", fresh.Nodes[0].Addr); err != nil ||
		!strings.Contains(text, "not on hold") {
		t.Errorf("%v %s", err, text)
	}
	fresh.Leader()
	harness.Eventually(t, harness.ReadyLimit, "everything fires again", func() bool {
		for i := range every {
			if seen(fmt.Sprint("every-", i), true) < 2 {
				return false
			}
		}
		return true
	})
	did := map[string]bool{} // by the old cluster, whatever the end
	for _, s := range target.Seen() {
		if s.Fence < epochOne {
			did[s.Job+" "+s.ScheduledAt] = true
		}
	}
	for _, s := range target.Seen() {
		if s.Fence < epochOne {
			continue
		}
		if did[s.Job+" "+s.ScheduledAt] || s.At() <= r.At {
			t.Errorf("released at %s, the new cluster ran %+v", r.At, s)
		}
	}
	wantLast := func(ref string, status job.RunStatus) {
		t.Helper()
		var page client.RunPage
		harness.Eventually(t, harness.ReadyLimit, ref+" is "+status.String(), func() bool {
			page, err = fresh.Nodes[1].Client.JobRuns(ctx, ref, client.RunQuery{Limit: 10})
			return err == nil && len(page.Runs) > 0 && page.Runs[0].Status == status && page.Runs[0].Reason == job.ReasonRestored
		})
	}
	wantLast("slow", job.RunLost)
	wantLast("retry", job.RunLost)
	wantLast("queued", job.RunLost)
	wantLast("soon", job.RunMissed)
	wantLast("held", job.RunMissed)
	if open, err := fresh.Nodes[0].Client.Runs(ctx, client.RunQuery{Limit: 500}); err != nil {
		t.Error(err)
	} else {
		for _, o := range open.Runs {
			due := o.Attempt == 0 && o.ScheduledAt > r.At // it came after the release, and is not claimed yet
			if o.Fence < epochOne && !due {
				t.Errorf("%+v is still open", o)
			}
		}
	}
	if j, err := fresh.Nodes[0].Client.GetJob(ctx, "soon"); err != nil || j.Status != job.StatusFailed ||
		j.LastRunStatus != job.RunMissed {
		t.Errorf("%+v %v", j, err)
	}
	if _, err := fresh.Nodes[0].Client.RunJob(ctx, "soon"); err != nil { // by hand it runs
		t.Error(err)
	}
	harness.Eventually(t, harness.ReadyLimit, "the one-off runs by hand", func() bool { return seen("soon", true) == 1 })
	for i := range every {
		if _, err := fresh.Nodes[0].Client.PauseJob(ctx, fmt.Sprint("every-", i)); err != nil {
			t.Fatal(err)
		}
	}
	fresh.Same(time.Minute)
	fresh.StopAndCheck()

	text, err = carillon(t, binary, "compact", "--data-dir", fresh.Nodes[0].Dir, "--json")
	if err != nil || !strings.Contains(text, `"state.db"`) {
		t.Errorf("%v %s", err, text)
	}
	if err := harness.Check(binary, fresh.Nodes[0].Dir); err != nil {
		t.Error(err)
	}
}

// restoreCluster makes a cluster of three out of a backup, on hold.
func restoreCluster(t *testing.T, binary, file string) *harness.Cluster {
	t.Helper()
	c := harness.NoCluster(t)
	for i := range 3 {
		// Their workers have the names of the old ones, which may have claims in the backup: they wait for a lease.
		n := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"), "--lease", "4s")
		n.ID = fmt.Sprint("n", i+1)
		if i == 0 {
			if _, err := carillon(t, binary, "restore", file, "--data-dir", n.Dir, "--node-id", n.ID, "--advertise",
				n.Addr); err != nil {
				t.Fatal(err)
			}
		} else {
			n.Join = []string{c.Nodes[0].Addr}
		}
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
		c.Nodes = append(c.Nodes, n)
	}
	harness.Eventually(t, harness.ReadyLimit, "three voters on hold", func() bool {
		voters := 0
		s, err := c.Nodes[0].Client.Status(context.Background())
		for _, m := range s.Members {
			if m.Suffrage == "voter" {
				voters++
			}
		}
		return err == nil && voters == 3
	})
	for _, n := range c.Nodes {
		harness.Eventually(t, harness.ReadyLimit, n.ID+" has the state", func() bool {
			s, err := n.Stale().Status(context.Background())
			return err == nil && s.Hold != nil
		})
	}
	return c
}

// holdLeader waits until all nodes agree on who leads a cluster that is on hold, so that requests get there.
func holdLeader(t *testing.T, c *harness.Cluster) (leader *harness.Node) {
	t.Helper()
	harness.Eventually(t, harness.ReadyLimit, "a leader", func() bool {
		leader = nil
		for _, n := range c.Nodes {
			s, err := n.Stale().Status(context.Background())
			if err != nil || s.Hold == nil || s.Leader == "" {
				return false
			}
			if s.State == "leader" && strings.Contains(s.NotReady, "on hold") {
				leader = n
			}
		}
		return leader != nil
	})
	return leader
}
