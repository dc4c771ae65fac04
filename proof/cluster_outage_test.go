package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestMajorityLost kills two of three nodes, with the leader among them and without it. The third refuses what it
// cannot do and says why, shows what it knows, starts nothing, and goes on as soon as one other is back.
func TestMajorityLost(t *testing.T) {
	heavy(t)
	t.Parallel() // most of it is waiting
	seed := harness.Seed(t)
	l := newClusterLoad(t, seed, 20, mixed)
	for i, c := range []struct {
		name string
		left func() *harness.Node // who stays
	}{
		{"the leader is left", func() *harness.Node { return l.cl.Leader() }},
		{"a follower is left", func() *harness.Node { return l.cl.Others(l.cl.Leader())[0] }},
	} {
		time.Sleep(time.Second)
		left := c.left()
		gone := l.cl.Others(left)
		for _, n := range gone {
			n.Kill(c.name)
		}
		began := time.Now()
		l.alone(i, left, gone)
		harness.Eventually(t, time.Minute, "nothing is in hand", func() bool { return l.target.InFlight() == 0 })
		before := l.target.Arrived()
		time.Sleep(1500 * time.Millisecond)
		if n := l.target.Arrived() - before; n > 0 {
			t.Errorf("%s: %d attempts were started without a majority", c.name, n)
		}
		t.Logf("%s (%s): alone for %s", c.name, left.ID, time.Since(began).Round(time.Millisecond))

		back := time.Now()
		gone[0].Start()
		l.cl.Leader()
		token := fmt.Sprintf("back-%d", i)
		spec := l.spec(token, token, job.ScheduleManual, "")
		l.promise(token, spec)
		if j, err := left.Client.CreateJob(context.Background(), spec); err != nil {
			t.Errorf("%s: two of three are back: %v", c.name, err)
		} else {
			l.ack(token, j.ID)
		}
		harness.Eventually(t, time.Minute, "it goes on", func() bool { return l.target.Arrived() > before })
		t.Logf("%s: goes on %s after one came back", c.name, time.Since(back).Round(time.Millisecond))
		gone[1].Start()
	}
	l.settle(3 * time.Second)
	l.cl.StopAndCheck()
}

// alone looks at a node that has lost the majority.
func (l *load) alone(round int, n *harness.Node, gone []*harness.Node) {
	t := l.t
	t.Helper()
	jobs := len(l.order)
	token := fmt.Sprintf("early-%d", round)
	early := l.spec(token, token, job.ScheduleManual, "")
	l.promise(token, early) // may or may not exist
	var wg sync.WaitGroup
	for i, what := range []struct {
		name string
		code job.Code // beside no_leader
		do   func(context.Context) error
	}{
		// a leader may write it down before it notices
		{"a write at once", job.CodeOutcomeUnknown, func(ctx context.Context) error {
			_, err := n.Client.CreateJob(ctx, early)
			return err
		}},
		{"a write", job.CodeNoLeader, func(ctx context.Context) error {
			_, err := n.Client.CreateJob(ctx, l.spec("never", "never", job.ScheduleManual, ""))
			return err
		}},
		{"a consistent read", job.CodeNoLeader, func(ctx context.Context) error {
			_, err := n.Client.ListJobs(ctx, client.JobQuery{})
			return err
		}},
	} {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			began := time.Now()
			err := what.do(ctx)
			var e *job.Error
			if !errors.As(err, &e) || e.Code != job.CodeNoLeader && e.Code != what.code || e.Remedy == "" {
				t.Errorf("%s without a majority: %v after %s", what.name, err, time.Since(began))
			} else {
				t.Logf("%s is refused after %s: %s: %s (%s)", what.name, time.Since(began).Round(time.Millisecond), e.Code,
					e.Message, e.Remedy)
			}
		})
		if i == 0 {
			wg.Wait() // from here on it knows
		}
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	page, err := n.Stale().ListJobs(ctx, client.JobQuery{Limit: 500})
	if err != nil || len(page.Jobs) < jobs-round || len(page.Jobs) > jobs {
		t.Errorf("stale reads: %d of %d jobs, %v", len(page.Jobs), jobs, err)
	}
	s, err := n.Client.Status(ctx)
	if err != nil || s.Ready || s.Leader != "" || s.State == "leader" {
		t.Errorf("status: ready %v, state %s, leader %q, %v", s.Ready, s.State, s.Leader, err)
	}
	for _, g := range gone {
		if !strings.Contains(s.NotReady, g.ID) {
			t.Errorf("status does not say that %s is missing: %q", g.ID, s.NotReady)
		}
	}
	if err := n.Client.Ready(ctx); err == nil {
		t.Error("it calls itself ready")
	}
	if err := n.Client.Live(ctx); err != nil {
		t.Errorf("it is alive, and says: %v", err)
	}
	out, _ := exec.CommandContext(ctx, n.Binary, "status", "--addr", n.Addr).CombinedOutput()
	if !bytes.Contains(out, []byte("no leader")) || !bytes.Contains(out, []byte(gone[0].ID)) {
		t.Errorf("carillon status does not say what is wrong:\n%s", out)
	}
	resp, err := http.Get("http://" + n.Addr + "/api/v1/jobs?stale=true&limit=1")
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if age := resp.Header.Get("Carillon-Stale-Ms"); resp.StatusCode != http.StatusOK || age == "" {
		t.Errorf("a stale read says %d and does not tell its age: %v", resp.StatusCode, resp.Header)
	}
}

// index is a number of a node's own raft statistics.
func index(tb testing.TB, n *harness.Node, name string) uint64 {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := n.Stale().Status(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	i, err := strconv.ParseUint(s.Raft[name], 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return i
}

// flood makes entries as fast as it goes until it is enough: edits of jobs that never run, many side by side, each a
// request and an entry of its own.
func (l *load) flood(leader *harness.Node, enough func() bool) (edits int64) {
	t := l.t
	t.Helper()
	const side = 256 // what is under way together shares its writes to the disk
	c := client.New(leader.Addr,
		client.WithHTTPClient(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: side}}))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var over atomic.Bool
	var n atomic.Int64
	for i := range side {
		token := fmt.Sprintf("edited-%d", i)
		spec := l.spec(token, token, job.ScheduleManual, "")
		l.promise(token, spec)
		wg.Go(func() {
			j, err := c.CreateJob(ctx, spec)
			if err != nil {
				t.Errorf("create %s: %v", token, err)
				return
			}
			l.ack(token, j.ID)
			for k := 0; !over.Load() && !t.Failed(); k++ {
				err := l.tag(ctx, c, token, strconv.Itoa(k))
				if err != nil && !passing(err) {
					t.Errorf("edit %d of %s: %v", k, token, err)
				}
				n.Add(1)
			}
		})
	}
	for !enough() && ctx.Err() == nil && !t.Failed() {
		time.Sleep(50 * time.Millisecond)
	}
	over.Store(true)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		t.Error(err)
	}
	return n.Load()
}

// TestSlowFollowerComesBackThroughASnapshot kills a follower and lets the log run away from it.
func TestSlowFollowerComesBackThroughASnapshot(t *testing.T) {
	heavy(t)
	t.Parallel()
	entries, lines := uint64(2000), 1000
	if harness.Long() {
		entries, lines = 60_000, 10_000
	}
	if harness.Longest() {
		entries = 200_000
	}
	seed := harness.Seed(t)
	l := newClusterLoad(t, seed, 20, mixed, "--snapshot-threshold", "200", "--snapshot-interval", "1s")
	leader := l.cl.Leader()
	follower := l.cl.Others(leader)[l.rng.IntN(2)]
	l.node = leader
	follower.Kill("to miss a lot")
	from := index(t, leader, "applied_index")
	l.mustSend(l.oneOffs(lines, time.Now().Add(3*time.Second)))

	began := time.Now()
	stop := l.triggerForever(seed, manualJobs, 80*time.Millisecond)
	edits := l.flood(leader, func() bool { return index(t, leader, "applied_index") >= from+entries })
	if !harness.Within(10*time.Second,
		func() bool { return index(t, leader, "last_snapshot_index") >= from+entries*3/4 }) {
		t.Errorf("the leader's last snapshot is at %d, and %d were applied", index(t, leader, "last_snapshot_index"),
			index(t, leader, "applied_index"))
	}
	missed, took := index(t, leader, "applied_index")-from, time.Since(began)
	t.Logf("%s missed %d entries (%d edits; %s, %.0f entries/s)", follower.ID, missed, edits,
		took.Round(time.Millisecond), float64(missed)/took.Seconds())

	back := time.Now()
	follower.Start()
	harness.Eventually(t, time.Minute, follower.ID+" caught up", func() bool {
		return index(t, follower, "applied_index")+50 >= index(t, leader, "applied_index")
	})
	took = time.Since(back)
	_, lastLife, _ := bytes.Cut(follower.Log(), []byte("--- life 2"))
	if !bytes.Contains(lastLife, []byte("state restored from a snapshot")) {
		t.Errorf("%s came back without a snapshot:\n%s", follower.ID, lastLife)
	}
	t.Logf("%s caught up through a snapshot (index %d) in %s while the load went on", follower.ID,
		index(t, follower, "last_snapshot_index"), took.Round(time.Millisecond))
	stop()
	l.settle(4 * time.Second)
	l.cl.StopAndCheck()
}
