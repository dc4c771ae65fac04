package node

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/proof/port"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

func TestThreeNodesJoinAndFailOver(t *testing.T) {
	realTime(t)
	t.Parallel()
	for name, change := range modes(t) {
		t.Run(name, func(t *testing.T) { threeNodesJoinAndFailOver(t, change) })
	}
}

func threeNodesJoinAndFailOver(t *testing.T, change func(*Config)) {
	c := startJoined(t, 3, change)
	tg := newTarget(t)
	c.leader().create(tg.spec("a", "@every 1s"))
	c.fires("a")
	c.sameState()
	info := c.leader().group.store.Info()
	for _, m := range c.members {
		if r, ok := m.members.Row(m.id()); !ok || r.Instance != m.dir.Instance || r.Address != m.cfg.Listen ||
			r.Version != "test" || r.Level != fsm.Level || r.Slots != 32 || r.JoinedAt == 0 {
			t.Errorf("%s: %+v", m.id(), r)
		}
		if got := m.group.store.Info(); got.ClusterID != info.ClusterID {
			t.Errorf("%s is in cluster %s", m.id(), got.ClusterID)
		}
	}
	s := ok[wire.Status](c.leader().testNode, "GET", "/api/v1/status", nil)
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
	realTime(t)
	t.Parallel()
	for name, change := range modes(t) {
		t.Run(name, func(t *testing.T) { membershipOperations(t, change) })
	}
}

func membershipOperations(t *testing.T, change func(*Config)) {
	c := startJoined(t, 3, change)
	c.refused("remove", "nope", job.CodeNotFound, "carillon cluster members")
	c.refused("promote", "nope", job.CodeNotFound, "")
	c.refused("transfer", "nope", job.CodeNotFound, "")

	// Transfer, to a given node and to any.
	to := c.others(c.leader())[0]
	c.mustOp("transfer", to.id())
	to.eventually("it leads", func() bool { return c.leader() == to })
	c.mustOp("transfer", to.id()) // it leads already
	c.mustOp("transfer", "")
	to.eventually("another node leads", func() bool { return c.leader() != to })
	// Through a follower, which sends a request again when its leader is replaced: it must not be handed back.
	was := c.leader()
	for _, m := range c.others(was) {
		if a := m.call("POST", "/api/v1/cluster:transfer", nil); a.status != 204 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		// its epoch takes a moment to end
		m.eventually("another node leads", func() bool { return was.tracker.Epoch() == nil })
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
	lead.eventually("its address is settled", func() bool { return lead.service.Ready() == nil })
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
		err := lead.service.Ready()
		return err != nil && strings.Contains(err.Error(), "removed") && strings.Contains(err.Error(), "--join")
	})
	if s := ok[wire.Status](lead.testNode, "GET", "/api/v1/status?stale=true", nil); s.Ready ||
		!strings.Contains(s.NotReady, "removed") || len(s.Troubles) != 1 ||
		!strings.Contains(s.Troubles[0].Text, "removed") {
		t.Errorf("%+v", s)
	}
	for _, method := range []string{"GET", "POST"} {
		// While it still knows the leader it passes requests on, and on a secure cluster the leader refuses them.
		lead.eventually(method+" is answered with that", func() bool {
			return strings.Contains(lead.call(method, "/api/v1/jobs", nil).problem().Message, "removed from the cluster")
		})
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
	c.refused("transfer", "", job.CodeState, "no other node")
	last.create(map[string]any{"type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}})
}

// What a node has in hand when it is removed is finished and recorded as what it was, and it gets nothing new.
func TestRemovedNodeHandsInItsResults(t *testing.T) {
	realTime(t)
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
			if runs := stay.runs(name); len(runs) != 1 || runs[0].Status != job.RunSucceeded || runs[0].Attempt != 1 ||
				runs[0].Worker != leaver.id() {
				t.Errorf("%s: %+v", name, runs)
			}
		}
		stay.eventually("its session ends", func() bool {
			e := c.leader().tracker.Epoch()
			return e != nil && !slices.ContainsFunc(e.Scheduler.Workers(),
				func(w scheduler.WorkerInfo) bool { return w.Worker == leaver.id() })
		})
	}
	if hits := r.all(); len(hits) != 4 {
		t.Errorf("the target was called %d times for 4 runs", len(hits))
	}
}

// Without the rule, removing a living voter while another is dead leaves a configuration in which nothing can be
// committed.
func TestRemoveKeepsALivingMajority(t *testing.T) {
	realTime(t)
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
		err := dead.service.Ready()
		return err != nil && strings.Contains(err.Error(), "removed")
	})
	dead.eventually("it answers no read, for it does not hear of tokens that are revoked", func() bool {
		a := dead.call("GET", "/api/v1/jobs?stale=true", nil)
		return a.status == 503 && strings.Contains(string(a.body), "was removed")
	})
	if a := dead.call("GET", "/api/v1/status?stale=true", nil); a.status != 200 {
		t.Errorf("the status of a removed node: %d %s", a.status, a.body)
	}
	time.Sleep(3 * dead.cfg.Raft.Heartbeat)
	for _, m := range []*member{lead, alive} {
		if err := m.members.Check(dead.members.Hello()); err == nil || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("%s: %v", m.id(), err)
		}
	}
	if its, theirs := dead.group.raft.CurrentTerm(), c.leader().group.raft.CurrentTerm(); its > theirs { // PreVote: it asks, and none answers
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
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3, func(c *Config) { c.Members.RemoveDeadAfter = 500 * time.Millisecond })
	lead := c.leader()
	dead := c.others(lead)[0]
	time.Sleep(700 * time.Millisecond) // a node that answers stays
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

// A node that comes back elsewhere is found again, whether it follows or led.
func TestNodeMoves(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	for _, m := range []*member{c.others(c.leader())[0], c.leader()} {
		was := m.cfg.Listen
		m.stop()
		ln := port.Listen(t)
		m.cfg.Listen = ln.Addr().String()
		m.link = &link{ln: ln}
		m.cfg.Version = "test-2"
		m.open(t)
		for _, x := range c.members {
			x.eventually(x.id()+" knows the new address", func() bool {
				r, _ := x.members.Row(m.id())
				servers := x.members.Servers()
				s, _ := membership.FindServer(servers, m.id())
				return r.Address == m.cfg.Listen && string(s.Address) == m.cfg.Listen && r.Version == "test-2" &&
					x.service.Ready() == nil
			})
		}
		if m.cfg.Listen == was {
			t.Fatal("it did not move")
		}
		c.awaitVoters(3)
	}
	c.sameState()
}

// What a crash leaves between the two halves of a change is put right by the leader.
// A node that joins while its removal is half done has an empty directory: it does not get the vote that the old one had.
func TestAJoinEndsTheRemovalFirst(t *testing.T) {
	realTime(t)
	t.Parallel()
	seldom := func(cfg *Config) { cfg.Members.Interval = 2 * time.Second } // so the join comes before the next step
	c := startJoined(t, 3, seldom)
	lead := c.leader()
	gone := c.others(lead)[0]
	row, _ := lead.members.Row(gone.id())
	gone.kill()
	fresh := c.newMember(gone.id(), []string{"127.0.0.1:1"}, seldom)
	fresh.open(t)
	t.Cleanup(fresh.kill)
	e := lead.tracker.Epoch()
	remove := &fsm.RemoveNode{Head: e.Head(lead.group.store.Counters().Mark), ID: gone.id(), Instance: row.Instance}
	if r, err := e.Proposer.Propose(remove).Wait(); err != nil || r.Items[0].Code != fsm.CodeOK {
		t.Fatal(r, err)
	}
	if _, err := lead.members.Join(t.Context(), fresh.members.Request()); err != nil {
		t.Fatal(err)
	}
	servers := lead.members.Configured()
	if s, in := membership.FindServer(servers, gone.id()); !in || s.Suffrage != raft.Nonvoter {
		t.Errorf("the new directory is %+v, %v", s, in)
	}
}

func TestHalfDoneChangesAreSettled(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 1)
	m := c.members[0]
	e := m.tracker.Epoch()
	put := func(row store.Node) error {
		_, err := e.Proposer.Propose(&fsm.PutNode{Head: e.Head(m.group.store.Counters().Mark), Node: row}).Wait()
		return err
	}
	if err := put(store.Node{ID: "ghost", Instance: "i", Address: "127.0.0.1:1", Level: fsm.Level}); err != nil {
		t.Fatal(err)
	}
	m.eventually("the server of the row is added", func() bool {
		servers := m.members.Configured()
		s, in := membership.FindServer(servers, "ghost")
		return in && s.Suffrage == raft.Nonvoter
	})
	gone := &fsm.RemoveNode{Head: e.Head(m.group.store.Counters().Mark), ID: "ghost"}
	if r, err := e.Proposer.Propose(gone).Wait(); err != nil || r.Items[0].Code != fsm.CodeOK {
		t.Fatal(r, err)
	}
	m.eventually("the server without a row is removed",
		func() bool { servers := m.members.Configured(); return len(servers) == 1 })
	row, _ := m.members.Row("n1")
	row.Address = "127.0.0.1:2" // moved in the row and not in raft; the node itself then says where it really is
	if err := put(row); err != nil {
		t.Fatal(err)
	}
	m.eventually("row and raft agree", func() bool {
		r, _ := m.members.Row("n1")
		servers := m.members.Configured()
		return r.Address == m.cfg.Listen && string(servers[0].Address) == m.cfg.Listen
	})
}
