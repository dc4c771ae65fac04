package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/propose"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// everyCommand is an empty command of each type.
func everyCommand(t *testing.T) (all []fsm.Command) {
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

// No command gets into the log above the level that it needs, whichever it is.
func TestEveryCommandWaitsForItsLevel(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	e := n.tracker.Epoch()
	refusal := errors.New("the level is not committed")
	for _, cmd := range everyCommand(t) {
		level, err := fsm.CommandLevel(cmd)
		if err != nil {
			t.Error(err)
			continue
		}
		p := propose.New(propose.Options{Raft: n.group.raft, Timeout: n.cfg.Raft.ApplyTimeout, Flight: n.group.flight,
			Allows: func(l int) error {
				if l != level {
					t.Errorf("%T: asked for level %d", cmd, l)
				}
				return refusal
			}})
		if _, err := p.Propose(cmd).Wait(); !errors.Is(err, refusal) || !errors.Is(err, scheduler.ErrNotApplied) {
			t.Errorf("%T: %v", cmd, err)
		}
		if err := n.members.Allows(level); err != nil {
			t.Errorf("%T: a new cluster does not allow it: %v", cmd, err)
		}
	}
	if n.group.store.Info().Level != fsm.Level || n.tracker.Epoch() != e {
		t.Error("the leadership changed")
	}
}

// While a member is old, what it would not understand is refused with who that is; everything else goes on. When it is
// replaced, the level is raised, and status says so.
func TestOldMemberHoldsTheLevel(t *testing.T) {
	realTime(t)
	t.Parallel()
	next := fsm.Level + 1
	c := startJoined(t, 3, func(c *Config) {
		c.needs = func(cmd fsm.Command) (int, error) { // queues came with the next level
			if _, ok := cmd.(*fsm.PutQueue); ok {
				return next, nil
			}
			return fsm.CommandLevel(cmd)
		}
	})
	last := c.members[2]
	for _, m := range c.members[:2] {
		m.stop()
		m.cfg.level = next
		m.restart()
		m.eventually("its row says it", func() bool { r, _ := c.leader().members.Row(m.id()); return r.Level == next })
	}
	leader := c.leader()
	before := leader.group.raft.LastIndex()
	a := last.call("PUT", "/api/v1/queues/mail", map[string]any{"concurrency": 1})
	if p := a.problem(); a.status != 409 || p.Code != job.CodeState ||
		!strings.Contains(p.Message, fmt.Sprintf("needs feature level %d, and the cluster stays at level %d", next,
			fsm.Level)) ||
		!strings.Contains(p.Message, fmt.Sprintf("%s (version test, level %d)", last.id(), fsm.Level)) ||
		strings.Contains(p.Message, c.members[0].id()+" (") ||
		!strings.Contains(p.Remedy, "carillon cluster remove") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if s := last.status(""); s.Level != fsm.Level {
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
		} else if l, err := leader.cfg.needs(cmd); err != nil || l > fsm.Level {
			t.Errorf("entry %d is %T of level %d", i, cmd, l)
		}
	}
	leader.create(unclaimedJob("a"))
	last.stop()
	last.cfg.level = next
	last.restart()
	for _, m := range c.members {
		m.eventually("status has the level", func() bool { return m.status("?stale=true").Level == next })
	}
	m := c.members[0]
	m.eventually("the queue is declared", func() bool {
		return m.call("PUT", "/api/v1/queues/mail", map[string]any{"concurrency": 1}).status/100 == 2
	})
	c.sameState()
}

func TestFeatureLevels(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	for i, m := range c.members {
		if l := c.leader().group.store.Info().Level; l > fsm.Level {
			t.Fatalf("level %d with %d of 3 upgraded", l, i)
		}
		m.stop()
		m.cfg.level = fsm.Level + 1
		m.restart()
		m.eventually("its row says it",
			func() bool { r, _ := c.leader().members.Row(m.id()); return r.Level == fsm.Level+1 })
	}
	for _, m := range c.members {
		m.eventually("the next level", func() bool { return m.group.store.Info().Level == fsm.Level+1 })
	}
	c.sameState()
	m := c.others(c.leader())[0]
	m.stop()
	m.cfg.level = fsm.Level
	if _, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), fmt.Sprint("feature level ", fsm.Level+1)) ||
		!strings.Contains(err.Error(), m.cfg.DataDir) {
		t.Errorf("%v", err)
	}
	if _, err := datadir.Check(m.cfg.DataDir); err == nil || !strings.Contains(err.Error(), "newer carillon") {
		t.Errorf("a check calls sound what it does not know: %v", err)
	}
	m.cfg.level = fsm.Level + 1
	m.restart()
}
