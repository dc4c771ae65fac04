package node

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/proof/port"
)

func (c *cluster) stopAll() {
	var wg sync.WaitGroup
	for _, m := range c.members {
		wg.Go(m.stop)
	}
	wg.Wait()
}

// move gives a stopped node another port.
func (m *member) move(t *testing.T) {
	t.Helper()
	ln := port.Listen(t)
	m.cfg.Listen, m.link = ln.Addr().String(), &link{ln: ln}
}

var quiet = slog.New(slog.DiscardHandler)

func TestRecoverMovedMajority(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	c.leader().create(map[string]any{"name": "kept", "type": "queue", "schedule": "@manual",
		"payload": map[string]any{"queue": "q"}})
	c.sameState()
	epoch := c.leader().group.store.Info().Epoch
	c.stopAll()
	peers := map[string]string{}
	for _, m := range c.members {
		m.move(t)
		peers[m.id()] = m.cfg.Listen
	}
	for _, m := range c.members {
		if r, err := datadir.Recover(m.cfg.DataDir, peers, quiet); err != nil || r.Alone || len(r.Lost) > 0 ||
			r.NodeID != m.id() {
			t.Fatalf("%+v %v", r, err)
		}
		m.open(t)
	}
	c.awaitVoters(3)
	for _, m := range c.members {
		m.eventually("everybody's address is known", func() bool {
			servers := m.members.Servers()
			for id, addr := range peers {
				r, _ := m.members.Row(id)
				if s, _ := membership.FindServer(servers, id); r.Address != addr || string(s.Address) != addr ||
					m.members.Override(id) != "" {
					return false
				}
			}
			return true
		})
		if m.group.store.Info().Epoch != epoch {
			t.Error("the epoch was raised")
		}
	}
	c.leader().get("kept")
	c.sameState()
	// From here on the log knows the addresses, and the nodes find each other without help.
	c.stopAll()
	for _, m := range c.members {
		m.link = &link{}
		m.open(t)
	}
	c.awaitVoters(3)
	c.sameState()
}

func TestRecoverAlone(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	tg := newTarget(t)
	before := c.leader().create(tg.spec("kept", "@every 1s"))
	c.fires("kept")
	c.stopAll()
	m, lost := c.members[1], []*member{c.members[0], c.members[2]}
	fence := applied(t, m.cfg.DataDir).Fence

	for name, peers := range map[string]map[string]string{
		"two of three": {"n2": "h:1", "n3": "h:2"},
		"another node": {"n1": "h:1"},
		"no node":      {},
		"bad address":  {"n2": "here"},
	} {
		was := contents(t, m.cfg.DataDir)
		if _, err := datadir.Recover(m.cfg.DataDir, peers, quiet); err == nil {
			t.Errorf("%s was accepted", name)
		}
		for path, data := range contents(t, m.cfg.DataDir) {
			if was[path] != data && strings.HasSuffix(path, datadir.NodeFile) {
				t.Errorf("%s changed %s", name, path)
			}
		}
	}
	if _, err := datadir.Recover(t.TempDir(), map[string]string{"n2": "h:1"}, quiet); err == nil {
		t.Error("an empty directory was recovered")
	}

	r, err := datadir.Recover(m.cfg.DataDir, map[string]string{"n2": m.cfg.Listen}, quiet)
	if err != nil || !r.Alone || !slices.Equal(r.Lost, []string{"n1", "n3"}) || r.Epoch != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	if res, err := datadir.Check(m.cfg.DataDir); err != nil || len(res.Problems) > 0 {
		t.Fatalf("%+v %v", res, err)
	}
	c.members = []*member{m}
	m.link = &link{}
	m.open(t)
	c.awaitVoters(1)
	if j := m.get("kept"); j.ID != before.ID {
		t.Errorf("%+v", j)
	}
	c.fires("kept")
	// Nothing that is given out now was given out by those who are lost.
	if j := m.create(tg.spec("new", "@manual")); uint64(j.ID) <= 1<<datadir.EpochShift ||
		m.group.store.Counters().Fence <= max(fence, 1<<datadir.EpochShift) {
		t.Errorf("job %d, fence %d", j.ID, m.group.store.Counters().Fence)
	}

	// The lost ones come back as they were, have a majority among themselves, and must not go on with it in this
	// cluster's name: they are refused here, and say why.
	old := lost[1]
	old.link = &link{}
	old.open(t)
	old.eventually("it says why it is refused", func() bool {
		err := old.service.Ready()
		return err != nil && strings.Contains(err.Error(), "epoch")
	})
	if err := m.members.Check(old.members.Hello()); err == nil ||
		!strings.Contains(err.Error(), "empty its data directory") {
		t.Errorf("%v", err)
	}
	old.stop()

	// With empty directories they join again, under their old ids.
	for _, x := range lost {
		x.cfg.DataDir, x.cfg.Bootstrap, x.cfg.Join = t.TempDir(), false, m.joinAddr()
		x.link = &link{}
		x.open(t)
		c.members = append(c.members, x)
	}
	c.awaitVoters(3)
	if s := ok[wire.Status](lost[0].testNode, "GET", "/api/v1/status?stale=true", nil); s.Jobs != 2 {
		t.Errorf("%+v", s)
	}
	if lost[0].group.store.Info().Epoch != 1 || lost[0].count("kept", job.RunSucceeded) == 0 {
		t.Error("the state is another")
	}
	c.sameState()
}

func TestRecoveryCutOff(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 1)
	m := c.members[0]
	m.stop()
	d, err := datadir.Open(m.cfg.DataDir, "n1", "test")
	if err != nil {
		t.Fatal(err)
	}
	d.Recovering = true
	if err := d.Save(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), "recover` again") {
		t.Errorf("%v", err)
	}
	if _, err := datadir.Recover(m.cfg.DataDir, map[string]string{"n1": m.cfg.Listen}, quiet); err != nil {
		t.Fatal(err)
	}
	m.link = &link{}
	m.open(t)
	c.awaitVoters(1)
}
