package node

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// heard counts log records by their message, and their errors.
type heard struct {
	mu sync.Mutex
	n  map[string]int
}

func (*heard) Enabled(context.Context, slog.Level) bool { return true }
func (h *heard) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *heard) WithGroup(string) slog.Handler          { return h }

func (h *heard) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n[r.Message]++
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			h.n[a.Value.String()]++
		}
		return true
	})
	return nil
}

func (h *heard) count(msg string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n[msg]
}

// A node that raft refuses, because the cluster was begun anew without it, could find the leader by HTTP. It must not
// execute anything, and does not even ask.
func TestWorkerOfAnOldEpochIsRefused(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	c.stopAll()
	m, old := c.members[0], c.members[1]
	if _, err := datadir.Recover(m.cfg.DataDir, map[string]string{m.id(): m.cfg.Listen}, quiet); err != nil {
		t.Fatal(err)
	}
	m.link = &link{}
	m.open(t)
	m.eventually("it leads", m.leads)
	log := &heard{n: map[string]int{}}
	old.cfg.Logger = slog.New(log)
	old.link = &link{}
	old.open(t)
	old.eventually("its worker is refused", func() bool {
		err := old.members.Stopped()
		return err != nil && log.count(err.Error())+log.count("registered") > 0
	})
	if n := log.count("registered") + log.count("registration refused; trying again"); n != 0 {
		t.Errorf("it registered, or asked the leader for it, %d times", n)
	}
	for _, x := range m.tracker.Epoch().Scheduler.Workers() {
		if x.Worker == old.id() {
			t.Errorf("%+v", x)
		}
	}
}

// The rules, each.
func TestStandingOfANode(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	lead := c.leader()
	m, removed := c.others(lead)[0], c.others(lead)[1]
	good, gone := *m.members.Ref(), *removed.members.Ref()
	removed.stop()
	c.mustOp("remove", removed.id())
	lead = c.leader()
	for name, x := range map[string]struct {
		worker  string
		change  func(*job.NodeRef)
		refused bool
	}{
		"a member":        {m.id(), func(*job.NodeRef) {}, false},
		"another cluster": {m.id(), func(n *job.NodeRef) { n.Cluster = "x" }, true},
		"another epoch":   {m.id(), func(n *job.NodeRef) { n.Epoch++ }, true},
		"another dir":     {m.id(), func(n *job.NodeRef) { n.Instance = "x" }, true},
		"a copy":          {m.id(), func(n *job.NodeRef) { n.Address = "127.0.0.1:1" }, true},
		"a stranger":      {"n9", func(*job.NodeRef) {}, true},
	} {
		n := good
		x.change(&n)
		if leaving, err := lead.members.Standing(x.worker, n); (err != nil) != x.refused || leaving {
			t.Errorf("%s: %v %v", name, leaving, err)
		}
	}
	if leaving, err := lead.members.Standing(removed.id(), gone); err != nil || !leaving {
		t.Errorf("removed: %v %v", leaving, err)
	}
	sched := lead.tracker.Epoch().Scheduler
	poll := job.Poll{Worker: removed.id(), Secret: "s", Types: []job.Type{job.TypeHTTP}, Node: &gone}
	opened, err := sched.Poll(t.Context(), poll)
	if err != nil {
		t.Fatal(err)
	}
	poll.Session = opened.Session
	if _, err := sched.Poll(t.Context(), poll); job.CodeOf(err) != job.CodeForbidden {
		t.Errorf("a removed node that has nothing in hand: %v", err)
	}
}
