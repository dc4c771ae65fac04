package node

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// With little room left nothing new is created, and what there is goes on: runs are claimed, completed and recorded.
func TestDiskLow(t *testing.T) {
	realTime(t)
	t.Parallel()
	var free atomic.Uint64
	free.Store(10 << 30)
	c := startJoined(t, 3, func(cfg *Config) {
		cfg.Machine.DiskEvery = 10 * time.Millisecond
		cfg.Machine.DiskSpace = func() (uint64, uint64, error) { return free.Load(), 100 << 30, nil }
	})
	tg := newTarget(t)
	lead := c.leader()
	lead.create(tg.spec("going-on", "@every 1s"))
	lead.create(unclaimedJob("created"), "Idempotency-Key", "k1")
	c.fires("going-on")

	free.Store(100 << 20)
	lead.eventually("it knows", func() bool { return lead.disk.Last().Low })
	for _, m := range c.members { // forwarded or not
		a := m.call("POST", "/api/v1/jobs", unclaimedJob("new"))
		if p := a.problem(); a.status != 507 || p.Code != job.CodeDiskLow ||
			!strings.Contains(p.Message, "100.0 MiB free") || !strings.Contains(p.Remedy, "--min-free-disk") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a := lead.call("POST", "/api/v1/jobs:bulk",
		`{"name":"b","type":"queue","schedule":"@manual","payload":{"queue":"q"}}`+"\n"); !strings.Contains(string(a.body), "disk_low") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := lead.call("POST", "/api/v1/jobs/going-on:backfill",
		`{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:00:10Z"}`); a.status != 507 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// What was created before is still answered with its first outcome.
	if a := lead.call("POST", "/api/v1/jobs", unclaimedJob("created"), "Idempotency-Key", "k1"); a.status != 201 ||
		a.header.Get("Idempotent-Replay") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	c.fires("going-on")
	ok[job.Job](lead.testNode, "POST", "/api/v1/jobs/created:pause", nil)
	s := lead.status("")
	if s.Disk == nil || !s.Disk.Low || s.Disk.Limit != 512<<20 || s.Jobs != 2 {
		t.Errorf("%+v", s.Disk)
	}
	lead.eventually("the members say theirs", func() bool {
		for _, m := range ok[wire.Status](lead.testNode, "GET", "/api/v1/status", nil).Members {
			if m.Disk == nil || !m.Disk.Low {
				return false
			}
		}
		return true
	})
	if text := string(lead.call("GET", "/metrics", nil).body); !strings.Contains(text,
		"carillon_disk_free_bytes 1.048576e+08") ||
		!strings.Contains(text, "carillon_disk_limit_bytes 5.36870912e+08") {
		t.Error("no metric")
	}

	free.Store(10 << 30)
	lead.eventually("there is room again", func() bool { return !lead.disk.Last().Low })
	lead.create(unclaimedJob("new"))
	c.sameState()
}
