package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// newMember is a node that is configured and not opened. It joins whom it is told to, or begins a cluster.
func (c *cluster) newMember(id string, join []string, change ...func(*Config)) *member {
	c.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := testConfig(c.t, c.t.TempDir())
	cfg.NodeID, cfg.Listen, cfg.Bootstrap, cfg.Join = id, ln.Addr().String(), len(join) == 0, join
	cfg.Raft.Heartbeat = 300 * time.Millisecond // shorter ones lose leaderships for no reason on a machine that is busy with other things
	cfg.Members = MembersConfig{Interval: 40 * time.Millisecond, StableFor: 100 * time.Millisecond}
	cfg.Logger = slog.New(partFilter{cfg.Logger.With("node", id).Handler()})
	for _, f := range change {
		f(&cfg)
	}
	return &member{cfg: cfg, link: &link{ln: ln}}
}

// startJoined begins a cluster with one node and lets the others join it, all at the same time.
func startJoined(t *testing.T, n int, change ...func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	first := c.newMember("n1", nil, change...)
	c.members = append(c.members, first)
	for i := 1; i < n; i++ {
		c.members = append(c.members, c.newMember(fmt.Sprintf("n%d", i+1), []string{first.cfg.Listen}, change...))
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, m := range c.members {
			if m.testNode != nil {
				wg.Go(m.stop)
			}
		}
		wg.Wait()
	})
	for _, m := range c.members {
		m.open(t)
	}
	c.awaitVoters(n)
	return c
}

// awaitVoters waits until every living node has exactly n voters in its configuration and is ready.
func (c *cluster) awaitVoters(n int) {
	c.t.Helper()
	for _, m := range c.members {
		if m.link.dead.Load() || m.done == nil {
			continue
		}
		m.eventually(fmt.Sprintf("%s sees %d voters", m.id(), n), func() bool { return len(voters(m)) == n && m.backend.Ready() == nil })
	}
}

func voters(m *member) (ids []string) {
	servers := m.members.configured()
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	slices.Sort(ids)
	return ids
}

// sameState waits until all living nodes have the same state: every scenario ends on it.
func (c *cluster) sameState() {
	c.t.Helper()
	lead := c.leader()
	lead.eventually("all have the same state", func() bool {
		var first string
		for _, m := range c.members {
			if m.link.dead.Load() || m.done == nil || m.members.isRemoved() {
				continue
			}
			d, err := m.group.store.Digest()
			if err != nil {
				c.t.Fatal(err)
			}
			if first == "" {
				first = d
			}
			if d != first {
				return false
			}
		}
		return true
	})
	for _, m := range c.members {
		if m.link.dead.Load() || m.done == nil {
			continue
		}
		if problems, _, err := m.group.store.Check(); err != nil || len(problems) > 0 {
			c.t.Errorf("%s: %q %v", m.id(), problems, err)
		}
	}
}

func (c *cluster) op(verb, id string) apiAnswer {
	c.t.Helper()
	return c.leader().call("POST", "/api/v1/cluster:"+verb, client.NodeRequest{NodeID: id})
}

func (c *cluster) mustOp(verb, id string) {
	c.t.Helper()
	if a := c.op(verb, id); a.status != 204 {
		c.t.Fatalf("%s %s: %d %s", verb, id, a.status, a.body)
	}
}

func (c *cluster) refused(verb, id string, code job.Code, want string) {
	c.t.Helper()
	before := c.leader().members.configured()
	if p := c.op(verb, id).problem(); p.Code != code || !strings.Contains(p.Message+p.Remedy, want) {
		c.t.Errorf("%s %s: %+v, want %s with %q", verb, id, p, code, want)
	}
	if after := c.leader().members.configured(); !slices.Equal(before, after) {
		c.t.Errorf("%s %s was refused and changed %v to %v", verb, id, before, after)
	}
}

// fires waits until a job has run again.
func (c *cluster) fires(ref string) {
	c.t.Helper()
	lead := c.leader()
	was := lead.count(ref, job.RunSucceeded)
	lead.eventually(ref+" runs again", func() bool {
		n := c.leader()
		a, err := n.try("GET", "/api/v1/jobs/"+ref+"/runs?limit=50", nil)
		if err != nil || a.status != 200 {
			return false
		}
		var p client.RunPage
		if json.Unmarshal(a.body, &p) != nil {
			return false
		}
		got := 0
		for _, r := range p.Runs {
			if r.Status == job.RunSucceeded {
				got++
			}
		}
		return got > was
	})
}

func TestThreeNodesJoinAndFailOver(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	tg := newTarget(t)
	c.leader().create(tg.spec("a", "@every 1s"))
	c.fires("a")
	c.sameState()
	info := c.leader().group.store.Info()
	for _, m := range c.members {
		if r, ok := m.members.row(m.id()); !ok || r.Instance != m.dir.Instance || r.Address != m.cfg.Listen || r.Version != "test" || r.Level != fsm.Level || r.Slots != 32 || r.JoinedAt == 0 {
			t.Errorf("%s: %+v", m.id(), r)
		}
		if got := m.group.store.Info(); got.ClusterID != info.ClusterID {
			t.Errorf("%s is in cluster %s", m.id(), got.ClusterID)
		}
	}
	s := ok[client.Status](c.leader().testNode, "GET", "/api/v1/status", nil)
	if len(s.Members) != 3 || s.Members[1].Instance == "" || s.Members[1].JoinedAt == 0 {
		t.Errorf("%+v", s.Members)
	}

	old := c.leader()
	old.crash()
	old.stop()
	if now := c.leader(); now == old {
		t.Fatal("a dead node leads")
	}
	c.fires("a")
	old.restart()
	c.awaitVoters(3)
	c.sameState()

	// All at once, and back in another order. --bootstrap and --join are ignored by now.
	var wg sync.WaitGroup
	for _, m := range c.members {
		wg.Go(m.stop)
	}
	wg.Wait()
	slices.Reverse(c.members)
	for _, m := range c.members {
		m.link = &link{}
		m.open(t)
	}
	c.awaitVoters(3)
	c.fires("a")
	c.sameState()
}

func TestMembershipOperations(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	c.refused("remove", "nope", job.CodeNotFound, "carillon cluster members")
	c.refused("promote", "nope", job.CodeNotFound, "")
	c.refused("transfer", "nope", job.CodeNotFound, "")

	// Transfer, to somebody and to whoever.
	to := c.others(c.leader())[0]
	c.mustOp("transfer", to.id())
	to.eventually("it leads", func() bool { return c.leader() == to })
	c.mustOp("transfer", to.id()) // it leads already
	c.mustOp("transfer", "")
	to.eventually("somebody else leads", func() bool { return c.leader() != to })
	// Through a follower, which sends a request again when its leader is replaced: it must not be handed back.
	was := c.leader()
	for _, m := range c.others(was) {
		if a := m.call("POST", "/api/v1/cluster:transfer", nil); a.status != 204 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		m.eventually("somebody else leads", func() bool { return was.group.lead.current() == nil }) // its epoch takes a moment to end
		if now := c.leader(); now == was {
			t.Errorf("%s leads again", now.id())
		}
		was = c.leader()
	}

	// Demoted nodes stay what they are, also under another leader, until they are promoted.
	low := c.others(c.leader())[0]
	c.mustOp("demote", low.id())
	c.mustOp("demote", low.id())
	c.refused("transfer", low.id(), job.CodeState, "promote")
	c.mustOp("transfer", "")
	c.awaitVoters(2)
	lead := c.leader()
	lead.eventually("its address is settled", func() bool { return lead.backend.Ready() == nil })
	for end := time.Now().Add(10 * lead.cfg.Members.Interval); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if slices.Contains(voters(lead), low.id()) {
			t.Fatal("a demoted node was promoted again")
		}
	}
	c.awaitVoters(2)
	c.mustOp("promote", low.id())
	c.mustOp("promote", low.id())
	c.awaitVoters(3)

	// The leader is demoted and removed by its successor.
	lead = c.leader()
	c.mustOp("demote", lead.id())
	if now := c.leader(); now == lead {
		t.Error("a node without a vote leads")
	}
	c.awaitVoters(2)
	c.mustOp("promote", lead.id())
	c.awaitVoters(3)
	lead = c.leader()
	c.mustOp("remove", lead.id())
	lead.eventually("it knows that it was removed", func() bool {
		err := lead.backend.Ready()
		return err != nil && strings.Contains(err.Error(), "removed") && strings.Contains(err.Error(), "--join")
	})
	if s := ok[client.Status](lead.testNode, "GET", "/api/v1/status?stale=true", nil); s.Ready || !strings.Contains(s.NotReady, "removed") {
		t.Errorf("%+v", s)
	}
	rest := c.others(lead)
	for _, m := range rest {
		m.eventually("two are left", func() bool { return len(voters(m)) == 2 })
	}
	// It may hear of the others' terms, but a higher one could only come from its own campaign.
	time.Sleep(5 * lead.cfg.Raft.Heartbeat)
	if its, theirs := lead.group.raft.CurrentTerm(), c.leader().group.raft.CurrentTerm(); its > theirs {
		t.Errorf("the removed node campaigns: it is in term %d and the others in %d", its, theirs)
	}
	c.mustOp("remove", lead.id()) // done before

	// The last voter cannot go.
	other := c.others(c.leader())[0]
	if other == lead {
		other = c.others(c.leader())[1]
	}
	c.mustOp("remove", other.id())
	last := c.leader()
	c.refused("remove", last.id(), job.CodeState, "last voter")
	c.refused("demote", last.id(), job.CodeState, "last voter")
	c.refused("transfer", "", job.CodeState, "nobody")
	last.create(map[string]any{"type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}})
}

// What a node has in hand when it is removed is finished and recorded as what it was, and it gets nothing new.
func TestRemovedNodeHandsInItsResults(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3, func(cfg *Config) { cfg.Tags = map[string]string{"at": cfg.NodeID} })
	c.awaitWorkers(3)
	r := newRecorder(t)
	r.delay.Store(int64(1500 * time.Millisecond))
	lead := c.leader()
	rest := c.others(lead)
	for _, leaver := range []*member{rest[0], lead} { // a follower, and then a leader, which hands over first
		stay := rest[1]
		had := len(r.all())
		var names []string
		for _, delivery := range []string{"at_least_once", "at_most_once"} {
			spec := r.spec(leaver.id()+"-"+delivery, "@manual")
			spec["delivery"], spec["workers"] = delivery, map[string]any{"at": leaver.id()}
			names = append(names, spec["name"].(string))
			stay.create(spec)
			ok[job.Run](stay.testNode, "POST", "/api/v1/jobs/"+spec["name"].(string)+":run", nil)
		}
		stay.eventually("both run", func() bool { return len(r.all()) == had+2 })
		c.mustOp("remove", leaver.id())
		for _, name := range names {
			stay.eventually(name+" has ended", func() bool { return stay.get(name).OpenRuns == 0 })
			if runs := stay.runs(name); len(runs) != 1 || runs[0].Status != job.RunSucceeded || runs[0].Attempt != 1 || runs[0].Worker != leaver.id() {
				t.Errorf("%s: %+v", name, runs)
			}
		}
		stay.eventually("its session ends", func() bool {
			e := c.leader().group.lead.current()
			return e != nil && !slices.ContainsFunc(e.sched.Workers(), func(w scheduler.WorkerInfo) bool { return w.Worker == leaver.id() })
		})
	}
	if hits := r.all(); len(hits) != 4 {
		t.Errorf("the target was called %d times for 4 runs", len(hits))
	}
}

// Without the rule, removing a living voter while another is dead leaves a configuration in which nothing can be committed.
func TestRemoveKeepsALivingMajority(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	lead := c.leader()
	dead, alive := c.others(lead)[0], c.others(lead)[1]
	dead.crash()
	dead.stop()
	c.refused("remove", alive.id(), job.CodeState, "1 of 2 voters")
	c.refused("demote", alive.id(), job.CodeState, "1 of 2 voters")
	c.refused("transfer", dead.id(), job.CodeState, "does not answer")
	c.mustOp("remove", dead.id())
	c.awaitVoters(2)
	c.sameState()

	// It slept through its removal. It is told when it comes back, and does no harm.
	dead.link = &link{}
	dead.open(t)
	dead.eventually("it knows that it was removed", func() bool {
		err := dead.backend.Ready()
		return err != nil && strings.Contains(err.Error(), "removed")
	})
	time.Sleep(3 * dead.cfg.Raft.Heartbeat)
	for _, m := range []*member{lead, alive} {
		if err := m.members.check(dead.members.hello()); err == nil || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("%s: %v", m.id(), err)
		}
	}
	if its, theirs := dead.group.raft.CurrentTerm(), c.leader().group.raft.CurrentTerm(); its > theirs { // PreVote: it asks, and nobody answers
		t.Errorf("the removed node campaigns: it is in term %d and the others in %d", its, theirs)
	}
	dead.stop()

	// Its directory cannot come back; an empty one under the same id can.
	dead.cfg.DataDir = t.TempDir()
	dead.cfg.Bootstrap, dead.cfg.Join = false, []string{alive.cfg.Listen} // a follower
	dead.link = &link{}
	dead.open(t)
	c.awaitVoters(3)
	c.sameState()
}

func TestDeadMembersAreRemoved(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3, func(c *Config) { c.Members.RemoveDeadAfter = 500 * time.Millisecond })
	lead := c.leader()
	dead := c.others(lead)[0]
	time.Sleep(700 * time.Millisecond) // whoever answers stays
	if n := len(voters(c.leader())); n != 3 {
		t.Fatalf("%d voters", n)
	}
	dead.crash()
	dead.stop()
	c.awaitVoters(2)
	// Never below a majority: of the two that are left one dies, and the other cannot decide that alone.
	lead = c.leader()
	alive := c.others(lead)[0]
	if alive == dead {
		alive = c.others(lead)[1]
	}
	alive.crash()
	alive.stop()
	time.Sleep(time.Second)
	if n := len(voters(lead)); n != 2 {
		t.Errorf("%d voters", n)
	}
}

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
		{"the id of a living node", c.newMember("n1", at, two), []string{"has a node n1 with another data directory", "is running", "carillon cluster remove n1"}},
		{"an old binary", c.newMember("n2", at), []string{fmt.Sprint("feature level ", fsm.Level+1), fmt.Sprint("levels up to ", fsm.Level)}},
		{"an address of another node", c.newMember("n2", at, two, func(c *Config) { c.Advertise = first.cfg.Listen }), []string{"the leader finds node n1", "--advertise"}},
		{"itself", c.newMember("n2", nil, two, func(c *Config) { c.Bootstrap, c.Join = false, []string{c.Listen} }), []string{"is this node itself", "--bootstrap"}},
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
	servers := first.members.configured()
	rows, err := first.members.rows()
	if len(servers) != 1 || len(rows) != 1 || err != nil {
		t.Errorf("something changed: %v %v %v", servers, rows, err)
	}

	t.Run("another cluster", func(t *testing.T) {
		// It joined one cluster, got nothing from it yet, and is then pointed at another.
		m := c.newMember("n2", other.members[0:1][0].joinAddr(), two)
		d, err := openDir(m.cfg.DataDir, "n2", "test")
		if err != nil {
			t.Fatal(err)
		}
		d.home.ClusterID = first.group.store.Info().ClusterID
		if err := d.claim(); err != nil {
			t.Fatal(err)
		}
		if err := c.openAs(m); err == nil || !strings.Contains(err.Error(), "belongs to cluster") {
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

	t.Run("nobody there", func(t *testing.T) {
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
		m.eventually("the other address is enough", func() bool { return m.backend.Ready() == nil && len(voters(m)) == 2 })
		if s := ok[client.NodeInfo](late.testNode, "GET", "/api/v1/node", nil); s.ClusterID != "" || s.NodeID != "n3" {
			t.Errorf("%+v", s)
		}
		late.stop()
	})
	c.sameState()
}

func (m *member) joinAddr() []string { return []string{m.cfg.Listen} }

// A directory that was wiped has forgotten its votes. Raft itself would take it back: AddNonvoter for the id of a voter leaves it a voter
// and only changes its address (pitfalls 41), and at the old address not even that is needed. It could then vote a second time in a term
// and elect a second leader. So neither the leader nor a follower talks to it, and it does not talk to them.
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
	if err := c.openAs(m); err == nil || !strings.Contains(err.Error(), "another data directory") || !strings.Contains(err.Error(), "carillon cluster remove "+m.id()) {
		t.Errorf("%v", err)
	}
	// Even if it knew the cluster's id, nobody would shake hands with it.
	h := transport.Hello{ClusterID: lead.group.store.Info().ClusterID, NodeID: m.id(), InstanceID: "wiped", Address: m.cfg.Listen}
	for _, x := range c.others(m) {
		if err := x.members.check(h); err == nil || !strings.Contains(err.Error(), "another data directory") {
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
	os.Remove(filepath.Join(to, fileLock))
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
		err := clone.backend.Ready()
		return err != nil && strings.Contains(err.Error(), "copied")
	})
	for _, x := range c.members {
		if err := x.members.check(clone.members.hello()); err == nil || !strings.Contains(err.Error(), "copied") {
			t.Errorf("%s: %v", x.id(), err)
		}
	}
	rq := clone.members.request()
	rq.Member = true
	if _, err := c.leader().members.Join(t.Context(), rq); job.CodeOf(err) != job.CodeState || !strings.Contains(err.Error(), "is running at "+m.cfg.Listen) {
		t.Errorf("the leader: %v", err)
	}
	for _, x := range c.others(m) {
		if r, _ := x.members.row(m.id()); r.Address != m.cfg.Listen {
			t.Errorf("the copy moved its original to %s", r.Address)
		}
	}
	m.eventually("the original is well", func() bool { return m.backend.Ready() == nil })
}

func TestHandshakeRules(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 2)
	m, peer := c.members[0], c.members[1]
	good := peer.members.hello()
	if err := m.members.check(good); err != nil {
		t.Fatal(err)
	}
	row, _ := m.members.row(peer.id())
	for _, tt := range []struct {
		name   string
		change func(*transport.Hello)
		want   string
	}{
		{"another cluster", func(h *transport.Hello) { h.ClusterID = "other" }, "nothing to say"},
		{"no cluster", func(h *transport.Hello) { h.ClusterID = "" }, "nothing to say"},
		{"an epoch after", func(h *transport.Hello) { h.Epoch++ }, "node n1 was not part"},
		{"another directory", func(h *transport.Hello) { h.InstanceID = "x" }, "carillon cluster remove n2"},
		{"another address", func(h *transport.Hello) { h.Address = "h:1" }, "h:1"},
		{"this node's own id", func(h *transport.Hello) { h.NodeID = "n1" }, "speaks as node n1"},
		{"somebody whom this node has not heard of yet", func(h *transport.Hello) { h.NodeID = "n9" }, ""},
		{"a later directory of the same id", func(h *transport.Hello) { h.InstanceID, h.Index = "x", row.Index+1 }, ""},
		{"a later address", func(h *transport.Hello) { h.Address, h.Index = "h:1", row.Index+1 }, ""},
	} {
		h := good
		tt.change(&h)
		err := m.members.check(h)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if id := m.members.expect(peer.cfg.Listen); id != "n2" {
		t.Errorf("at %s should be %q", peer.cfg.Listen, id)
	}
	if id := m.members.expect("h:1"); id != "" {
		t.Errorf("nobody is at h:1, not %q", id)
	}
}

// A node that comes back elsewhere is found again, whether it follows or led.
func TestNodeMoves(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	for _, m := range []*member{c.others(c.leader())[0], c.leader()} {
		was := m.cfg.Listen
		m.stop()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m.cfg.Listen = ln.Addr().String()
		m.link = &link{ln: ln}
		m.cfg.Version = "test-2"
		m.open(t)
		for _, x := range c.members {
			x.eventually(x.id()+" knows the new address", func() bool {
				r, _ := x.members.row(m.id())
				servers := x.members.servers()
				s, _ := findServer(servers, m.id())
				return r.Address == m.cfg.Listen && string(s.Address) == m.cfg.Listen && r.Version == "test-2" && x.backend.Ready() == nil
			})
		}
		if m.cfg.Listen == was {
			t.Fatal("it did not move")
		}
		c.awaitVoters(3)
	}
	c.sameState()
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

// What a crash leaves between the two halves of a change is put right by the leader.
func TestHalfDoneChangesAreSettled(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 1)
	m := c.members[0]
	e := m.group.lead.current()
	if err := m.members.putRow(context.Background(), e, store.Node{ID: "ghost", Instance: "i", Address: "127.0.0.1:1", Level: fsm.Level}); err != nil {
		t.Fatal(err)
	}
	m.eventually("the server of the row is added", func() bool {
		servers := m.members.configured()
		s, in := findServer(servers, "ghost")
		return in && s.Suffrage == raft.Nonvoter
	})
	if o, err := m.members.propose(context.Background(), e, &fsm.RemoveNode{Head: m.members.head(e), ID: "ghost"}); err != nil || o.Code != fsm.CodeOK {
		t.Fatal(o, err)
	}
	m.eventually("the server without a row is removed", func() bool { servers := m.members.configured(); return len(servers) == 1 })
	row, _ := m.members.row("n1")
	row.Address = "127.0.0.1:2" // moved in the row and not in raft; the node itself then says where it really is
	if err := m.members.putRow(context.Background(), e, row); err != nil {
		t.Fatal(err)
	}
	m.eventually("row and raft agree", func() bool {
		r, _ := m.members.row("n1")
		servers := m.members.configured()
		return r.Address == m.cfg.Listen && string(servers[0].Address) == m.cfg.Listen
	})
}
