package node

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/node/datadir"
)

// Each rule by which a data directory is refused, and beside it what happens without: the same scenario with the rules
// switched off ends in a job that was acknowledged and is gone, in two leaders, or in nodes whose states differ. Should
// such a half begin to fail, because raft or something else prevents the harm by now, the rule may be worth another
// look.

func unclaimedJob(name string) map[string]any {
	return map[string]any{"name": name, "type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}}
}

// both runs a scenario with the rules and without.
func both(t *testing.T, scene func(t *testing.T, rules bool, change func(*Config))) {
	t.Parallel()
	for name, rules := range map[string]bool{"with the rule": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene(t, rules, func(c *Config) {
				c.Machine.Trusting = !rules
				c.Executors = nil
				c.Raft.Heartbeat = 600 * time.Millisecond // two of three must find a majority also on a busy machine
				c.Fatal = func(err error) { t.Logf("fatal: %v", err) }
			})
		})
	}
}

// has says whether a node's own state has a job.
func (m *member) has(name string) bool {
	a, err := m.try("GET", "/api/v1/jobs/"+name+"?stale=true", nil)
	return err == nil && a.status == 200
}

func (m *member) leads() bool { return m.tracker.Epoch() != nil }

// A job is on two of three nodes, which is a majority. One of them dies, the other is wiped and comes back under its
// id. It has forgotten the job, and votes for the third, which never had it.
func TestWhyWipedNodesAreRefused(t *testing.T) {
	realTime(t)
	both(t, func(t *testing.T, rules bool, change func(*Config)) {
		c := startJoined(t, 3, change)
		lead := c.leader()
		wiped, behind := c.others(lead)[0], c.others(lead)[1]
		behind.link.noRaft.Store(true)
		lead.create(unclaimedJob("acknowledged"))
		wiped.eventually("it has the job", func() bool { return wiped.has("acknowledged") })
		lead.crash()
		lead.stop()
		wiped.crash()
		wiped.stop()
		behind.link.noRaft.Store(false)

		home := wiped.dir.ClusterIdentity
		wiped.cfg.DataDir, wiped.cfg.Bootstrap, wiped.cfg.Join = t.TempDir(), false, nil
		d, err := datadir.Open(wiped.cfg.DataDir, wiped.id(), "test")
		if err != nil {
			t.Fatal(err)
		}
		d.ClusterIdentity = home // it need not even ask to join: it knows where it belongs
		d.ClusterID = behind.group.store.Info().ClusterID
		if err := d.Claim(); err != nil {
			t.Fatal(err)
		}
		wiped.link = &link{}
		wiped.open(t)
		if rules {
			wiped.eventually("it says why", func() bool {
				err := wiped.members.Ready()
				return err != nil && strings.Contains(err.Error(), "another data directory") &&
					strings.Contains(err.Error(), "carillon cluster remove "+wiped.id())
			})
			if behind.leads() {
				t.Error("a node that lacks an acknowledged job leads")
			}
			lead.link = &link{}
			lead.open(t)
			behind.eventually("the job is there again", func() bool { return behind.has("acknowledged") })
			return
		}
		behind.eventually("it leads", behind.leads)
		behind.create(unclaimedJob("another"))
		if a := behind.call("GET", "/api/v1/jobs/acknowledged", nil); a.status != 404 {
			t.Errorf("the acknowledged job is not lost: %d %s", a.status, a.body)
		}
	})
}

// A copy of a node's directory runs beside it. The original votes for one of the two others, the copy for the other
// one: two leaders, each with a majority of two.
func TestWhyClonedDirectoriesAreRefused(t *testing.T) {
	realTime(t)
	both(t, func(t *testing.T, rules bool, change func(*Config)) {
		dial := map[string]string{} // where one of the nodes finds another
		c := &cluster{t: t}
		first := c.newMember("n1", nil, change)
		c.members = []*member{first, c.newMember("n2", first.joinAddr(), change),
			c.newMember("n3", first.joinAddr(), change)}
		t.Cleanup(c.killAll)
		for _, m := range c.members {
			m.open(t)
		}
		c.awaitVoters(3)
		c.stopAll()

		clone := c.newMember("n2", first.joinAddr(), change)
		clone.cfg.DataDir = filepath.Join(t.TempDir(), "copy")
		copyDir(t, c.members[1].cfg.DataDir, clone.cfg.DataDir)
		dial["n2"] = clone.cfg.Listen
		a, b, x := c.members[0], c.members[1], c.members[2]
		x.cfg.Machine.Where = func(id string) string { return dial[id] }
		// n1 and n2 on one side, n3 and the copy of n2 on the other, from the beginning: a copy that reaches n1 is told
		// what it is, and would lead its side without being ready, or lead n1.
		a.link, b.link = &link{cuts: map[string]bool{"n3": true}}, &link{cuts: map[string]bool{"n3": true}}
		x.link = &link{cuts: map[string]bool{"n1": true}} // its n2 is the copy
		clone.link.cuts = map[string]bool{"n1": true}
		// Nor by HTTP, which a node asks for the other clocks, and for its place when raft has named no leader for some
		// seconds. On the side of n3 the copy is n2.
		to := func(where map[*member]string) func(context.Context, string, string) (net.Conn, error) {
			return func(ctx context.Context, network, addr string) (net.Conn, error) {
				for m, there := range where {
					if addr != m.cfg.Listen {
						continue
					}
					if addr = there; addr == "" {
						return nil, errCut
					}
					break
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		}
		if !rules {
			for _, m := range []*member{a, b} {
				m.cfg.Machine.Dial = to(map[*member]string{x: "", clone: ""})
			}
			x.cfg.Machine.Dial = to(map[*member]string{a: "", b: clone.cfg.Listen})
			clone.cfg.Machine.Dial = to(map[*member]string{a: "", b: ""})
		}
		for _, m := range c.members {
			m.open(t)
		}
		clone.open(t)
		defer clone.stop()

		side := func(ms ...*member) func() bool {
			return func() bool {
				for _, m := range ms {
					if m.leads() && m.service.Ready() == nil {
						return true
					}
				}
				return false
			}
		}
		a.eventually("one side has a leader", side(a, b))
		if rules {
			clone.eventually("the copy says why", func() bool {
				err := clone.members.Ready()
				return err != nil && strings.Contains(err.Error(), "copied")
			})
			if side(x, clone)() {
				t.Error("the other side has one as well")
			}
			return
		}
		x.eventually("so has the other", side(x, clone))
		a.create(unclaimedJob("here"))
		x.create(unclaimedJob("there"))
		if x.has("here") || a.has("there") {
			t.Error("they agree")
		}
	})
}

// The log of a node is put back from an earlier copy, and its state is not. The log has forgotten a job that the state
// has, and that was acknowledged with this node's part; the node votes for one that never had it, and takes what comes
// then for what it has.
func TestWhyOldLogsAreRefused(t *testing.T) {
	both(t, func(t *testing.T, rules bool, change func(*Config)) {
		c := startJoined(t, 3, change)
		lead := c.leader()
		c.sameState()
		old, behind := c.others(lead)[0], c.others(lead)[1]
		old.stop()
		raftDB := filepath.Join(old.cfg.DataDir, datadir.LogFile)
		kept, err := os.ReadFile(raftDB)
		if err != nil {
			t.Fatal(err)
		}
		old.restart()
		behind.link.noRaft.Store(true)
		c.leader().create(unclaimedJob("acknowledged"))
		old.eventually("it has the job", func() bool { return old.has("acknowledged") })
		for _, m := range []*member{lead, old} {
			m.crash()
			m.stop()
		}
		behind.link.noRaft.Store(false)
		if err := os.WriteFile(raftDB, kept, 0o600); err != nil {
			t.Fatal(err)
		}
		old.link = &link{}
		if rules {
			was := contents(t, old.cfg.DataDir)
			if _, err := Open(old.cfg); err == nil || !strings.Contains(err.Error(), "is inconsistent") ||
				!strings.Contains(err.Error(), "let the node rejoin") {
				t.Errorf("%v", err)
			}
			path := filepath.Join(old.cfg.DataDir, datadir.NodeFile)
			if was[path] == "" || was[path] != contents(t, old.cfg.DataDir)[path] {
				t.Error("the refusal changed something")
			}
			return
		}
		old.open(t)
		old.eventually("they have a leader", func() bool { return old.leads() || behind.leads() })
		for _, m := range []*member{old, behind} {
			if m.leads() {
				m.create(unclaimedJob("after"))
			}
		}
		old.eventually("one of them has gone on", func() bool { return old.has("after") || behind.has("after") })
		if !old.has("acknowledged") || behind.has("acknowledged") {
			t.Errorf("the states do not differ: %v %v", old.has("acknowledged"), behind.has("acknowledged"))
		}
	})
}

// One node is begun again without the others, and acknowledges a job. The others come back as they were. They are a
// majority of what they know, so without epochs they would take the recovered node back as a follower, and what it
// acknowledged would be gone.
func TestWhyOtherEpochsAreRefused(t *testing.T) {
	realTime(t)
	both(t, func(t *testing.T, rules bool, change func(*Config)) {
		c := startJoined(t, 3, change)
		c.sameState()
		lead := c.leader()
		c.stopAll()
		m := c.others(lead)[0]
		if _, err := datadir.Recover(m.cfg.DataDir, map[string]string{m.id(): m.cfg.Listen}, quiet); err != nil {
			t.Fatal(err)
		}
		m.link = &link{}
		m.open(t)
		m.eventually("it leads", m.leads)
		m.create(unclaimedJob("acknowledged"))
		for _, x := range c.others(m) {
			x.link = &link{}
			x.open(t)
		}
		others := c.others(m)
		if rules {
			for _, x := range others {
				x.outlived(m.id())
				if err := m.members.Check(x.members.Hello()); err == nil ||
					!strings.Contains(err.Error(), "empty its data directory") {
					t.Errorf("%v", err)
				}
			}
			m.create(unclaimedJob("more"))
			if a := m.call("GET", "/api/v1/jobs/acknowledged", nil); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
			return
		}
		others[0].eventually("the others have a leader", func() bool { return others[0].leads() || others[1].leads() })
		m.eventually("the recovered node follows one that does not know what it acknowledged", func() bool {
			p, other := m.tracker.Elsewhere()
			if m.leads() || !other {
				return false
			}
			for _, x := range others {
				if x.id() == p.ID && x.leads() {
					return !x.has("acknowledged")
				}
			}
			return false
		})
	})
}
