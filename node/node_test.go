package node

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

func TestCreateFiresAndRecords(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	j := n.create(tg.spec("hello", "@every 1s"))
	if j.Status != job.StatusScheduled || j.NextRunAt == 0 || j.Version != 1 {
		t.Errorf("created: %+v", j)
	}
	n.eventually("two runs", func() bool { return n.count("hello", job.RunSucceeded) >= 2 })
	for _, r := range n.runs("hello") {
		if r.Status != job.RunSucceeded {
			continue
		}
		if r.LagMS == nil || *r.LagMS < 0 || *r.LagMS > 900 || r.Attempt != 1 || r.Worker != "n1" ||
			r.JobName != "hello" || r.Seq == 0 || r.FinishedAt == 0 {
			t.Errorf("run: %+v", r)
		}
		if tg.seen()[r.Key] != 1 {
			t.Errorf("the target saw key %q %d times", r.Key, tg.seen()[r.Key])
		}
		d := ok[wire.RunDetail](n, "GET", "/api/v1/runs/"+r.RunID, nil)
		if d.RunID != r.RunID || len(d.Attempts) != 1 || !strings.Contains(d.Attempts[0].Output, "seen") {
			t.Errorf("detail: %+v", d)
		}
	}
	tg.mu.Lock()
	h := tg.last
	tg.mu.Unlock()
	for _, name := range []string{"Idempotency-Key", "Carillon-Job", "Carillon-Run", "Carillon-Scheduled-At",
		"Carillon-Attempt", "Carillon-Fence", "Traceparent"} {
		if h.Get(name) == "" {
			t.Errorf("the target did not get %s", name)
		}
	}

	s := ok[wire.Status](n, "GET", "/api/v1/status", nil)
	if !s.Ready || s.State != "leader" || s.Leader != "n1" || s.Jobs != 1 || s.ClusterID == "" || len(s.Members) != 1 ||
		len(s.Workers) != 1 || s.History.Last < 2 {
		t.Errorf("status: %+v", s)
	}
	body := string(n.call("GET", "/metrics", nil).body)
	for _, name := range []string{"schedule_lag_seconds_count", "run_duration_seconds_count",
		`runs_total{group="0",status="succeeded",type="http"}`, `dead_letters{group="0"} 0`, "backlog",
		`worker_slots{group="0",state="free"}`, `claims_total{group="0",outcome="claimed"}`, `leader{group="0"} 1`,
		"apply_seconds_count", "clock_skew_seconds"} {
		if !strings.Contains(body, "\ncarillon_"+name) {
			t.Errorf("no metric carillon_%s", name)
		}
	}
	if !strings.Contains(body, "go_goroutines") {
		t.Error("no metrics of the runtime")
	}
}

func TestOneOff(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	at := time.Now().Add(500 * time.Millisecond).UTC()
	j := n.create(map[string]any{"type": "shell", "schedule": at.Format("2006-01-02T15:04:05.000Z07:00"),
		"payload": map[string]any{"command": "echo out; exit 0"}})
	n.eventually("it ran", func() bool { return n.get(j.ID.String()).Status == job.StatusCompleted })
	r := n.runs(j.ID.String())
	if len(r) != 1 || r[0].Status != job.RunSucceeded || !strings.Contains(r[0].Output, "out") {
		t.Errorf("runs: %+v", r)
	}
	// In the past: accepted, runs now.
	n.create(map[string]any{"name": "past", "type": "shell", "schedule": "2020-01-01T00:00:00Z",
		"payload": map[string]any{"command": "false"}, "retry": map[string]any{"max_retries": 0}})
	n.eventually("it failed", func() bool { return n.get("past").Status == job.StatusFailed })
}

func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	dir, tg := t.TempDir(), newTarget(t)
	n := start(t, dir)
	n.create(tg.spec("a", "@manual"))
	n.create(tg.spec("b", "0 3 * * *", "tags", map[string]string{"team": "x"}))
	for i := range 2 {
		ok[job.Run](n, "POST", "/api/v1/jobs/a:run", nil)
		n.eventually("a ran", func() bool { return n.count("a", job.RunSucceeded) == i+1 })
	}
	ok[map[string]any](n, "POST", "/api/v1/jobs/a:pause", nil)
	n.eventually("a is idle", func() bool { return n.get("a").OpenRuns == 0 })
	before, history := n.get("b"), n.runs("a")
	status := ok[wire.Status](n, "GET", "/api/v1/status", nil)
	n.stop()
	counters := applied(t, dir)

	n = start(t, dir)
	if got := n.get("b"); got.ID != before.ID || got.Version != before.Version || got.NextRunAt != before.NextRunAt ||
		got.CreatedAt != before.CreatedAt || got.Tags["team"] != "x" {
		t.Errorf("before %+v\nafter  %+v", before, got)
	}
	if got := n.runs("a"); len(got) != len(history) || got[0].RunID != history[0].RunID ||
		got[0].Fence != history[0].Fence {
		t.Errorf("history of %d became %d", len(history), len(got))
	}
	if got := n.get("a"); got.Status != job.StatusPaused {
		t.Errorf("a is %s", got.Status)
	}
	if got := ok[wire.Status](n, "GET", "/api/v1/status", nil); got.ClusterID != status.ClusterID {
		t.Error("the cluster has another id")
	}
	// What was applied before is not applied again: claims and fences would move.
	after := n.group.store.Counters()
	if after.Fence != counters.Fence || after.HistSeq != counters.HistSeq || after.NextJob != counters.NextJob ||
		after.Index <= counters.Index {
		t.Errorf("before %+v\nafter  %+v", counters, after)
	}
}

func TestSnapshotCompactionRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	small := func(c *Config) {
		c.Raft.SnapshotInterval, c.Raft.SnapshotThreshold, c.Raft.TrailingLogs = 20*time.Millisecond, 16, 20
	}
	n := start(t, dir, small)
	for range 100 {
		n.create(map[string]any{"type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}})
	}
	n.eventually("the log is compacted", func() bool {
		first, err := n.group.logs.FirstIndex()
		return err == nil && first > 50
	})
	n.stop()
	if res, err := datadir.Check(dir); err != nil || len(res.Problems) > 0 || res.Stats.Jobs != 100 {
		t.Errorf("check: %+v %v", res, err)
	}
	n = start(t, dir, small)
	if s := ok[wire.Status](n, "GET", "/api/v1/status", nil); s.Jobs != 100 {
		t.Errorf("%d jobs are left of 100", s.Jobs)
	}
	n.create(map[string]any{"name": "one-more", "type": "queue", "schedule": "@manual",
		"payload": map[string]any{"queue": "q"}})
}

// Entries differ in size by a factor of a thousand: their number alone says little about the log.
func TestLogIsBoundedInBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Raft.CompactBytes = 1 << 20 })
	big := strings.Repeat("x", 20_000)
	for range 220 {
		n.create(map[string]any{"type": "queue", "schedule": "@manual",
			"payload": map[string]any{"queue": "q", "data": big}})
	}
	n.eventually("the log is compacted", func() bool {
		first, err := n.group.logs.FirstIndex()
		return err == nil && first > 10
	})
	n.stop()
	n = start(t, n.dir.Path)
	if s := ok[wire.Status](n, "GET", "/api/v1/status", nil); s.Jobs != 220 {
		t.Errorf("%d jobs are left", s.Jobs)
	}
}

func TestIdempotencyAcrossRestart(t *testing.T) {
	t.Parallel()
	dir, tg := t.TempDir(), newTarget(t)
	n := start(t, dir)
	first := n.create(tg.spec("", "0 0 1 1 *"), "Idempotency-Key", "abc")
	n.create(tg.spec("gone", "@manual"))
	if a := n.call("DELETE", "/api/v1/jobs/gone", nil, "Idempotency-Key", "del"); a.status != 204 {
		t.Fatalf("delete: %d %s", a.status, a.body)
	}
	n.stop()
	n = start(t, dir)
	a := n.call("POST", "/api/v1/jobs", tg.spec("", "0 0 1 1 *"), "Idempotency-Key", "abc")
	if a.status != 201 || a.header.Get("Idempotent-Replay") != "true" ||
		!strings.Contains(string(a.body), first.ID.String()) {
		t.Errorf("repeated: %d %v %s", a.status, a.header, a.body)
	}
	if a := n.call("POST", "/api/v1/jobs", tg.spec("", "0 0 2 1 *"), "Idempotency-Key",
		"abc"); a.problem().Code != job.CodeKeyReused {
		t.Errorf("another request under the key: %d %s", a.status, a.body)
	}
	if a := n.call("DELETE", "/api/v1/jobs/gone", nil, "Idempotency-Key", "del"); a.status != 204 ||
		a.header.Get("Idempotent-Replay") != "true" {
		t.Errorf("repeated delete: %d %s", a.status, a.body)
	}
	if s := ok[wire.Status](n, "GET", "/api/v1/status", nil); s.Jobs != 1 {
		t.Errorf("%d jobs", s.Jobs)
	}
}

func TestConcurrentCreates(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	const clients, each = 32, 10
	ids := make(chan job.ID, clients*each)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				a, err := n.try("POST", "/api/v1/jobs",
					`{"type":"queue","schedule":"@every 1h","payload":{"queue":"q"}}`)
				if err != nil || a.status != 201 {
					t.Errorf("%d %v %s", a.status, err, a.body)
					return
				}
				id, err := job.ParseID(strings.TrimPrefix(a.header.Get("Location"), "/api/v1/jobs/"))
				if err != nil {
					t.Error(err)
				}
				ids <- id
			}
		})
	}
	wg.Wait()
	close(ids)
	seen := map[job.ID]bool{}
	for id := range ids {
		if seen[id] {
			t.Errorf("%s was given out twice", id)
		}
		seen[id] = true
	}
	if len(seen) != clients*each {
		t.Errorf("%d jobs", len(seen))
	}
}

// A write that fails must end the process: raft would step down, be elected again and go on with a log that is not the
// one on disk.
func TestStorageErrorEndsTheProcess(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	full := errors.New("no space left on device")
	fatal := make(chan error, 100)
	n := start(t, t.TempDir(), func(c *Config) {
		c.Fatal = func(err error) {
			select {
			case fatal <- err:
			default:
			}
		}
		c.Machine.Write = func(file string) error {
			if file == "log" && broken.CompareAndSwap(true, false) {
				return full
			}
			return nil
		}
	})
	n.create(map[string]any{"type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}})
	broken.Store(true)
	done := make(chan apiAnswer, 1)
	go func() {
		a, _ := n.try("POST", "/api/v1/jobs", `{"type":"queue","schedule":"@manual","payload":{"queue":"q"}}`)
		done <- a
	}()
	select {
	case err := <-fatal:
		if !errors.Is(err, full) {
			t.Errorf("fatal was told %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("nothing happened")
	}
	// In production the process is gone by now. Here it goes on, is elected again and repeats the request, once.
	if a := <-done; a.status != 201 {
		t.Errorf("answered %d %s", a.status, a.body)
	}
	if s := ok[wire.Status](n, "GET", "/api/v1/status", nil); s.Jobs != 2 {
		t.Errorf("%d jobs", s.Jobs)
	}
}

func TestGracefulStopFinishesAttempts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir)
	n.create(map[string]any{"name": "slow", "type": "shell", "schedule": "@manual",
		"payload": map[string]any{"command": "sleep 0.7; echo done"}})
	n.call("POST", "/api/v1/jobs/slow:run", nil)
	n.eventually("it runs", func() bool { return n.worker.busy() == 1 })
	n.stop()
	n = start(t, dir)
	if r := n.runs("slow"); len(r) != 1 || r[0].Status != job.RunSucceeded || !strings.Contains(r[0].Output, "done") {
		t.Errorf("runs: %+v", r)
	}
}
