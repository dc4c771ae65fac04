package node

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/placement"
)

// leadsElsewhere waits until a node other than was leads and is ready.
func (c *cluster) leadsElsewhere(was *member) (next *member) {
	c.t.Helper()
	was.eventually("another node leads", func() bool {
		for _, m := range c.others(was) {
			if m.tracker.Epoch() != nil && m.service.Ready() == nil {
				next = m
				return true
			}
		}
		return false
	})
	return next
}

// One clock that is wrong for good must not stop a cluster in which a majority agrees: its leader held for ever. One
// that jumped by a few seconds held for ten, and then fired early or late.
func TestLeaderWithAWrongClockHandsOver(t *testing.T) {
	realTime(t)
	for _, shift := range []time.Duration{2 * time.Minute, -2 * time.Minute, 3 * time.Second, -1500 * time.Millisecond} {
		t.Run(shift.String(), func(t *testing.T) {
			t.Parallel()
			c := startJoined(t, 3)
			tg := newTarget(t)
			lead := c.leader()
			lead.create(tg.spec("going-on", "@every 1s"))
			c.fires("going-on")
			lead.clock.shift.Store(int64(shift))
			next := c.leadsElsewhere(lead)
			c.fires("going-on")

			if shift.Abs() < placement.FitSkew {
				return // by hand it may lead
			}
			// The leadership is not given back to it, by hand or by a stop.
			a := next.call("POST", "/api/v1/cluster:transfer", wire.NodeRequest{NodeID: lead.id()})
			if p := a.problem(); a.status != 409 || p.Code != job.CodeState || !strings.Contains(p.Message, "clock") ||
				!strings.Contains(p.Remedy, "--force") {
				t.Errorf("a transfer to a node that is %s off: %d %s", shift, a.status, a.body)
			}
			c.sameState()
		})
	}
}

// The disks of the others have room: creates go on through another leader.
func TestLeaderWithLowDiskHandsOver(t *testing.T) {
	t.Parallel()
	free := map[string]*atomic.Uint64{}
	c := startJoined(t, 3, func(cfg *Config) {
		f := &atomic.Uint64{}
		f.Store(10 << 30)
		free[cfg.NodeID] = f
		cfg.Machine.DiskEvery = 10 * time.Millisecond
		cfg.Machine.DiskSpace = func() (uint64, uint64, error) { return f.Load(), 100 << 30, nil }
	})
	lead := c.leader()
	lead.create(unclaimedJob("before"))
	free[lead.id()].Store(100 << 20)
	c.leadsElsewhere(lead)
	for _, m := range c.members {
		m.create(unclaimedJob("after-" + m.id()))
	}
	for _, m := range c.members {
		s := ok[wire.Status](m.testNode, "GET", "/api/v1/status", nil)
		i := slices.IndexFunc(s.Members, func(x wire.Member) bool { return x.ID == lead.id() })
		if i < 0 || s.Leader == lead.id() {
			t.Errorf("%s: led by %q, %+v", m.id(), s.Leader, s.Members)
		}
	}
	c.sameState()
}

// Two of three clocks are wrong, each in its own way: no majority agrees, so the leader holds, and every node says so.
func TestHoldIsSeenEverywhere(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	lead := c.leader()
	others := c.others(lead)
	others[0].clock.shift.Store(int64(time.Minute))
	others[1].clock.shift.Store(int64(-time.Minute))
	for _, m := range c.members {
		var s wire.Status
		m.eventually(m.id()+" shows the hold", func() bool {
			s = ok[wire.Status](m.testNode, "GET", "/api/v1/status", nil)
			i := slices.IndexFunc(s.Troubles, func(t wire.Trouble) bool { return t.Code == wire.TroubleHold })
			return !s.Ready && i >= 0 && s.Troubles[i].Node == lead.id() && s.Troubles[i].Since != 0 &&
				strings.Contains(s.Troubles[i].Remedy, "correct the clock") &&
				strings.Contains(s.Troubles[i].Text, "the leader "+lead.id()+" holds: its clock differs by") &&
				strings.Contains(s.Troubles[i].Text, "no other node can take over")
		})
		m.eventually(m.id()+" says whose clocks are wrong", func() bool {
			s = ok[wire.Status](m.testNode, "GET", "/api/v1/status", nil)
			return slices.ContainsFunc(s.Troubles, func(t wire.Trouble) bool {
				return t.Code == wire.TroubleClock && t.Node != lead.id()
			})
		})
		if a := m.call("GET", "/readyz", nil); a.status != 503 ||
			!strings.Contains(string(a.body), "the leader "+lead.id()+" holds") {
			t.Errorf("%s: %d %s", m.id(), a.status, a.body)
		}
		if text := string(m.call("GET", "/metrics", nil).body); !strings.Contains(text,
			`carillon_hold{group="0",reason="clock_skewed"} 1`) {
			t.Errorf("%s has no metric of the hold", m.id())
		}
	}
	// By hand it goes nowhere either, unless it is forced.
	if a := lead.call("POST", "/api/v1/cluster:transfer", nil); a.status != 409 ||
		!strings.Contains(a.problem().Remedy, "--force") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, m := range c.members {
		m.clock.shift.Store(0)
	}
	for _, m := range c.members {
		m.eventually(m.id()+" is ready again", func() bool {
			s := ok[wire.Status](m.testNode, "GET", "/api/v1/status", nil)
			return s.Ready && len(s.Troubles) == 0
		})
		if text := string(m.call("GET", "/metrics", nil).body); !strings.Contains(text,
			`carillon_hold{group="0",reason="clock_skewed"} 0`) {
			t.Errorf("%s still has a metric of the hold", m.id())
		}
	}
}

// A transfer by force is made, and the node that gets it hands over by itself.
func TestForcedTransfer(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	lead := c.leader()
	wrong := c.others(lead)[0]
	wrong.clock.shift.Store(int64(time.Minute))
	term := lead.group.raft.CurrentTerm()
	lead.eventually("its clock is known to be wrong", func() bool { return lead.members.CheckClock(wrong.id()) != nil })
	if a := lead.call("POST", "/api/v1/cluster:transfer", wire.NodeRequest{NodeID: wrong.id(),
		Force: true}); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	wrong.eventually("it led, and another one leads", func() bool { return wrong.group.raft.CurrentTerm() >= term+2 })
	c.leadsElsewhere(wrong)
	if a := lead.call("POST", "/api/v1/cluster:remove", wire.NodeRequest{NodeID: "n9",
		Force: true}); a.status != 400 || a.problem().Field != "force" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// One clock after the other goes wrong, and the other two agree each time: the leadership goes to one of these, also
// from a node that was handed it because of a clock and has handed it on because of its own before.
func TestClocksGoWrongOneAfterTheOther(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	lead := c.leader()
	for range len(c.members) + 1 { // one of them has its turn again
		lead.clock.shift.Store(int64(4 * time.Minute))
		next := c.leadsElsewhere(lead)
		lead.clock.shift.Store(0)
		lead = next
	}
}

// A transfer that fails is tried again, with another member.
func TestHandoverFails(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	lead := c.leader()
	others := c.others(lead)
	near, far := others[0], others[1] // with equal logs the nearer clock is chosen, and its raft is cut off
	far.clock.shift.Store(int64(time.Second))
	lead.link.mu.Lock()
	lead.link.cut = map[string]bool{near.id(): true}
	lead.link.mu.Unlock()
	lead.clock.shift.Store(int64(time.Minute))
	lead.eventually("the other one leads", func() bool {
		return far.tracker.Epoch() != nil &&
			far.service.Ready() == nil
	})
}

// With disks near their limits the leadership does not go back and forth.
func TestLowDisksKeepTheLeader(t *testing.T) {
	t.Parallel()
	free := map[string]*atomic.Uint64{}
	c := startJoined(t, 3, func(cfg *Config) {
		f := &atomic.Uint64{}
		f.Store(10 << 30)
		free[cfg.NodeID] = f
		cfg.Machine.DiskEvery = 10 * time.Millisecond
		cfg.Machine.DiskSpace = func() (uint64, uint64, error) { return f.Load(), 100 << 30, nil }
	})
	lead := c.leader()
	for _, m := range c.others(lead) {
		free[m.id()].Store(600 << 20) // above the limit of 512 MiB, and not by half of it
	}
	for _, m := range c.others(lead) {
		lead.eventually("the leader knows", func() bool {
			s := ok[wire.Status](lead.testNode, "GET", "/api/v1/status", nil)
			i := slices.IndexFunc(s.Members, func(x wire.Member) bool { return x.ID == m.id() })
			return s.Members[i].Disk != nil && s.Members[i].Disk.Free == 600<<20
		})
	}
	free[lead.id()].Store(500 << 20)
	lead.eventually("it stays, and says why", func() bool {
		return strings.Contains(lead.members.HandoverState(),
			"too little room as well")
	})
	if a := lead.call("POST", "/api/v1/jobs", unclaimedJob("new")); a.status != 507 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// A little more than the limit is not enough to begin again.
	free[lead.id()].Store(520 << 20)
	lead.eventually("it has looked", func() bool { return lead.disk.Last().Free == 520<<20 })
	if !lead.disk.Last().Low {
		t.Error("no longer low just above the limit")
	}

	// A follower with a low disk refuses nothing, and does not say so either.
	free[lead.id()].Store(10 << 30)
	low := c.others(lead)[0]
	free[low.id()].Store(100 << 20)
	low.eventually("its disk is low, and the leader's is not",
		func() bool { return low.disk.Last().Low && !lead.disk.Last().Low })
	low.create(unclaimedJob("through-a-follower"))
	s := ok[wire.Status](low.testNode, "GET", "/api/v1/status", nil)
	i := slices.IndexFunc(s.Troubles, func(t wire.Trouble) bool {
		return t.Code == wire.TroubleDisk &&
			t.Node == low.id()
	})
	if i < 0 || strings.Contains(s.Troubles[i].Text, "no jobs can be created") ||
		!strings.Contains(s.Troubles[i].Text, "jobs can still be created") {
		t.Errorf("%+v", s.Troubles)
	}
}

// A clock that is put right before the transfer keeps its leader: nothing is handed over for a reason that is gone.
func TestClockComesBackBeforeTheTransfer(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	lead := c.leader()
	faults := lead.members.Faults()
	resume, err := faults.Stall(t.Context()) // no transfer can begin
	if err != nil {
		t.Fatal(err)
	}
	lead.clock.shift.Store(int64(3 * time.Second)) // it jumped, and is farther off than half the tolerance
	var e *forward.Epoch
	var target, why string
	lead.eventually("it leads, and wants to hand over", func() bool {
		if e = lead.tracker.Epoch(); e == nil || !strings.HasPrefix(lead.members.HandoverState(), "it hands over to") {
			return false
		}
		target, why = faults.Plan(e)
		return target != ""
	})
	lead.clock.shift.Store(0)
	resume(e, target, why)
	if lead.tracker.Epoch() != e {
		t.Errorf("handed over to %q", target)
	}
}
