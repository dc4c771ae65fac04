package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/transport"
)

// openAs opens a node that is expected to fail, and returns why.
func (c *cluster) openAs(m *member) error {
	c.t.Helper()
	m.link = &link{ln: m.link.ln}
	m.open(c.t)
	defer func() {
		m.cancel()
		m.done = nil
		m.client.CloseIdleConnections()
	}()
	select {
	case err := <-m.done:
		return err
	case <-time.After(10 * time.Second):
		m.cancel()
		<-m.done
		c.t.Fatal("it was not refused")
		return nil
	}
}

func TestJoinRefusals(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 1, func(c *Config) { c.level = fsm.Level + 1 })
	first := c.members[0]
	first.eventually("the level is committed", func() bool { return first.group.store.Info().Level == fsm.Level+1 })
	two := func(c *Config) { c.level = fsm.Level + 1 }
	at := []string{first.cfg.Listen}

	other := startJoined(t, 1)
	for _, tt := range []struct {
		name string
		m    *member
		want []string
	}{
		{"the id of a living node", c.newMember("n1", at, two),
			[]string{"has a node n1 with another data directory", "is running", "carillon cluster remove n1"}},
		{"an old binary", c.newMember("n2", at), []string{fmt.Sprint("feature level ", fsm.Level+1),
			fmt.Sprint("levels up to ", fsm.Level)}},
		{"an address of another node", c.newMember("n2", at, two, func(c *Config) { c.Advertise = first.cfg.Listen }),
			[]string{"the leader reaches node n1", "--advertise"}},
		{"itself", c.newMember("n2", nil, two, func(c *Config) { c.Bootstrap, c.Join = false, []string{c.Listen} }),
			[]string{"is this node itself", "--bootstrap"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := c.openAs(tt.m)
			for _, w := range tt.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%v, want %q", err, w)
				}
			}
		})
	}
	servers := first.members.Configured()
	rows, err := first.members.Rows()
	if len(servers) != 1 || len(rows) != 1 || err != nil {
		t.Errorf("something changed: %v %v %v", servers, rows, err)
	}

	t.Run("another cluster", func(t *testing.T) {
		// It joined one cluster, got nothing from it yet, and is then pointed at another.
		m := c.newMember("n2", other.members[0:1][0].joinAddr(), two)
		d, err := datadir.Open(m.cfg.DataDir, "n2", "test")
		if err != nil {
			t.Fatal(err)
		}
		d.ClusterID = first.group.store.Info().ClusterID
		if err := d.Claim(); err != nil {
			t.Fatal(err)
		}
		if err := c.openAs(m); err == nil || !strings.Contains(err.Error(), "do not talk to each other") {
			t.Errorf("%v", err)
		}
		m.cfg.Bootstrap, m.cfg.Join = true, nil
		if _, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), "has joined cluster") {
			t.Errorf("bootstrap: %v", err)
		}
		m.cfg.Join = []string{"127.0.0.1:1"}
		if _, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), "both") {
			t.Errorf("both: %v", err)
		}
	})

	t.Run("no node there", func(t *testing.T) {
		m := c.newMember("n2", []string{"127.0.0.1:1", first.cfg.Listen}, two)
		late := c.newMember("n3", []string{"127.0.0.1:1"}, two)
		for _, x := range []*member{m, late} {
			c.members = append(c.members, x)
			x.open(t)
		}
		late.eventually("it says whom it cannot reach", func() bool {
			a, err := late.try("GET", "/readyz", nil)
			return err == nil && a.status == 503 && strings.Contains(string(a.body), "cannot reach http://127.0.0.1:1")
		})
		m.eventually("the other address is enough", func() bool {
			return m.service.Ready() == nil &&
				len(voters(m)) == 2
		})
		if s := ok[wire.NodeInfo](late.testNode, "GET", "/api/v1/node", nil); s.ClusterID != "" || s.NodeID != "n3" {
			t.Errorf("%+v", s)
		}
		late.stop()
	})
	c.sameState()
}

func (m *member) joinAddr() []string { return []string{m.cfg.Listen} }

// A directory that was wiped has forgotten its votes. Raft itself would take it back: AddNonvoter for the id of a voter
// leaves it a voter and only changes its address, and at the old address not even that is needed. It could then vote a
// second time in a term and elect a second leader. So neither the leader nor a follower talks to it, and it does not
// talk to them.
func TestWipedNodeIsRefused(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	lead := c.leader()
	m := c.others(lead)[0]
	kept := m.cfg.DataDir
	m.stop()
	m.cfg.DataDir = t.TempDir()
	m.cfg.Bootstrap, m.cfg.Join = false, []string{lead.cfg.Listen}
	m.link = &link{}
	if err := c.openAs(m); err == nil || !strings.Contains(err.Error(), "another data directory") ||
		!strings.Contains(err.Error(), "carillon cluster remove "+m.id()) {
		t.Errorf("%v", err)
	}
	// Even if it knew the cluster's id, no node would shake hands with it.
	h := transport.Hello{ClusterID: lead.group.store.Info().ClusterID, NodeID: m.id(), Replica: replica.First,
		InstanceID: "wiped", Address: m.cfg.Listen}
	for _, x := range c.others(m) {
		if err := x.members.Check(h); err == nil || !strings.Contains(err.Error(), "another data directory") {
			t.Errorf("%s: %v", x.id(), err)
		}
	}
	m.cfg.DataDir = kept
	m.link = &link{}
	m.open(t)
	c.awaitVoters(3)
	c.sameState()
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(to, datadir.LockFile))
}

// Two copies of one directory vote twice in one term. The second to come is refused by everybody, at its own address.
func TestClonedDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	m := c.others(c.leader())[0]
	m.stop()
	dir := filepath.Join(t.TempDir(), "copy")
	copyDir(t, m.cfg.DataDir, dir)
	m.restart()
	c.awaitVoters(3)

	clone := c.newMember(m.id(), c.leader().joinAddr())
	clone.cfg.DataDir = dir
	clone.open(t)
	defer clone.stop()
	clone.eventually("it says why", func() bool {
		err := clone.service.Ready()
		return err != nil && strings.Contains(err.Error(), "copied")
	})
	for _, x := range c.members {
		if err := x.members.Check(clone.members.Hello()); err == nil || !strings.Contains(err.Error(), "copied") {
			t.Errorf("%s: %v", x.id(), err)
		}
	}
	a := c.leader().answered("POST", membership.AnnouncePath, clone.members.Request())
	if p := a.problem(); p.Code != job.CodeState || !strings.Contains(p.Message, "is running at "+m.cfg.Listen) {
		t.Errorf("the leader: %d %s", a.status, a.body)
	}
	for _, x := range c.others(m) {
		if r, _ := x.members.Row(m.id()); r.Address != m.cfg.Listen {
			t.Errorf("the copy moved its original to %s", r.Address)
		}
	}
	m.eventually("the original is well", func() bool { return m.service.Ready() == nil })
}

// An original that stands still does not answer, and is not gone: its copy is not taken in, and when it goes on it is the
// member that it was.
func TestCopyOfAFrozenNodeIsRefused(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	m := c.others(c.leader())[0]
	m.stop()
	dir := filepath.Join(t.TempDir(), "copy")
	copyDir(t, m.cfg.DataDir, dir)
	m.restart()
	c.awaitVoters(3)

	m.link.paused.Store(true)
	clone := c.newMember(m.id(), c.leader().joinAddr())
	clone.cfg.DataDir = dir
	clone.open(t)
	defer clone.kill()
	a := c.leader().answered("POST", membership.AnnouncePath, clone.members.Request())
	if p := a.problem(); p.Code != job.CodeState || !strings.Contains(p.Message, "accepts connections but does not answer") {
		t.Errorf("the copy of a node that stands still: %d %s", a.status, a.body)
	}
	for _, x := range c.others(m) {
		if r, _ := x.members.Row(m.id()); r.Address != m.cfg.Listen {
			t.Errorf("the copy moved its original to %s", r.Address)
		}
	}
	m.link.paused.Store(false)
	m.eventually("the original is well", func() bool { return m.service.Ready() == nil })
	clone.eventually("the copy is told what it is", func() bool {
		err := clone.service.Ready()
		return err != nil && strings.Contains(err.Error(), "copied")
	})
}

func TestHandshakeRules(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 2)
	m, peer := c.members[0], c.members[1]
	good := peer.members.Hello()
	if err := m.members.Check(good); err != nil {
		t.Fatal(err)
	}
	row, _ := m.members.Row(peer.id())
	for _, tt := range []struct {
		name   string
		change func(*transport.Hello)
		want   string
	}{
		{"another cluster", func(h *transport.Hello) { h.ClusterID = "other" }, "do not talk"},
		{"no cluster", func(h *transport.Hello) { h.ClusterID = "" }, "do not talk"},
		{"an epoch after", func(h *transport.Hello) { h.NodeID, h.Epoch = "n9", h.Epoch+1 }, "node n1 was not part"},
		{"another group", func(h *transport.Hello) { h.Group = 3 }, "group 3"},
		{"a group begun twice", func(h *transport.Hello) { h.GroupID = "x" }, "group 0"},
		{"another replica", func(h *transport.Hello) { h.Replica++ }, "replica 2"},
		{"another directory", func(h *transport.Hello) { h.InstanceID = "x" }, "carillon cluster remove n2"},
		{"another address", func(h *transport.Hello) { h.Address = "h:1" }, "h:1"},
		{"this node's own id", func(h *transport.Hello) { h.NodeID = "n1" }, "acts as node n1"},
		{"a node that this one has not heard of yet", func(h *transport.Hello) { h.NodeID = "n9" }, ""},
		{"a later directory of the same id", func(h *transport.Hello) { h.InstanceID, h.Index = "x", row.Index+1 }, ""},
		{"a later address", func(h *transport.Hello) { h.Address, h.Index = "h:1", row.Index+1 }, ""},
	} {
		h := good
		tt.change(&h)
		err := m.members.Check(h)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if id := m.members.Expect(peer.cfg.Listen); id != "n2" {
		t.Errorf("at %s should be %q", peer.cfg.Listen, id)
	}
	if id := m.members.Expect("h:1"); id != "" {
		t.Errorf("no node is at h:1, not %q", id)
	}
}

// A connection is for one group, and comes from a replica that the group has: what Raft says for another group, or what a
// replica says that was given up and has forgotten its votes, is not let in.
func TestHandshakeOfGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups = 2
	c := startGroups(t, groups)
	m, peer := c.members[0], c.members[1]
	for number := uint32(1); number <= groups; number++ {
		in, of := m.hostedGroup(number), peer.hostedGroup(number)
		other := peer.hostedGroup(groups + 1 - number).members.Hello()
		good := of.members.Hello()
		if err := in.members.Check(good); err != nil {
			t.Fatal(err)
		}
		row, _, err := m.members.GroupRow(number)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(what string, change func(*transport.Hello), want string) {
			t.Helper()
			h := good
			change(&h)
			if err := in.members.Check(h); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("group %d, %s: %v, want %q", number, what, err, want)
			}
		}
		refused("another group", func(h *transport.Hello) { *h = other }, fmt.Sprintf("calls for group %d", other.Group))
		refused("another number", func(h *transport.Hello) { h.Group = other.Group }, "calls for group")
		refused("a group begun twice", func(h *transport.Hello) { h.GroupID = other.GroupID }, "calls for group")
		refused("the control group", func(h *transport.Hello) { *h = peer.members.Hello() }, "calls for group 0")
		refused("a replica of another node", func(h *transport.Hello) { h.Replica = in.members.Hello().Replica },
			"moved or removed")
		refused("no replica", func(h *transport.Hello) { h.Replica = 0 }, "moved or removed")
		good.Replica = row.Last + 1
		if err := in.members.Check(good); err != nil {
			t.Errorf("group %d: a replica that this node has not heard of yet: %v", number, err)
		}
	}
}
