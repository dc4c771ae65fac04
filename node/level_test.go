package node

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// everyCommand is an empty command of each type.
func everyCommand(t *testing.T) (all []any) {
	t.Helper()
	for typ := range 256 {
		cmd, err := fsm.Decode([]byte{byte(typ), 1, 0x80})
		var unknown *fsm.UnknownCommandError
		if errors.As(err, &unknown) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	return all
}

// No command gets into the log above the level that it needs, whichever it is (design §4).
func TestEveryCommandWaitsForItsLevel(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	e := n.group.lead.current()
	refusal := errors.New("the level is not committed")
	p := &proposer{raft: n.group.raft, timeout: n.cfg.Raft.ApplyTimeout, flight: n.group.flight}
	later := 0
	for _, cmd := range everyCommand(t) {
		level, err := fsm.CommandLevel(cmd)
		if err != nil {
			t.Error(err)
			continue
		}
		p.allows = func(l int) error {
			if l != level {
				t.Errorf("%T: asked for level %d", cmd, l)
			}
			return refusal
		}
		if _, err := p.Propose(cmd).Wait(); !errors.Is(err, refusal) || !errors.Is(err, scheduler.ErrNotApplied) {
			t.Errorf("%T: %v", cmd, err)
		}
		if level > 1 {
			later++
		}
		if err := n.group.allows(level); err != nil {
			t.Errorf("%T: a new cluster does not allow it: %v", cmd, err)
		}
	}
	if later < 4 {
		t.Errorf("%d commands came after the first level", later)
	}
	if n.group.store.Info().Level != fsm.Level || n.group.lead.current() != e {
		t.Error("the leadership changed")
	}
}

// While a member is old, what it would not understand is refused with who that is; everything else goes on. When it is replaced, the level
// is raised, and status says so.
func TestOldMemberHoldsTheLevel(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3, func(c *Config) { c.level = 1 })
	last := c.members[2]
	for _, m := range c.members[:2] {
		m.stop()
		m.cfg.level = 0
		m.restart()
		m.eventually("its row says it", func() bool { r, _ := c.leader().members.row(m.id()); return r.Level == fsm.Level })
	}
	leader := c.leader()
	before := leader.group.raft.LastIndex()
	a := last.call("PUT", "/api/v1/queues/mail", map[string]any{"concurrency": 1})
	if p := a.problem(); a.status != 409 || p.Code != job.CodeState || !strings.Contains(p.Message, "needs feature level 2, and the cluster is at level 1") ||
		!strings.Contains(p.Message, last.id()+" (version test, level 1)") || strings.Contains(p.Message, c.members[0].id()+" (") || !strings.Contains(p.Remedy, "carillon cluster remove") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if s := last.status(""); s.Level != 1 {
		t.Errorf("level %d", s.Level)
	}
	for i := before + 1; i <= leader.group.raft.LastIndex(); i++ {
		var e raft.Log
		if err := leader.group.logs.GetLog(i, &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != raft.LogCommand {
			continue
		}
		if cmd, err := fsm.Decode(e.Data); err != nil {
			t.Error(err)
		} else if l, err := fsm.CommandLevel(cmd); err != nil || l > 1 {
			t.Errorf("entry %d is %T of level %d", i, cmd, l)
		}
	}
	leader.create(unclaimedJob("a"))
	if b := leader.stored("a"); !bytes.Contains(b, []byte("at_least_once")) {
		t.Errorf("an old member cannot read %q", b)
	}
	last.stop()
	last.cfg.level = 0
	last.restart()
	for _, m := range c.members {
		m.eventually("status has the level", func() bool { return m.status("?stale=true").Level == fsm.Level })
	}
	m := c.members[0]
	m.eventually("the queue is declared", func() bool {
		return m.call("PUT", "/api/v1/queues/mail", map[string]any{"concurrency": 1}).status/100 == 2
	})
	// From now on what is as usual is not stored; what was before is read as it is, until an edit.
	m.create(unclaimedJob("b"))
	edited := unclaimedJob("a")
	edited["tags"] = map[string]string{"k": "v"}
	if a := m.call("PUT", "/api/v1/jobs/a", edited); a.status != 200 || !strings.Contains(string(a.body), "at_least_once") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, name := range []string{"a", "b"} {
		if b := c.leader().stored(name); bytes.Contains(b, []byte("at_least_once")) {
			t.Errorf("%s is stored as %q", name, b)
		}
	}
	c.sameState()
}

// stored is the last definition of a job that is in the log.
func (m *member) stored(name string) (def []byte) {
	m.t.Helper()
	first, _ := m.group.logs.FirstIndex()
	for i := first; i <= m.group.raft.LastIndex(); i++ {
		var e raft.Log
		if err := m.group.logs.GetLog(i, &e); err != nil {
			m.t.Fatal(err)
		}
		if e.Type != raft.LogCommand {
			continue
		}
		cmd, err := fsm.Decode(e.Data)
		if err != nil {
			m.t.Fatal(err)
		}
		keep := func(b []byte) {
			if d, err := store.DecodeDefinition(b); err != nil || d.Spec.Name == name {
				def = bytes.Clone(b)
			}
		}
		switch c := cmd.(type) {
		case *fsm.Create:
			for _, it := range c.Items {
				keep(it.Def)
			}
		case *fsm.Update:
			keep(c.Def)
		}
	}
	return def
}

func TestFeatureLevels(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	for i, m := range c.members {
		if l := c.leader().group.store.Info().Level; l > fsm.Level {
			t.Fatalf("level %d with %d of 3 upgraded", l, i)
		}
		m.stop()
		m.cfg.level = fsm.Level + 1
		m.restart()
		m.eventually("its row says it", func() bool { r, _ := c.leader().members.row(m.id()); return r.Level == fsm.Level+1 })
	}
	for _, m := range c.members {
		m.eventually("the next level", func() bool { return m.group.store.Info().Level == fsm.Level+1 })
	}
	c.sameState()
	m := c.others(c.leader())[0]
	m.stop()
	m.cfg.level = fsm.Level
	if _, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), fmt.Sprint("feature level ", fsm.Level+1)) || !strings.Contains(err.Error(), m.cfg.DataDir) {
		t.Errorf("%v", err)
	}
	if _, err := Check(m.cfg.DataDir); err == nil || !strings.Contains(err.Error(), "newer carillon") {
		t.Errorf("a check calls sound what it does not know: %v", err)
	}
	m.cfg.level = fsm.Level + 1
	m.restart()
}
